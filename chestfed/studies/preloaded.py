"""Imports of every process that trains: a server of worker processes makes them once, and each process is its fork."""

import chestfed.studies.jobs  # noqa: F401
from chestfed.learning.models.densenet import import_densenet

import_densenet()
