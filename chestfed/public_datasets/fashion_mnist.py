"""FashionMNIST: four IDX files, compressed or not.

The files have the names of MNIST's, and nothing in them tells the two apart: keep them in folders of their own.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import Collection, Part, Progress
from chestfed.public_datasets.files import check_classes, folder_with, missing
from chestfed.public_datasets.pixels import ArrayPixels

SOURCE: Final = (
    "get train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    "t10k-labels-idx1-ubyte.gz from https://github.com/zalandoresearch/fashion-mnist; they may stay compressed"
)
CLASS_NAMES: Final = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_FOLDERS: Final = (".", "raw", "FashionMNIST/raw")
_PARTS: Final = ("train", "t10k")


def read(root: Path, progress: Progress | None = None) -> Collection:
    """60 000 training and 10 000 test gray images of 28 x 28 in ten classes."""
    stems = [f"{part}-{kind}-ubyte" for part in _PARTS for kind in ("images-idx3", "labels-idx1")]
    folder = folder_with(root, _FOLDERS, [f"{stem}{ending}" for stem in stems for ending in ("", ".gz")])
    if folder is None:
        raise missing(root / "train-images-idx3-ubyte.gz", SOURCE)
    parts = []
    for done, part in enumerate(_PARTS, start=1):
        parts.append(_part(folder, part))
        if progress is not None:
            progress(done, len(_PARTS))
    return Collection("fashion_mnist", CLASS_NAMES, train=parts[0], test=parts[1])


def _part(folder: Path, part: str) -> Part:
    _, images = _read_idx(folder, f"{part}-images-idx3-ubyte", dimensions=3)
    labels_file, labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", dimensions=1)
    if len(images) != len(labels):
        raise ConfigError(f"{labels_file}: {len(labels)} labels for {len(images)} images; {SOURCE}")
    return Part(ArrayPixels(images), check_classes(labels_file, labels, 0, len(CLASS_NAMES)))


def _read_idx(folder: Path, stem: str, dimensions: int) -> tuple[Path, np.ndarray]:
    """The file and its bytes in the shape of its header: 0, 0, 8 (bytes), dimensions, then their big-endian sizes."""
    path = folder / stem
    if path.is_file():
        data = path.read_bytes()
    else:
        path = folder / f"{stem}.gz"
        if not path.is_file():
            raise missing(path, SOURCE)
        try:
            data = gzip.decompress(path.read_bytes())
        except (OSError, EOFError, zlib.error):
            raise ConfigError(f"{path}: damaged or cut off, cannot be decompressed; {SOURCE}") from None
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)) or len(data) < start:
        raise ConfigError(f"{path}: not an IDX file of bytes in {dimensions} dimension(s); {SOURCE}")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, offset=4))
    if math.prod(shape) != len(data) - start or 0 in shape:
        found = f"{len(data) - start} bytes follow a header that announces {' x '.join(map(str, shape))}"
        raise ConfigError(f"{path}: {found}: the file is cut off or damaged; {SOURCE}")
    return path, np.frombuffer(data, np.uint8, offset=start).reshape(shape)
