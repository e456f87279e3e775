"""ImageNet of ILSVRC2012: `train/n01440764/*.JPEG`; `val` in the same folders, or flat with the labels of the devkit.

Classes are numbered in the order of their WordNet ids. That is not the order of the devkit's own numbers (its
ILSVRC2012_ID), which its `meta.mat` translates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import Collection, FilePixels, Part, Progress
from chestfed.public_datasets.files import image_names, missing, read_lines, require_file

_DEVKIT: Final = "ILSVRC2012_devkit_t12/data"
_CLASS: Final = re.compile(r"n[0-9]{8}")
_VALIDATION_NAME: Final = re.compile(r"ILSVRC2012_val_([0-9]{8})\.JPEG", re.IGNORECASE)


def read(root: Path, progress: Progress) -> Collection:
    """1.28 million training images in 1 000 classes; the 50 000 of `val` are the test part.

    `progress` counts class folders.
    """
    train = _class_folders(root, "train")
    if not train:
        raise missing(root / "train" / "n01440764")
    validation = _class_folders(root, "val")
    unknown = sorted(set(validation) - set(train))
    if unknown:
        raise ConfigError(f"{root / 'val' / unknown[0]}: the class has no folder in train/")
    total = len(train) + max(len(validation), 1)
    train_part = _in_folders(root, "train", train, train, lambda done: progress(done, total))
    if validation:
        if image_names(root / "val"):
            raise ConfigError(f"{root / 'val'}: has both class folders and images beside them: keep one of the two")
        test_part = _in_folders(root, "val", validation, train, lambda done: progress(len(train) + done, total))
    else:
        test_part = _flat(root, train)
        progress(total, total)
    return Collection("imagenet", tuple(train), train_part, test_part)


def _class_folders(root: Path, part: str) -> list[str]:
    """Sorted WordNet ids of the folders of one part."""
    if not (root / part).is_dir():
        raise missing(root / part)
    with os.scandir(root / part) as entries:
        return sorted(entry.name for entry in entries if _CLASS.fullmatch(entry.name) and entry.is_dir())


def _in_folders(root: Path, part: str, folders: list[str], classes: list[str], progress: Callable[[int], None]) -> Part:
    files: list[str] = []
    counts = []
    for done, folder in enumerate(folders, start=1):
        names = image_names(root / part / folder)
        if not names:
            raise ConfigError(f"{root / part / folder}: no .JPEG files")
        files += [f"{part}/{folder}/{name}" for name in names]
        counts.append(len(names))
        progress(done)
    numbers = np.array([classes.index(folder) for folder in folders], np.int64)
    return Part(FilePixels(root, files), np.repeat(numbers, counts))


def _flat(root: Path, classes: list[str]) -> Part:
    """Images of `val` by their numbers; line n of the ground truth is the label of image n."""
    names = {}
    for name in image_names(root / "val"):
        match = _VALIDATION_NAME.fullmatch(name)
        if match is None:
            raise ConfigError(f"{root / 'val' / name}: not a name like ILSVRC2012_val_00000001.JPEG")
        names[int(match.group(1))] = name
    if not names:
        raise missing(root / "val" / "ILSVRC2012_val_00000001.JPEG")
    path = root / _DEVKIT / "ILSVRC2012_validation_ground_truth.txt"
    lines = read_lines(path)
    if sorted(names) != list(range(1, len(lines) + 1)):
        absent = sorted(set(range(1, len(lines) + 1)) - set(names))
        example = f", for example number {absent[0]} is not there" if absent else ""
        raise ConfigError(f"{path}: {len(lines)} labels for the {len(names)} images of {root / 'val'}{example}")
    number = {wordnet: index for index, wordnet in enumerate(classes)}
    of_devkit = _wordnet_ids(require_file(root / _DEVKIT / "meta.mat"))
    numbers = []
    for line, text in enumerate(lines, start=1):
        wordnet = of_devkit.get(int(text)) if text.isdecimal() else None
        if wordnet is None:
            raise ConfigError(f"{path}:{line}: label '{text[:20]}' is not an ILSVRC2012_ID of meta.mat")
        if wordnet not in number:
            raise ConfigError(f"{path}:{line}: class {wordnet} has no folder in {root / 'train'}")
        numbers.append(number[wordnet])
    files = [f"val/{names[line]}" for line in range(1, len(lines) + 1)]
    return Part(FilePixels(root, files), np.array(numbers, np.int64))


def _wordnet_ids(path: Path) -> dict[int, str]:
    """WordNet id of each ILSVRC2012_ID: `synsets` of the devkit's `meta.mat`, in which 1 to 1000 have images."""
    from scipy.io import loadmat

    try:
        synsets = np.atleast_1d(loadmat(path, squeeze_me=True, variable_names=["synsets"])["synsets"])
        return {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets}
    except Exception as error:  # SciPy raises many kinds on damaged files
        raise ConfigError(f"{path}: not the devkit's meta.mat ({type(error).__name__})") from None
