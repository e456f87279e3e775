"""Training augmentation: the source papers' random affine map, drawn here, applied by albumentations or on a GPU.

albumentations is used in this module alone: 2.0 is its last release under an open license.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.core.randomness import uniforms


class Augment(StrictModel):
    """A random rotation, shift and scale."""

    enabled: bool = Field(True, description="false: training images are not changed")
    rotation: float = Field(15.0, ge=0, le=180, description="degrees to either side")
    shift: float = Field(0.05, ge=0, le=0.5, description="share of the side, to either side")
    scale: float = Field(0.05, ge=0, lt=1, description="share of the width and of the height, larger or smaller")
    fill: int = Field(0, ge=0, le=255, description="gray level of the outside; 0: black")
    flip: bool = Field(False, description="mirror every other image left to right, at random; never for chests")

    def maps(self, seeds: Sequence[int], height: int, width: int) -> np.ndarray:
        """Map that each seed draws, float64 `[n, 3, 3]`: from pixels (x, y, 1) of the image to those of the result."""
        drawn = np.array([uniforms(6, seed) for seed in seeds]).reshape(-1, 6).T
        turn, right, down, wide, high = 2 * drawn[:5] - 1
        angle = np.deg2rad(self.rotation * turn)
        across, along = 1 + self.scale * wide, 1 + self.scale * high
        maps = np.zeros((len(seeds), 3, 3))
        maps[:, 0, 0], maps[:, 0, 1] = across * np.cos(angle), along * np.sin(angle)
        maps[:, 1, 0], maps[:, 1, 1] = -across * np.sin(angle), along * np.cos(angle)
        center = np.array([width - 1, height - 1]) / 2
        moved = center + self.shift * np.stack([width * right, height * down], axis=1)
        maps[:, :2, 2] = moved - maps[:, :2, :2] @ center
        maps[:, 2, 2] = 1
        if self.flip:
            mirrored = drawn[5] < 0.5
            maps[mirrored, 0] = [0, 0, width - 1] - maps[mirrored, 0]
        return maps

    def apply(self, images: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
        """The images uint8 `[n, h, w]` or `[n, h, w, 3]` under the maps that `seeds` draw, bilinear; on the CPU."""
        if not self.enabled:
            return images
        height, width = images.shape[1:3]
        warp, moved = _load_warp(), np.empty_like(images)
        for place, forward in enumerate(self.maps(seeds, height, width)[:, :2]):
            moved[place] = warp(images[place], forward, (width, height), border_value=float(self.fill))
        return moved


def backward(maps: np.ndarray, height: int, width: int) -> np.ndarray:
    """The inverse of `Augment.maps` as `warp_images` takes them, float32 `[n, 2, 3]`: in units of half the side."""
    units = np.array([[2 / width, 0, 1 / width - 1], [0, 2 / height, 1 / height - 1], [0, 0, 1]])
    return (units @ np.linalg.inv(maps) @ np.linalg.inv(units))[:, :2].astype(np.float32)


def warp_images(images: Tensor, back: Tensor, fill: int = 0) -> Tensor:
    """Warp as `Augment.apply`, on the images' device and in float32, without rounding.

    `images` are uint8 `[n, h, w]` or `[n, h, w, 3]`, `back` tells for the pixels of the result where they come from.
    """
    gray = images.dim() == 3
    planes = (images[:, None] if gray else images.permute(0, 3, 1, 2)).float() - fill
    grid = torch.nn.functional.affine_grid(back, list(planes.shape), align_corners=False)
    moved = torch.nn.functional.grid_sample(planes, grid, align_corners=False) + fill  # it fills with zeros
    return moved[:, 0] if gray else moved.permute(0, 2, 3, 1)


@functools.cache
def _load_warp() -> Callable[..., np.ndarray]:
    """The function by which `albumentations.Affine` warps, without its 60 microseconds of checks per image."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no check for newer versions online
    import cv2
    from albumentations.augmentations.geometric.functional import warp_affine_with_value_extension

    return functools.partial(warp_affine_with_value_extension, flags=cv2.INTER_LINEAR, border_mode=cv2.BORDER_CONSTANT)
