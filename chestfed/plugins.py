"""What a plug-in is written with: the names of this module are stable.

An algorithm declares an `AlgorithmSpec`, an objective an `ObjectiveSpec`, a network a `ModelSpec`; docs/own_method.md
shows one of each.
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
from chestfed.objectives.declaration import DualEstimate, Objective, ObjectiveSpec, Population, Sampled

__all__ = [
    "Algorithm",
    "AlgorithmSpec",
    "ClientInfo",
    "CompositionalGradients",
    "DecentralizedOptions",
    "DualEstimate",
    "Encoding",
    "Finishing",
    "Gradients",
    "LocalStepAlgorithm",
    "MinMaxOptions",
    "ModelOptions",
    "ModelSpec",
    "Objective",
    "ObjectiveSpec",
    "Options",
    "PeerAlgorithm",
    "Personal",
    "Point",
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
