"""Training augmentation: the source papers' random affine map, by albumentations.

albumentations is used in this module alone: 2.0 is its last release under an open license.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import numpy as np
from pydantic import Field

from chestfed.core.config import StrictModel


class Augment(StrictModel):
    """A random rotation, shift and scale; the outside is black."""

    enabled: bool = Field(True, description="false: training images are not changed")
    rotation: float = Field(15.0, ge=0, le=180, description="degrees to either side")
    shift: float = Field(0.05, ge=0, le=0.5, description="share of the side, to either side")
    scale: float = Field(0.05, ge=0, lt=1, description="share of the size, larger or smaller")
    flip: bool = Field(False, description="mirror every other image left to right, at random; never for chests")

    def apply(self, image: np.ndarray, seed: int) -> np.ndarray:
        """The image uint8 `[h, w]` or `[h, w, 3]` under the map that `seed` draws; the same seed gives the same map."""
        if not self.enabled:
            return image
        transform = _transform(self, threading.get_ident())
        transform.set_random_seed(seed % 2**32)
        return transform(image=image)["image"]


@functools.lru_cache(maxsize=64)
def _transform(config: Augment, thread: int) -> Any:
    """One for each thread: it holds the state of its random numbers."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no check for newer versions online
    import albumentations
    import cv2

    affine = albumentations.Affine(
        rotate=(-config.rotation, config.rotation),
        translate_percent=(-config.shift, config.shift),
        scale=(1 - config.scale, 1 + config.scale),
        interpolation=cv2.INTER_LINEAR,
        border_mode=cv2.BORDER_CONSTANT,
        fill=0,
        p=1.0,
    )
    return albumentations.Compose([affine, albumentations.HorizontalFlip(p=0.5)]) if config.flip else affine
