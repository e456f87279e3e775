"""What a plug-in is written with: the names of this module are stable.

An algorithm declares an `AlgorithmSpec`, an objective an `ObjectiveSpec`, a network a `ModelSpec` (docs/own_method.md
shows one of each), a collection of images a `CollectionSpec` (docs/collections.md).
"""

from __future__ import annotations

from chestfed.core.plugins import Options
from chestfed.data.collections.declaration import Collection, CollectionSpec, Part
from chestfed.data.collections.pixels import ArrayPixels, FilePixels, Pixels
from chestfed.learning.algorithms.declaration import (
    AlgorithmSpec,
    ClientInfo,
    DecentralizedOptions,
    MinMaxOptions,
    Setting,
    Sizes,
)
from chestfed.learning.algorithms.variables import (
    Algorithm,
    CompositionalGradients,
    Encoding,
    Finishing,
    Gradients,
    LocalStepAlgorithm,
    PeerAlgorithm,
    Personal,
    Point,
    Preparing,
    Restarting,
    complement,
    mean_of,
    select,
    weighted_mean,
    with_parts,
)
from chestfed.learning.models.declaration import ModelOptions, ModelSpec
from chestfed.learning.objectives.declaration import DualEstimate, Objective, ObjectiveSpec, Pooled, Population, Sampled

__all__ = [
    "Algorithm",
    "AlgorithmSpec",
    "ArrayPixels",
    "ClientInfo",
    "Collection",
    "CollectionSpec",
    "CompositionalGradients",
    "DecentralizedOptions",
    "DualEstimate",
    "Encoding",
    "FilePixels",
    "Finishing",
    "Gradients",
    "LocalStepAlgorithm",
    "MinMaxOptions",
    "ModelOptions",
    "ModelSpec",
    "Objective",
    "ObjectiveSpec",
    "Options",
    "Part",
    "PeerAlgorithm",
    "Personal",
    "Pixels",
    "Point",
    "Pooled",
    "Population",
    "Preparing",
    "Restarting",
    "Sampled",
    "Setting",
    "Sizes",
    "complement",
    "mean_of",
    "select",
    "weighted_mean",
    "with_parts",
]
