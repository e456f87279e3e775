"""The handwritten digits that come with scikit-learn: small and always at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from chestfed.public_datasets.collection import Collection, Part, Progress
from chestfed.public_datasets.pixels import ArrayPixels

SOURCE: Final = "comes with scikit-learn; no folder is needed"


def read(root: Path | None = None, progress: Progress | None = None) -> Collection:
    """1 797 gray images of 8 x 8 in ten classes; the stored values 0 to 16 become 0 to 255."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    train = Part(ArrayPixels(images), digits.target.astype(np.int64))
    return Collection("digits", tuple(str(digit) for digit in range(10)), train, None)
