"""What a plug-in is written with: the names of this module are stable.

An algorithm declares an `AlgorithmSpec`, an objective an `ObjectiveSpec`, a network a `ModelSpec` (docs/own_method.md
shows one of each), a collection of images a `CollectionSpec` (docs/collections.md).
"""

from __future__ import annotations

from chestfed.algorithms.declaration import AlgorithmSpec, DecentralizedOptions, MinMaxOptions, Setting
from chestfed.algorithms.variables import (
    Algorithm,
    CompositionalGradients,
    Finishing,
    Gradients,
    LocalStepAlgorithm,
    PeerAlgorithm,
    Point,
    Restarting,
    mean_of,
    weighted_mean,
)
from chestfed.core.plugins import Options
from chestfed.models.declaration import ModelOptions, ModelSpec
from chestfed.objectives.declaration import DualEstimate, Objective, ObjectiveSpec, Population
from chestfed.public_datasets.declaration import Collection, CollectionSpec, Part
from chestfed.public_datasets.pixels import ArrayPixels, FilePixels, Pixels

__all__ = [
    "Algorithm",
    "AlgorithmSpec",
    "ArrayPixels",
    "Collection",
    "CollectionSpec",
    "CompositionalGradients",
    "DecentralizedOptions",
    "DualEstimate",
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
    "Pixels",
    "Point",
    "Population",
    "Restarting",
    "Setting",
    "mean_of",
    "weighted_mean",
]
