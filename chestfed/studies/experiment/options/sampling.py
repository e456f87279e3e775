"""Options of drawing batches by class in a pipeline, and what they can be right for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.learning.objectives import OBJECTIVES

if TYPE_CHECKING:
    from chestfed.studies.experiment.stage_2 import Federated


class Sampling(StrictModel):
    """Batches of stage 2 that are drawn by class."""

    positives: float = Field(
        gt=0,
        lt=1,
        description="share of positives in every batch, rounded to whole images. Each batch is about one disease, "
        "drawn among those of which the client has both classes; labels of all others are missing in it",
    )

    def count(self, images: int) -> int:
        """Positives in a batch of so many images."""
        return round(self.positives * images)

    def change_counts(self, ratios: np.ndarray, labeled: np.ndarray, images: int) -> tuple[np.ndarray, np.ndarray]:
        """Share of positives and of labeled rows in the clients' batches, given those in their data, float64 `[K, J]`.

        With T diseases of which a client has both classes, each is in 1/T of its batches.
        """
        both = (ratios > 0) & (ratios < 1)
        share = np.where(both, self.count(images) / images, np.nan)
        return share, np.where(both, 1 / np.maximum(1, both.sum(axis=1, keepdims=True)), 0.0)


def check_classes(settings: Federated, both: Mapping[str, bool]) -> None:
    """Raise `ConfigError` if batches are drawn by class, and a client has not both classes of any disease.

    With all images in one place a client may have any.
    """
    if settings.sampling is None or settings.spec.pooled:
        return
    if lacking := [name for name, has_both in both.items() if not has_both]:
        raise ConfigError(
            f"federated.sampling: {', '.join(lacking)} has no disease with both classes among its training images, so "
            "that no batch can be drawn by class; leave the site out, or federated.sampling",
            kind="no class to draw",
            clients=lacking,
        )


def check_sampling(settings: Federated) -> None:
    """Raise ValueError if algorithm, objective or batch size do not go with batches that are drawn by class."""
    chosen, spec, objective = settings.sampling, settings.spec, settings.objective_spec
    if chosen is None:
        return
    images = settings.images_per_step
    if not 0 < chosen.count(images) < images:
        raise ValueError(
            f"sampling.positives: {chosen.positives:g} of {images} images per step are {chosen.count(images)} "
            "positives, and both classes are needed; raise batch_size, or set another share"
        )
    if "F" in spec.describe_gradients(settings.algorithm):
        raise ValueError(
            f"sampling: {spec.name} takes gradients of all training images too, with another share of positives than "
            "its batches; remove sampling"
        )
    if not objective.by_class:
        fitting = [name for name, other in OBJECTIVES.built_in.items() if other.by_class]
        raise ValueError(
            f"sampling: objective {objective.name} is another one where batches have another share of positives; "
            f"remove sampling, or choose one of {', '.join(fitting)}"
        )
