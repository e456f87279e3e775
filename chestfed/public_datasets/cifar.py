"""CIFAR-10 and CIFAR-100, the binary and the Python version.

A record of the binary version is the label (CIFAR-100: the coarse, then the fine label), then 32 x 32 red, green and
blue bytes, row by row. The Python version has the same rows of 3072 bytes in pickled arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import ArrayPixels, Collection, Part, Progress
from chestfed.public_datasets.files import (
    check_classes,
    check_names,
    folder_with,
    missing,
    read_lines,
    read_records,
    require_file,
)
from chestfed.public_datasets.plain_pickle import load_plain


def read_cifar10(root: Path, progress: Progress) -> Collection:
    """60 000 color images of 32 x 32 in ten classes; the binary version is taken where both are there."""
    train = tuple(f"data_batch_{number}" for number in range(1, 6))
    binary = tuple(f"{name}.bin" for name in train)
    versions = (
        _Binary("cifar-10-batches-bin", binary, "test_batch.bin", "batches.meta.txt", 10, label_bytes=1),
        _Python("cifar-10-batches-py", train, "test_batch", "batches.meta", 10, prefix=""),
    )
    return _read("cifar10", versions, root, progress)


def read_cifar100(root: Path, progress: Progress) -> Collection:
    """60 000 color images of 32 x 32 in a hundred (fine) classes."""
    versions = (
        _Binary("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", 100, label_bytes=2),
        _Python("cifar-100-python", ("train",), "test", "meta", 100, prefix="fine_"),
    )
    return _read("cifar100", versions, root, progress)


@dataclass(frozen=True)
class _Version:
    """The files of one version and its number of classes."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    classes: int


@dataclass(frozen=True)
class _Binary(_Version):
    """A record begins with `label_bytes` labels, of which the last is ours."""

    label_bytes: int

    def class_names(self, path: Path) -> tuple[str, ...]:
        return read_lines(path, self.classes)

    def batch(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Rows uint8 `[n, 3072]` and classes int64 `[n]`."""
        records = read_records(path, self.label_bytes + 3072)
        labels = records[:, self.label_bytes - 1]
        return records[:, self.label_bytes :], check_classes(path, labels, 0, self.classes)


@dataclass(frozen=True)
class _Python(_Version):
    """`prefix` begins the names of the entries that are ours."""

    prefix: str

    def class_names(self, path: Path) -> tuple[str, ...]:
        return check_names(path, load_plain(require_file(path)).get(f"{self.prefix}label_names"), self.classes)

    def batch(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Rows uint8 `[n, 3072]` and classes int64 `[n]`."""
        content, key = load_plain(require_file(path)), f"{self.prefix}labels"
        rows, labels = content.get("data"), content.get(key)
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != 3072:
            raise ConfigError(f"{path}: 'data' is not an array of bytes [n, 3072]")
        if not isinstance(labels, list) or len(labels) != len(rows) or not all(map(_is_small, labels)):
            raise ConfigError(f"{path}: '{key}' is not a list of {len(rows)} numbers")
        return rows, check_classes(path, np.array(labels, np.int64), 0, self.classes)


def _read(name: str, versions: tuple[_Binary, _Python], root: Path, progress: Progress) -> Collection:
    for files in versions:
        folder = folder_with(root, (files.folder, "."), (*files.train, files.test, files.names))
        if folder is None:
            continue
        names, batches = files.class_names(folder / files.names), []
        for done, file in enumerate((*files.train, files.test), start=1):
            batches.append(files.batch(folder / file))
            progress(done, len(files.train) + 1)
        return Collection(name, names, _part(batches[:-1]), _part(batches[-1:]))
    raise missing(root / versions[0].folder / versions[0].train[0])


def _is_small(label: Any) -> bool:
    return type(label) is int and abs(label) < 2**31


def _part(batches: list[tuple[np.ndarray, np.ndarray]]) -> Part:
    rows, classes = map(np.concatenate, zip(*batches, strict=True))
    return Part(ArrayPixels(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), classes)
