"""Networks: declared here, installed, or built by any factory. See `ModelSpec` for one of your own."""

from __future__ import annotations

from chestfed.learning.models.absent import fetch_weights, find_absent_weights, without_absent_weights
from chestfed.learning.models.batch_norm import find_norms, find_own_norms, renew_statistics, restore_statistics
from chestfed.learning.models.building import (
    MODELS,
    build_model,
    find_classifier,
    may_draw,
    name_network,
    network_options,
    reset_classifier,
    seeded,
    try_network,
)
from chestfed.learning.models.declaration import ModelOptions, ModelSpec
from chestfed.learning.models.factory import get_factory
from chestfed.learning.models.features import FEATURES, FeatureOptions, load_frozen
from chestfed.learning.models.flat import FlatModule, convert_numbers, convolve_channels_last, observe_features
from chestfed.learning.models.groups import NetworkGroups, find_groups
from chestfed.learning.models.pretrained import place_downloaded
from chestfed.learning.models.weights import load_trained, read_weights

__all__ = [
    "FEATURES",
    "MODELS",
    "FeatureOptions",
    "FlatModule",
    "ModelOptions",
    "ModelSpec",
    "NetworkGroups",
    "build_model",
    "convert_numbers",
    "convolve_channels_last",
    "fetch_weights",
    "find_absent_weights",
    "find_classifier",
    "find_groups",
    "find_norms",
    "find_own_norms",
    "get_factory",
    "load_frozen",
    "load_trained",
    "may_draw",
    "name_network",
    "network_options",
    "observe_features",
    "place_downloaded",
    "read_weights",
    "renew_statistics",
    "reset_classifier",
    "restore_statistics",
    "seeded",
    "try_network",
    "without_absent_weights",
]
