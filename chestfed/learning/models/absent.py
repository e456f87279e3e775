"""Published weights that are not on this machine: a dry run and the check of a configuration do without them."""

from __future__ import annotations

from typing import Any

from chestfed.learning.models.building import MODELS, network_options
from chestfed.learning.models.declaration import IMAGENET, ModelOptions, Published
from chestfed.learning.models.features import FeatureOptions
from chestfed.learning.models.pretrained import find_initial_weights, is_present


def find_absent_weights(options: ModelOptions) -> Published | None:
    """The published weights that a network, or the one whose features it takes, begins with and that are not here."""
    network = _get_weighted(options)
    published = MODELS.find(network.name).imagenet if network.initial_weights == IMAGENET else None
    return None if published is None or is_present(published) else published


def without_absent_weights(options: ModelOptions) -> ModelOptions:
    """The network with random weights, if its published ones are not here: of the same size and speed."""
    if find_absent_weights(options) is None:
        return options
    changed: dict[str, Any] = {"initial_weights": None}
    if isinstance(options, FeatureOptions) and isinstance(options.network, dict):
        changed = {"network": {**options.network, **changed}}
    return options.model_copy(update=changed)


def fetch_weights(options: ModelOptions) -> None:
    """Download published weights that are not here; raises `ConfigError` if they cannot be had."""
    if find_absent_weights(options) is not None:
        network = _get_weighted(options)
        find_initial_weights(IMAGENET, MODELS.find(network.name))


def _get_weighted(options: ModelOptions) -> ModelOptions:
    if isinstance(options, FeatureOptions) and isinstance(options.network, dict):
        given: dict[str, Any] = options.network
        return network_options(**given)
    return options
