"""Images of a collection: in memory, or decoded from their files at each read."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from chestfed.core.errors import ImageError, is_environment_error
from chestfed.data.images.decoding.compressed import PNG, check_png


class Pixels(Protocol):
    """Images that are read one by one."""

    def __len__(self) -> int:
        """The number of images."""

    def read(self, row: int) -> np.ndarray:
        """Pixels uint8 of one image as stored: gray `[height, width]` or color `[height, width, 3]` (red first).

        Raises `ImageError` if the file cannot be decoded.
        """

    def digest(self, row: int) -> bytes:
        """16 bytes that identify the image: of shape and pixels; of an image in a file, of path, length and time."""


@dataclass(frozen=True, eq=False)
class ArrayPixels:
    """Images that are in memory: uint8 `[n, height, width]` or `[n, height, width, 3]`, of any strides."""

    images: np.ndarray

    def __post_init__(self) -> None:
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
            text = f"expected uint8 [n, height, width] or [n, height, width, 3], found {self.images.dtype} {shape}"
            raise ValueError(text)

    def __len__(self) -> int:
        return len(self.images)

    def read(self, row: int) -> np.ndarray:
        """A copy of one image, contiguous."""
        return np.array(self.images[row], order="C")

    def digest(self, row: int) -> bytes:
        """Digest shape and pixels: the same bytes are another image in another shape."""
        pixels = self.read(row)
        return hashlib.blake2b(f"{pixels.shape}".encode() + pixels.tobytes(), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class FilePixels:
    """JPEG or PNG files, decoded as RGB; EXIF orientation is ignored, as by torchvision."""

    root: Path  #: the folder of the collection
    files: Sequence[str]  #: paths relative to it; strings, because there may be more than a million

    def __len__(self) -> int:
        return len(self.files)

    def read(self, row: int) -> np.ndarray:
        """Pixels uint8 `[height, width, 3]`, red first.

        Raises `ImageError` if the file is missing, damaged, too large for Pillow, or neither JPEG nor PNG; the message
        names it. Raises `OSError` or `MemoryError` if the file cannot be read, which does not depend on its content.
        """
        file = self.files[row]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # damaged EXIF data; large images
                stored = (self.root / file).read_bytes()
                if stored.startswith(PNG):
                    check_png(stored)
                with Image.open(BytesIO(stored), formats=("JPEG", "PNG")) as image:
                    return np.array(image.convert("RGB"))
        except ImageError as error:
            raise ImageError(f"{file}: {error}", kind="unreadable image", file=file) from None
        except FileNotFoundError:
            raise ImageError(f"{file}: no such file", kind="unreadable image", file=file) from None
        except Exception as error:  # Pillow raises many kinds on damaged files
            if is_environment_error(error) and not isinstance(error, IsADirectoryError):
                raise
            raise ImageError(
                f"{file}: damaged, cut off or not an image ({type(error).__name__}): unpack it again",
                kind="unreadable image",
                file=file,
            ) from None

    def digest(self, row: int) -> bytes:
        """Digest relative path, length and time of a file: reading a million photographs first would take hours."""
        file, stamp = self.files[row], ""
        with suppress(OSError):  # reading it raises the error
            status = (self.root / file).stat()
            stamp = f"{status.st_size}:{status.st_mtime_ns}"
        return hashlib.blake2b(f"{file}:{stamp}".encode(), digest_size=16).digest()
