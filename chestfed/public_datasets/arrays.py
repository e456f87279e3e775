"""Collections that are read into memory whole: STL-10, FashionMNIST, and scikit-learn's digits."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import ArrayPixels, Collection, Part, Progress
from chestfed.public_datasets.files import check_classes, folder_with, missing, read_lines, read_records

FASHION: Final = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"
)  # fmt: skip


def read_stl10(root: Path, progress: Progress) -> Collection:
    """5 000 training and 8 000 test color images of 96 x 96 in ten classes, stored as 1 to 10.

    The binary version: an image is 3 x 96 x 96 bytes: red, green, blue, each column by column.
    """
    folder = folder_with(root, ("stl10_binary", "."), ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"))
    if folder is None:
        raise missing(root / "stl10_binary" / "train_X.bin")
    names = read_lines(folder / "class_names.txt", 10)

    def part_of(part: str) -> Part:
        labels_file = folder / f"{part}_y.bin"
        images = read_records(folder / f"{part}_X.bin", 3 * 96 * 96).reshape(-1, 3, 96, 96)
        classes = _classes(labels_file, read_records(labels_file, 1)[:, 0], len(images), 1)
        # stored [channel, column, row]; a view, so that 200 MB are not held twice
        return Part(ArrayPixels(images.transpose(0, 3, 2, 1)), classes)

    return _both("stl10", names, ("train", "test"), part_of, progress)


def read_fashion_mnist(root: Path, progress: Progress) -> Collection:
    """60 000 training and 10 000 test gray images of 28 x 28 in ten classes: four IDX files, compressed or not.

    The files have the names of MNIST's, and nothing in them tells the two apart: keep them in folders of their own.
    """
    parts = ("train", "t10k")
    stems = [f"{part}-{kind}-ubyte" for part in parts for kind in ("images-idx3", "labels-idx1")]
    files = [f"{stem}{ending}" for stem in stems for ending in ("", ".gz")]
    folder = folder_with(root, (".", "raw", "FashionMNIST/raw"), files)
    if folder is None:
        raise missing(root / "train-images-idx3-ubyte.gz")

    def part_of(part: str) -> Part:
        _, images = _read_idx(folder, f"{part}-images-idx3-ubyte", dimensions=3)
        labels_file, labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", dimensions=1)
        return Part(ArrayPixels(images), _classes(labels_file, labels, len(images), 0))

    return _both("fashion_mnist", FASHION, parts, part_of, progress)


def read_digits(root: Path, progress: Progress) -> Collection:
    """1 797 gray images of 8 x 8 in ten classes, which come with scikit-learn; the values 0 to 16 become 0 to 255."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return Collection("digits", tuple("0123456789"), Part(ArrayPixels(images), digits.target.astype(np.int64)), None)


def _both(
    name: str, classes: tuple[str, ...], parts: tuple[str, str], part_of: Callable[[str], Part], progress: Progress
) -> Collection:
    """The collection of a training and a test part."""
    train = part_of(parts[0])
    progress(1, 2)
    test = part_of(parts[1])
    progress(2, 2)
    return Collection(name, classes, train, test)


def _classes(path: Path, labels: np.ndarray, images: int, first: int) -> np.ndarray:
    if len(labels) != images:
        raise ConfigError(f"{path}: {len(labels)} labels for {images} images")
    return check_classes(path, labels, first, 10)


def _read_idx(folder: Path, stem: str, dimensions: int) -> tuple[Path, np.ndarray]:
    """The file and its bytes in the shape of its header: 0, 0, 8 (bytes), dimensions, then their big-endian sizes."""
    path = folder / stem
    if path.is_file():
        data = path.read_bytes()
    else:
        path = folder / f"{stem}.gz"
        try:
            data = gzip.decompress(path.read_bytes())
        except FileNotFoundError:
            raise missing(path) from None
        except (OSError, EOFError, zlib.error):
            raise ConfigError(f"{path}: damaged or cut off, cannot be decompressed") from None
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)) or len(data) < start:
        raise ConfigError(f"{path}: not an IDX file of bytes in {dimensions} dimension(s)")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", dimensions, offset=4))
    if math.prod(shape) != len(data) - start or 0 in shape:
        found = f"{len(data) - start} bytes follow a header that announces {' x '.join(map(str, shape))}"
        raise ConfigError(f"{path}: {found}: the file is cut off or damaged")
    return path, np.frombuffer(data, np.uint8, offset=start).reshape(shape)
