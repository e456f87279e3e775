"""From decoded gray levels to the square that the network sees."""

from __future__ import annotations

import hashlib
import math
from typing import Final, Literal

import numpy as np
from pydantic import Field

from chestfed.core.config import StrictModel
from chestfed.data.images.levels import Levels

#: Raised whenever decoding or resizing changes pixels, or the content of a cache changes: caches of an older version
#: are not read.
PREPROCESS_VERSION = 10
#: A JPEG or JPEG 2000 is decoded at the smallest size whose sides are so many times the square's.
_REDUCED: Final = 1.75


class Preprocess(StrictModel):
    """How an image becomes a square; with the version this determines the content of a cache."""

    size: int = Field(320, ge=32, le=2048, description="side of the square, in pixels")
    fit: Literal["stretch", "pad"] = Field(
        "stretch",
        description="stretch to the square (the source papers), or keep the aspect and pad with black",
    )

    levels: Levels = Field(
        "window",
        description="how stored values become gray: as a viewer shows them (DICOM by its window, others as they are), "
        "the whole range that is stored, or the 0.5 to 99.5 percentiles of each picture",
    )

    def digest(self) -> str:
        """12 hexadecimal digits of everything that determines the pixels."""
        text = f"{PREPROCESS_VERSION}:{self.model_dump_json()}"
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @property
    def least(self) -> int:
        """Sides of a decoded picture that are enough for the square."""
        return math.ceil(_REDUCED * self.size)

    def apply(self, gray: np.ndarray, extent: tuple[float, float] | None = None) -> np.ndarray:
        """Resize uint8 `[height, width]` or `[height, width, 3]` to the square, by area or (growing) bilinear.

        `extent` is the picture's height and width, if its last row and column lie partly outside of it.
        """
        import cv2

        height, width = extent or gray.shape[:2]
        if self.fit == "stretch":
            new_height = new_width = self.size
        else:
            scale = self.size / max(height, width)
            new_height, new_width = max(1, round(height * scale)), max(1, round(width * scale))
        shrinking = new_height * new_width < height * width
        interpolation = cv2.INTER_AREA if shrinking else cv2.INTER_LINEAR
        scales = {"fx": new_width / width, "fy": new_height / height}
        resized = cv2.resize(np.ascontiguousarray(gray), None, **scales, interpolation=interpolation)
        if resized.shape[:2] == (self.size, self.size):
            return resized
        square = np.zeros((self.size, self.size, *gray.shape[2:]), np.uint8)
        top, left = (self.size - new_height) // 2, (self.size - new_width) // 2
        square[top : top + new_height, left : left + new_width] = resized
        return square
