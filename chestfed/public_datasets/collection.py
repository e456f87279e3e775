"""What a reader of a collection returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from chestfed.core.errors import Problem

#: `progress(done, total)`: told on the way through many files.
Progress = Callable[[int, int], None]


class Pixels(Protocol):
    """Images that are read one by one."""

    def __len__(self) -> int:
        """How many there are."""

    def read(self, row: int) -> np.ndarray:
        """Pixels uint8 of one image as stored: gray `[height, width]` or color `[height, width, 3]` (red first).

        Raises
        ------
        ImageError
            If the file cannot be decoded.
        """

    def digest(self, row: int) -> bytes:
        """16 bytes that tell this image from others: of its pixels; of an image in a file, of its path and length."""


@dataclass(frozen=True)
class Part:
    """Images with their classes, in the order of the files.

    Attributes
    ----------
    pixels
        The images.
    classes
        int64 `[n]`, the number of each image's class.
    patients
        Strings `[n]` that tell patients apart, where the collection has patients.
    """

    pixels: Pixels
    classes: np.ndarray
    patients: np.ndarray | None = None


@dataclass(frozen=True)
class Collection:
    """A collection as distributed: `test` is None if it has no labeled test part of its own.

    `unreadable` are images that were left out because their files are known or found to be damaged.
    """

    name: str
    class_names: tuple[str, ...]
    train: Part
    test: Part | None
    unreadable: tuple[Problem, ...] = ()
