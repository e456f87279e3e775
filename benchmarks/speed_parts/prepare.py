"""From a file to the square in the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from benchmarks.speed_parts.pairs import paired
from chestfed.images.cache import pixels
from chestfed.images.levels import Stored
from chestfed.images.preprocess import Preprocess


def film(height: int, width: int, bits: int) -> np.ndarray:
    """A picture as smooth and as noisy as a film, uint8 or uint16."""
    rng = np.random.default_rng(0)
    smooth = cv2.resize(rng.random((12, 10), np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    values = (smooth + rng.normal(0, 0.012, (height, width))).clip(0, 1) * ((1 << bits) - 1)
    return values.astype(np.uint8 if bits == 8 else np.uint16)


def measure() -> dict[str, Any]:
    """A JPEG of CheXpert's size, NIH's 8-bit PNG and PadChest's 16-bit PNG, beside OpenCV as LibAUC uses it."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = (("a.jpg", 2828, 2320, 8), ("a.png", 1024, 1024, 8), ("b.png", 3000, 2500, 16))
        for name, height, width, bits in cases:
            path = Path(folder) / name
            Image.fromarray(film(height, width, bits)).save(path, quality=90)
            found[f"{width}x{height}, {bits} bits, {path.suffix[1:]}"] = paired(_ways(path), unit="image")
    return found


def _ways(path: Path) -> dict[str, Callable[[], object]]:
    work = pixels(Preprocess()).work
    return {
        "chestfed: decode, digest, area": lambda: work(path, Stored(bits=16)),
        "Pillow's decoding alone": lambda: np.asarray(Image.open(path)),
        "OpenCV, bilinear": lambda: cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), (320, 320)),
    }
