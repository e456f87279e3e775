"""STL-10, the binary version. An image is 3 x 96 x 96 bytes: red, green, blue, each column by column."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import Collection, Part, Progress
from chestfed.public_datasets.files import check_classes, folder_with, missing, read_lines, read_records
from chestfed.public_datasets.pixels import ArrayPixels

SOURCE: Final = (
    "get stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10/ and unpack it (folder stl10_binary; "
    "unlabeled_X.bin is not needed)"
)
_SIDE: Final = 96
_CLASSES: Final = 10


def read(root: Path, progress: Progress | None = None) -> Collection:
    """5 000 training and 8 000 test color images of 96 x 96 in ten classes, stored as 1 to 10."""
    folder = folder_with(root, ("stl10_binary", "."), ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin"))
    if folder is None:
        raise missing(root / "stl10_binary" / "train_X.bin", SOURCE)
    names = read_lines(folder / "class_names.txt", SOURCE)
    if len(names) != _CLASSES:
        raise ConfigError(f"{folder / 'class_names.txt'}: expected the names of {_CLASSES} classes; {SOURCE}")
    parts = []
    for done, part in enumerate(("train", "test"), start=1):
        parts.append(_part(folder, part))
        if progress is not None:
            progress(done, 2)
    return Collection("stl10", tuple(names), train=parts[0], test=parts[1])


def _part(folder: Path, part: str) -> Part:
    images_file, labels_file = folder / f"{part}_X.bin", folder / f"{part}_y.bin"
    records = read_records(images_file, 3 * _SIDE * _SIDE, SOURCE)
    labels = read_records(labels_file, 1, SOURCE)[:, 0]
    if len(labels) != len(records):
        raise ConfigError(f"{labels_file}: {len(labels)} labels for {len(records)} images; {SOURCE}")
    classes: np.ndarray = check_classes(labels_file, labels, 1, _CLASSES)
    # stored [channel, column, row]; a view, so that 200 MB are not held twice
    return Part(ArrayPixels(records.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 3, 2, 1)), classes)
