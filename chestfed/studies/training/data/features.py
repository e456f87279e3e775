"""The store of the features that a study's heads train on."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.errors import ConfigError
from chestfed.data.images.features import FeatureStore
from chestfed.learning.models import FeatureOptions, load_frozen
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.reporting import current


def check_features(pipeline: Pipeline) -> None:
    """Check that a network whose features a study takes was trained with the study's preprocessing.

    Raises
    ------
    ConfigError
        If its model file says that it was trained with another one.
    """
    model, preprocess = pipeline.model, pipeline.preprocess.model_dump(mode="json")
    trained_with = load_frozen(model).preprocess if isinstance(model, FeatureOptions) else None
    if trained_with is not None and trained_with != preprocess:
        differing = [name for name, value in preprocess.items() if trained_with.get(name) != value]
        text = "; ".join(f"preprocess.{name}={trained_with.get(name)}" for name in differing)
        raise ConfigError(
            f"model.network was trained with {text}: set it, or take another network",
            kind="other preprocessing",
            keys=differing,
        )


def open_features(pipeline: Pipeline, machine: Machine, cache_root: Path) -> tuple[FeatureStore | None, str]:
    """The store of the features that a study trains on, and the digest of the network; None if it trains on pixels."""
    if not isinstance(pipeline.model, FeatureOptions):
        return None, ""
    frozen = load_frozen(pipeline.model)
    report, device = current().bind("decoding", "features"), machine.device
    width = frozen.count_features(pipeline.preprocess.size)
    return FeatureStore(cache_root, frozen.digest, width, frozen.extract, device, report), frozen.digest
