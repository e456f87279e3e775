"""The store of the features that a study's heads train on."""

from __future__ import annotations

from pathlib import Path

from chestfed.core.errors import ConfigError
from chestfed.data.images.features import FeatureStore
from chestfed.learning.models import FeatureOptions, load_frozen
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.reporting import current


def open_features(pipeline: Pipeline, machine: Machine, cache_root: Path) -> tuple[FeatureStore | None, str]:
    """The store of the features that a study trains on, and the digest of the network; None if it trains on pixels.

    Raises
    ------
    ConfigError
        If the model file of the network says that it was trained with another preprocessing.
    """
    model, preprocess = pipeline.model, pipeline.preprocess.model_dump(mode="json")
    if not isinstance(model, FeatureOptions):
        return None, ""
    frozen = load_frozen(model)
    if frozen.preprocess is not None and frozen.preprocess != preprocess:
        differing = [name for name, value in preprocess.items() if frozen.preprocess.get(name) != value]
        text = "; ".join(f"preprocess.{name}={frozen.preprocess.get(name)}" for name in differing)
        raise ConfigError(
            f"model.network was trained with {text}: set it, or take another network",
            kind="other preprocessing",
            keys=differing,
        )
    report, device = current().bind("decoding", "features"), machine.device
    width = frozen.count_features(pipeline.preprocess.size)
    return FeatureStore(cache_root, frozen.digest, width, frozen.extract, device, report), frozen.digest
