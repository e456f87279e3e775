"""Small pictures whose every pixel, row, column and color differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def distinct(number: int, height: int, width: int) -> np.ndarray:
    """Pixels uint8 `[height, width, 3]`: red tells the row, green the column, blue the image."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[..., 0] = np.arange(height)[:, None] + 100
    picture[..., 1] = np.arange(width)[None, :]
    picture[..., 2] = 200 + number
    return picture


def planes(picture: np.ndarray) -> bytes:
    """Red, green and blue plane, each row by row."""
    return b"".join(picture[..., channel].tobytes() for channel in range(3))


def save_jpeg(path: Path, picture: np.ndarray, **options: object) -> None:
    """Write a JPEG file of hardly any loss, with its folders."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path, "JPEG", quality=100, subsampling=0, **options)


def quarters(height: int = 32, width: int = 48) -> np.ndarray:
    """Red, green, blue and white quarters, clockwise from the top left: survives JPEG."""
    picture = np.zeros((height, width, 3), np.uint8)
    picture[: height // 2, : width // 2, 0] = 255
    picture[: height // 2, width // 2 :, 1] = 255
    picture[height // 2 :, width // 2 :, 2] = 255
    picture[height // 2 :, : width // 2] = 255
    return picture
