"""Imports of every process that trains: a server of worker processes makes them once, and each process is its fork.

The last ones are those that a first use brings: of an optimizer, an AUC, a file, an augmented image.
"""

import numpy as np

import chestfed.studies.jobs  # noqa: F401
from chestfed.learning.models.densenet import import_densenet

import_densenet()  # before the others, some of which MONAI would take for a reason to import more

import rich.progress  # noqa: E402, F401
import safetensors.torch  # noqa: E402, F401
import sklearn.metrics  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401

from chestfed.data.images.augment import Augment  # noqa: E402

Augment().apply(np.zeros((1, 32, 32), np.uint8), [0])
