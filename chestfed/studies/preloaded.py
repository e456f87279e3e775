"""Imports of every process that trains: the server of worker processes makes them once, and each process is its fork."""

import chestfed.studies.jobs
from chestfed.learning.models.densenet import import_densenet

import_densenet()
