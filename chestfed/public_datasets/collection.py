"""What a reader of a collection returns: images in memory or decoded from their files at each read, and classes."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, ImageOps

from chestfed.core.errors import ImageError, Problem, of_the_machine
from chestfed.images.compressed import PNG, check_png

#: Larger images are refused unread; the largest of the collections have some 25 million pixels.
MAX_PIXELS = 100_000_000

#: `progress(done, total)`: told on the way through many files.
Progress = Callable[[int, int], None]


class Pixels(Protocol):
    """Images that are read one by one."""

    def __len__(self) -> int:
        """How many there are."""

    def read(self, row: int) -> np.ndarray:
        """Pixels uint8 of one image as stored: gray `[height, width]` or color `[height, width, 3]` (red first).

        Raises `ImageError` if the file cannot be decoded.
        """

    def digest(self, row: int) -> bytes:
        """16 bytes that tell this image from others: of its pixels; of an image in a file, of its path and length."""


@dataclass(frozen=True)
class Part:
    """Images with their classes, in the order of the files."""

    pixels: Pixels
    classes: np.ndarray  #: int64 `[n]`
    patients: np.ndarray | None = None  #: strings `[n]` that tell patients apart, where the collection has patients


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


@dataclass(frozen=True, eq=False)
class ArrayPixels:
    """Images that are in memory: uint8 `[n, height, width]` or `[n, height, width, 3]`, of any strides."""

    images: np.ndarray

    def __post_init__(self) -> None:
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
            raise ValueError(f"expected uint8 [n, height, width] or [n, height, width, 3], found {shape}")

    def __len__(self) -> int:
        return len(self.images)

    def read(self, row: int) -> np.ndarray:
        """A copy of one image, contiguous."""
        return np.array(self.images[row], order="C")

    def digest(self, row: int) -> bytes:
        """Of the pixels."""
        return hashlib.blake2b(self.read(row).tobytes(), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class FilePixels:
    """JPEG or PNG files, decoded as RGB and turned as their EXIF data says."""

    root: Path  #: the folder of the collection
    files: Sequence[str]  #: paths relative to it; strings, because there may be more than a million

    def __len__(self) -> int:
        return len(self.files)

    def read(self, row: int) -> np.ndarray:
        """Pixels uint8 `[height, width, 3]`, red first.

        Raises `ImageError` if the file is missing, damaged, cut off, too large, or neither JPEG nor PNG; the message
        names it. Raises `OSError` or `MemoryError` if the file cannot be read, which says nothing about its
        content.
        """
        file = self.files[row]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # damaged EXIF data; very large images, which are refused below
                stored = (self.root / file).read_bytes()
                if stored.startswith(PNG):
                    check_png(stored)
                with Image.open(BytesIO(stored), formats=("JPEG", "PNG")) as image:
                    if image.width * image.height > MAX_PIXELS:
                        raise ImageError(f"{image.width}x{image.height} pixels: more than {MAX_PIXELS:,}")
                    image.load()
                    return np.array(_upright(image).convert("RGB"))
        except ImageError as error:
            raise ImageError(f"{file}: {error}") from None
        except FileNotFoundError:
            raise ImageError(f"{file}: no such file") from None
        except Exception as error:  # Pillow raises many kinds on damaged files
            if of_the_machine(error) and not isinstance(error, IsADirectoryError):
                raise
            raise ImageError(
                f"{file}: damaged, cut off or not an image ({type(error).__name__}): unpack it again"
            ) from None

    def digest(self, row: int) -> bytes:
        """Of the path below the root and the file's length: decoding a million photographs first would take hours."""
        file, length = self.files[row], -1
        with suppress(OSError):  # reading it will say what is wrong
            length = (self.root / file).stat().st_size
        return hashlib.blake2b(f"{file}:{length}".encode(), digest_size=16).digest()


def _upright(image: Any) -> Any:
    """The image turned by its EXIF orientation; EXIF data that cannot be read says nothing."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the pixels are loaded already: only the EXIF data can fail
        return image
