"""The plane that phantoms are drawn in: centimetres to pixels, outlines, lines, blur and smooth noise.

x grows to the right of the picture (the patient's left), y downward; the origin lies on the spine at the height of the
hila.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import cv2
import numpy as np

_SHIFT: Final = 4  # fractional bits of drawn points


@dataclass(frozen=True)
class Frame:
    """Where the detector stands: its pixels, pixels per cm, and the pixel and angle of the body's axes."""

    height: int
    width: int
    scale: float
    origin: tuple[float, float]
    angle: float = 0.0

    @cached_property
    def xy(self) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates in cm of every pixel, two float32 `[height, width]`."""
        column = (np.arange(self.width, dtype=np.float32) - self.origin[0]) / self.scale
        row = ((np.arange(self.height, dtype=np.float32) - self.origin[1]) / self.scale)[:, None]
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        return column * cos + row * sin, row * cos - column * sin

    @cached_property
    def coarse(self) -> Frame:
        """View on half the rows and columns, for what has no fine detail."""
        center = ((self.origin[0] - 0.5) / 2, (self.origin[1] - 0.5) / 2)
        return Frame((self.height + 1) // 2, (self.width + 1) // 2, self.scale / 2, center, self.angle)

    def enlarged(self, picture: np.ndarray) -> np.ndarray:
        """A picture on the coarse grid, brought to this one."""
        return cv2.resize(picture, (2 * picture.shape[1], 2 * picture.shape[0]))[: self.height, : self.width]

    def polygon(self, outline: np.ndarray, soften: float = 0.12) -> np.ndarray:
        """A filled outline `[n, 2]`, float32 0..1, its edge softened by that many cm."""
        canvas = np.zeros((self.height, self.width), np.uint8)
        cv2.fillPoly(canvas, [self._round_pixels(outline)], 255, cv2.LINE_AA, _SHIFT)
        return self.blur(canvas.astype(np.float32) * np.float32(1 / 255), soften)

    def lines(self, groups: Sequence[tuple[np.ndarray, float, float]], soften: float = 0.1) -> np.ndarray:
        """Groups of (paths `[lines, points, 2]`, width in cm, value 0..1), float32; a later one covers an earlier."""
        canvas = np.zeros((self.height, self.width), np.uint8)
        for paths, width, value in groups:
            thickness = max(1, round(width * self.scale))
            drawn = list(self._round_pixels(paths))
            cv2.polylines(canvas, drawn, False, round(value * 255), thickness, cv2.LINE_8, _SHIFT)
        return self.blur(canvas.astype(np.float32) * np.float32(1 / 255), soften)

    def blur(self, picture: np.ndarray, sigma: float) -> np.ndarray:
        """Gaussian blur by `sigma` cm; a wide one on a coarser grid, which is as good and much faster."""
        pixels = sigma * self.scale
        if pixels < 0.3:
            return picture
        if pixels < 3:
            return cv2.GaussianBlur(picture, (0, 0), pixels, borderType=cv2.BORDER_REPLICATE)
        factor = min(8, int(pixels / 1.5))
        small = cv2.resize(picture, (-(-self.width // factor), -(-self.height // factor)), interpolation=cv2.INTER_AREA)
        small = cv2.GaussianBlur(small, (0, 0), pixels / factor, borderType=cv2.BORDER_REPLICATE)
        return cv2.resize(small, (self.width, self.height), interpolation=cv2.INTER_LINEAR)

    def clouds(self, rng: np.random.Generator, grain: float) -> np.ndarray:
        """Smooth noise of mean 0 and deviation near 1, its lumps `grain` and half of `grain` cm wide, float32."""
        total = np.zeros((self.height, self.width), np.float32)
        for size, weight in ((grain, 1.1), (grain / 2, 0.55)):
            cells = (int(self.height / self.scale / size) + 3, int(self.width / self.scale / size) + 3)
            coarse = weight * rng.standard_normal(cells, dtype=np.float32)
            total += cv2.resize(coarse, (self.width, self.height), interpolation=cv2.INTER_CUBIC)
        return self.blur(total, grain / 6)

    def _round_pixels(self, points: np.ndarray) -> np.ndarray:
        """Points `[..., 2]` in cm as fixed-point pixels, int32."""
        cos, sin = math.cos(self.angle), math.sin(self.angle)
        turned = points @ np.array([[cos, sin], [-sin, cos]])
        placed = (turned * self.scale + np.array(self.origin)) * (1 << _SHIFT)
        return np.clip(np.rint(placed), -(1 << 20), 1 << 20).astype(np.int32)


def smooth(anchors: np.ndarray, *, closed: bool = False, steps: int = 6) -> np.ndarray:
    """Catmull-Rom curves through anchors `[..., n, 2]`; `steps` points from one anchor to the next."""
    first, last = anchors[..., :1, :], anchors[..., -1:, :]
    ends = (last, anchors[..., :2, :]) if closed else (first, last)
    padded = np.concatenate([ends[0], anchors, ends[1]], axis=-2)
    before, start, end, after = (padded[..., k : padded.shape[-2] - 3 + k, None, :] for k in range(4))
    t = np.linspace(0, 1, steps, endpoint=False)[:, None]
    curve = 0.5 * (
        2 * start
        + (end - before) * t
        + (2 * before - 5 * start + 4 * end - after) * t**2
        + (3 * start - before - 3 * end + after) * t**3
    )
    curve = curve.reshape(*anchors.shape[:-2], -1, 2)
    return curve if closed else np.concatenate([curve, last], axis=-2)
