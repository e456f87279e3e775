"""Imports of every process that trains: a server of worker processes makes them once, and each process is its fork.

The last ones are those that torch, scikit-learn and safetensors leave to a first use: of an optimizer, an AUC, a file.
"""

import chestfed.studies.jobs  # noqa: F401
from chestfed.learning.models.densenet import import_densenet

import_densenet()  # before the others, some of which MONAI would take for a reason to import more

import rich.progress  # noqa: E402, F401
import safetensors.torch  # noqa: E402, F401
import sklearn.metrics  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401
