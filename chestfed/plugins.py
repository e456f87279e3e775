"""Names that a plug-in is written with; those of this module are stable.

An algorithm declares an `AlgorithmSpec`, an objective an `ObjectiveSpec`, a network a `ModelSpec` (docs/own_method.md
shows one of each), a step of the exchange between clients and server a `StepSpec`, a collection of images a
`CollectionSpec` (docs/collections.md), a reader a `SiteReader` (docs/own_reader.md). The names are imported when they
are first used: a reader loads no PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chestfed.core.config import AddedLater, NamesFile, StrictModel
    from chestfed.core.errors import ChestfedError, ConfigError, Problem, TrainingError
    from chestfed.core.leaves import Leaf
    from chestfed.core.plugins import Options
    from chestfed.core.randomness import numpy_stream, stream_seed
    from chestfed.data.collections.declaration import Collection, CollectionSpec, Part
    from chestfed.data.collections.pixels import ArrayPixels, FilePixels, Pixels
    from chestfed.data.sites.reader import (
        BLANK,
        NEGATIVE,
        POSITIVE,
        RAW_COLUMNS,
        SPLITS,
        UNCERTAIN,
        UNLABELLED,
        VIEWS,
        SiteReader,
        Source,
        ages,
        column_findings,
        from_numbers,
        image_files,
        join_rows,
        label_names,
        raw_rows,
        sexes,
        strongest,
        translate,
        views,
    )
    from chestfed.learning.abilities import ANY_ROUND, AVERAGING, Can, Demand
    from chestfed.learning.algorithms.declaration import (
        AlgorithmSpec,
        ClientInfo,
        MinMaxOptions,
        Setting,
        Sizes,
    )
    from chestfed.learning.algorithms.minimization.local_sgdm import LOCAL_SGDM
    from chestfed.learning.algorithms.variables import (
        Algorithm,
        CompositionalGradients,
        Finishing,
        Gradients,
        LocalStepAlgorithm,
        PeerAlgorithm,
        Personal,
        Point,
        Preparing,
        Restarting,
        Stateless,
        byte_count,
        complement,
        find_norm,
        from_named_tensors,
        mean_of,
        named_tensors,
        select,
        weighted_mean,
        with_parts,
    )
    from chestfed.learning.engines.engine import Engine, RoundRecord, refuse_outsized
    from chestfed.learning.engines.fleet import Fleet
    from chestfed.learning.engines.layout import Layout, Place, refuse_running_statistics
    from chestfed.learning.engines.messages.requests import Located, OwnRequest
    from chestfed.learning.engines.messages.wire import WireError
    from chestfed.learning.exchange.statistics import spread
    from chestfed.learning.exchange.step import Arrived, Package, Step, StepSpec
    from chestfed.learning.models.declaration import ModelOptions, ModelSpec
    from chestfed.learning.objectives.auc_margin import AUC, AucOptions
    from chestfed.learning.objectives.cross_entropy import CrossEntropy
    from chestfed.learning.objectives.declaration import (
        DualEstimate,
        NextBatch,
        Note,
        Objective,
        ObjectiveSpec,
        Oracle,
        Outputs,
        Passes,
        Population,
        Sampled,
        Seeing,
        Seen,
        TrainedNetwork,
        labeled_mean,
    )
    from chestfed.learning.objectives.pairs import move_average

__all__ = [
    "ANY_ROUND",
    "AUC",
    "AVERAGING",
    "BLANK",
    "LOCAL_SGDM",
    "NEGATIVE",
    "POSITIVE",
    "RAW_COLUMNS",
    "SPLITS",
    "UNCERTAIN",
    "UNLABELLED",
    "VIEWS",
    "AddedLater",
    "Algorithm",
    "AlgorithmSpec",
    "ArrayPixels",
    "Arrived",
    "AucOptions",
    "Can",
    "ChestfedError",
    "ClientInfo",
    "Collection",
    "CollectionSpec",
    "CompositionalGradients",
    "ConfigError",
    "CrossEntropy",
    "Demand",
    "DualEstimate",
    "Engine",
    "FilePixels",
    "Finishing",
    "Fleet",
    "Gradients",
    "Layout",
    "Leaf",
    "LocalStepAlgorithm",
    "Located",
    "MinMaxOptions",
    "ModelOptions",
    "ModelSpec",
    "NamesFile",
    "NextBatch",
    "Note",
    "Objective",
    "ObjectiveSpec",
    "Options",
    "Oracle",
    "Outputs",
    "OwnRequest",
    "Package",
    "Part",
    "Passes",
    "PeerAlgorithm",
    "Personal",
    "Pixels",
    "Place",
    "Point",
    "Population",
    "Preparing",
    "Problem",
    "Restarting",
    "RoundRecord",
    "Sampled",
    "Seeing",
    "Seen",
    "Setting",
    "SiteReader",
    "Sizes",
    "Source",
    "Stateless",
    "Step",
    "StepSpec",
    "StrictModel",
    "TrainedNetwork",
    "TrainingError",
    "WireError",
    "ages",
    "byte_count",
    "column_findings",
    "complement",
    "find_norm",
    "from_named_tensors",
    "from_numbers",
    "image_files",
    "join_rows",
    "label_names",
    "labeled_mean",
    "mean_of",
    "move_average",
    "named_tensors",
    "numpy_stream",
    "raw_rows",
    "refuse_outsized",
    "refuse_running_statistics",
    "select",
    "sexes",
    "spread",
    "stream_seed",
    "strongest",
    "translate",
    "views",
    "weighted_mean",
    "with_parts",
]

#: Module -> the names that it gives.
_MODULES = {
    "chestfed.core.config": ("AddedLater", "NamesFile", "StrictModel"),
    "chestfed.core.errors": (
        "ChestfedError",
        "ConfigError",
        "Problem",
        "TrainingError",
    ),
    "chestfed.core.plugins": ("Options",),
    "chestfed.core.randomness": ("numpy_stream", "stream_seed"),
    "chestfed.core.leaves": ("Leaf",),
    "chestfed.data.collections.declaration": (
        "Collection",
        "CollectionSpec",
        "Part",
    ),
    "chestfed.data.collections.pixels": (
        "ArrayPixels",
        "FilePixels",
        "Pixels",
    ),
    "chestfed.data.sites.reader": (
        "BLANK",
        "NEGATIVE",
        "POSITIVE",
        "RAW_COLUMNS",
        "SPLITS",
        "SiteReader",
        "Source",
        "UNCERTAIN",
        "UNLABELLED",
        "VIEWS",
        "ages",
        "column_findings",
        "from_numbers",
        "image_files",
        "join_rows",
        "label_names",
        "raw_rows",
        "sexes",
        "strongest",
        "translate",
        "views",
    ),
    "chestfed.learning.abilities": (
        "ANY_ROUND",
        "AVERAGING",
        "Can",
        "Demand",
    ),
    "chestfed.learning.algorithms.declaration": (
        "AlgorithmSpec",
        "ClientInfo",
        "MinMaxOptions",
        "Setting",
        "Sizes",
    ),
    "chestfed.learning.algorithms.minimization.local_sgdm": ("LOCAL_SGDM",),
    "chestfed.learning.algorithms.variables": (
        "Algorithm",
        "CompositionalGradients",
        "Finishing",
        "Gradients",
        "LocalStepAlgorithm",
        "PeerAlgorithm",
        "Personal",
        "Point",
        "Preparing",
        "Restarting",
        "Stateless",
        "byte_count",
        "complement",
        "find_norm",
        "from_named_tensors",
        "mean_of",
        "named_tensors",
        "select",
        "weighted_mean",
        "with_parts",
    ),
    "chestfed.learning.engines.engine": (
        "Engine",
        "RoundRecord",
        "refuse_outsized",
    ),
    "chestfed.learning.engines.fleet": ("Fleet",),
    "chestfed.learning.engines.layout": (
        "Layout",
        "Place",
        "refuse_running_statistics",
    ),
    "chestfed.learning.engines.messages.requests": (
        "Located",
        "OwnRequest",
    ),
    "chestfed.learning.engines.messages.wire": ("WireError",),
    "chestfed.learning.exchange.statistics": ("spread",),
    "chestfed.learning.exchange.step": (
        "Arrived",
        "Package",
        "Step",
        "StepSpec",
    ),
    "chestfed.learning.models.declaration": (
        "ModelOptions",
        "ModelSpec",
    ),
    "chestfed.learning.objectives.auc_margin": ("AUC", "AucOptions"),
    "chestfed.learning.objectives.cross_entropy": ("CrossEntropy",),
    "chestfed.learning.objectives.declaration": (
        "DualEstimate",
        "NextBatch",
        "Note",
        "Objective",
        "ObjectiveSpec",
        "Oracle",
        "Outputs",
        "Passes",
        "Population",
        "Sampled",
        "Seeing",
        "Seen",
        "TrainedNetwork",
        "labeled_mean",
    ),
    "chestfed.learning.objectives.pairs": ("move_average",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'chestfed.plugins' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
