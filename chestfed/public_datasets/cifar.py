"""CIFAR-10 and CIFAR-100, the binary and the Python version.

A record of the binary version is the label (CIFAR-100: the coarse, then the fine label), then 32 x 32 red, green and
blue bytes, row by row. The Python version has the same rows of 3072 bytes in pickled arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import Collection, Part, Progress
from chestfed.public_datasets.files import check_classes, folder_with, missing, read_lines, read_records, require_file
from chestfed.public_datasets.pixels import ArrayPixels
from chestfed.public_datasets.plain_pickle import load_plain

SOURCE_10: Final = (
    "get cifar-10-binary.tar.gz or cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack "
    "it (folder cifar-10-batches-bin or cifar-10-batches-py)"
)
SOURCE_100: Final = (
    "get cifar-100-binary.tar.gz or cifar-100-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and "
    "unpack it (folder cifar-100-binary or cifar-100-python)"
)


def read_cifar10(root: Path, progress: Progress | None = None) -> Collection:
    """60 000 color images of 32 x 32 in ten classes; the binary version is taken where both are there."""
    return _read(_CIFAR10, root, progress)


def read_cifar100(root: Path, progress: Progress | None = None) -> Collection:
    """60 000 color images of 32 x 32 in a hundred (fine) classes."""
    return _read(_CIFAR100, root, progress)


@dataclass(frozen=True)
class _Files:
    """Names of the files of one version."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str

    def all(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.names)


@dataclass(frozen=True)
class _Edition:
    """One of the two collections. A binary record begins with `label_bytes` labels, of which the last is ours."""

    name: str
    classes: int
    label_bytes: int
    labels_key: str
    names_key: str
    binary: _Files
    python: _Files
    source: str


_CIFAR10: Final = _Edition(
    "cifar10",
    classes=10,
    label_bytes=1,
    labels_key="labels",
    names_key="label_names",
    binary=_Files(
        "cifar-10-batches-bin",
        tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        "test_batch.bin",
        "batches.meta.txt",
    ),
    python=_Files(
        "cifar-10-batches-py",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
        "batches.meta",
    ),
    source=SOURCE_10,
)
_CIFAR100: Final = _Edition(
    "cifar100",
    classes=100,
    label_bytes=2,
    labels_key="fine_labels",
    names_key="fine_label_names",
    binary=_Files("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt"),
    python=_Files("cifar-100-python", ("train",), "test", "meta"),
    source=SOURCE_100,
)


def _read(edition: _Edition, root: Path, progress: Progress | None) -> Collection:
    for files, is_binary in ((edition.binary, True), (edition.python, False)):
        folder = folder_with(root, (files.folder, "."), files.all())
        if folder is None:
            continue
        names = _names(edition, folder / files.names, is_binary)
        batches = []
        for done, file in enumerate((*files.train, files.test), start=1):
            read = _binary_batch if is_binary else _python_batch
            batches.append(read(edition, folder / file))
            if progress is not None:
                progress(done, len(files.train) + 1)
        return Collection(edition.name, names, _part(batches[:-1]), _part(batches[-1:]))
    raise missing(root / edition.binary.folder / edition.binary.train[0], edition.source)


def _names(edition: _Edition, path: Path, is_binary: bool) -> tuple[str, ...]:
    if is_binary:
        names: Any = read_lines(path, edition.source)
    else:
        names = load_plain(require_file(path, edition.source)).get(edition.names_key)
    if not isinstance(names, list) or len(names) != edition.classes or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: expected the names of {edition.classes} classes; {edition.source}")
    return tuple(names)


def _binary_batch(edition: _Edition, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows uint8 `[n, 3072]` and classes int64 `[n]`."""
    records = read_records(path, edition.label_bytes + 3072, edition.source)
    labels = records[:, edition.label_bytes - 1]
    return records[:, edition.label_bytes :], check_classes(path, labels, 0, edition.classes)


def _python_batch(edition: _Edition, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows uint8 `[n, 3072]` and classes int64 `[n]`."""
    content = load_plain(require_file(path, edition.source))
    rows, labels = content.get("data"), content.get(edition.labels_key)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != 3072:
        raise ConfigError(f"{path}: 'data' is not an array of bytes [n, 3072]; {edition.source}")
    if not isinstance(labels, list) or len(labels) != len(rows) or not all(map(_is_small, labels)):
        raise ConfigError(f"{path}: '{edition.labels_key}' is not a list of {len(rows)} numbers; {edition.source}")
    return rows, check_classes(path, np.array(labels, np.int64), 0, edition.classes)


def _is_small(label: Any) -> bool:
    return type(label) is int and abs(label) < 2**31


def _part(batches: list[tuple[np.ndarray, np.ndarray]]) -> Part:
    rows = np.concatenate([rows for rows, _ in batches])
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Part(ArrayPixels(images), np.concatenate([classes for _, classes in batches]))
