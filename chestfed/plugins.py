"""What a plug-in is written with: the names of this module are stable.

An algorithm declares an `AlgorithmSpec`, an objective an `ObjectiveSpec`, a network a `ModelSpec` (docs/own_method.md
shows one of each), a collection of images a `CollectionSpec` (docs/collections.md).
"""

from __future__ import annotations

from chestfed.algorithms.declaration import (
    AlgorithmSpec,
    ClientInfo,
    DecentralizedOptions,
    MinMaxOptions,
    Setting,
    Sizes,
)
from chestfed.algorithms.variables import (
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
from chestfed.core.plugins import Options
from chestfed.models.declaration import ModelOptions, ModelSpec
from chestfed.objectives.declaration import DualEstimate, Objective, ObjectiveSpec, Pooled, Population, Sampled
from chestfed.public_datasets.declaration import Collection, CollectionSpec, Part
from chestfed.public_datasets.pixels import ArrayPixels, FilePixels, Pixels

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
