"""Cats vs. Dogs: `PetImages/Cat/0.jpg` as Microsoft distributes it, or `train/cat.0.jpg` as Kaggle does.

Cats come first, then dogs, each in the order of their numbers, in both layouts. Microsoft's archive is known to have
empty files (`Cat/666.jpg`, `Dog/11702.jpg`), and beside them `Thumbs.db`, which is not an image.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError, Problem
from chestfed.public_datasets.collection import Collection, Part, Progress
from chestfed.public_datasets.files import image_names, missing
from chestfed.public_datasets.pixels import FilePixels

SOURCE: Final = (
    'get kagglecatsanddogs_5340.zip ("Kaggle Cats and Dogs Dataset" at https://www.microsoft.com/download, '
    "id 54765) and unpack it (folders PetImages/Cat and PetImages/Dog), or train.zip of Kaggle's competition "
    "dogs-vs-cats (files train/cat.0.jpg and so on)"
)
CLASS_NAMES: Final = ("cat", "dog")
_KAGGLE_NAME: Final = re.compile(r"(cat|dog)\.[0-9]+\.jpe?g", re.IGNORECASE)
_TOLD_EVERY: Final = 500


def read(root: Path, progress: Progress | None = None) -> Collection:
    """Some 25 000 color photographs of many sizes: cat 0, dog 1. There is no labeled test part."""
    files, classes, unreadable = _list(root)
    kept = []
    for row, file in enumerate(files):
        defect = _defect(root / file)
        if defect:
            unreadable.append(Problem("damaged image", file, defect))
        else:
            kept.append(row)
        if progress is not None and ((row + 1) % _TOLD_EVERY == 0 or row + 1 == len(files)):
            progress(row + 1, len(files))
    train = Part(FilePixels(root, [files[row] for row in kept]), np.array(classes, np.int64)[kept])
    return Collection("cats_vs_dogs", CLASS_NAMES, train, None, tuple(unreadable))


def _list(root: Path) -> tuple[list[str], list[int], list[Problem]]:
    """Files relative to the root with their classes, and images whose name does not tell their class."""
    for folder in ("PetImages", "."):
        if (root / folder / "Cat").is_dir() or (root / folder / "Dog").is_dir():
            prefix = "" if folder == "." else f"{folder}/"
            return _microsoft(root, prefix)
    for folder in ("train", "."):
        if (root / folder).is_dir():
            prefix = "" if folder == "." else f"{folder}/"
            names = image_names(root / folder)
            if any(_KAGGLE_NAME.fullmatch(name) for name in names):
                return _kaggle(prefix, names)
    raise missing(root / "PetImages" / "Cat", SOURCE)


def _microsoft(root: Path, prefix: str) -> tuple[list[str], list[int], list[Problem]]:
    files, classes = [], []
    for number, name in enumerate(("Cat", "Dog")):
        folder = root / f"{prefix}{name}"
        if not folder.is_dir():
            raise missing(folder, SOURCE)
        found = [f"{prefix}{name}/{image}" for image in image_names(folder)]
        if not found:
            raise ConfigError(f"{folder}: no .jpg files; {SOURCE}")
        files += found
        classes += [number] * len(found)
    return files, classes, []


def _kaggle(prefix: str, names: list[str]) -> tuple[list[str], list[int], list[Problem]]:
    files, classes, unknown = [], [], []
    for number, start in enumerate(CLASS_NAMES):
        found = [name for name in names if _KAGGLE_NAME.fullmatch(name) and name.lower().startswith(start)]
        if not found:
            raise missing(Path(f"{prefix}{start}.0.jpg"), SOURCE)
        files += [prefix + name for name in found]
        classes += [number] * len(found)
    for name in names:
        if not _KAGGLE_NAME.fullmatch(name):
            unknown.append(Problem("image without a class", prefix + name, "the name begins with neither cat nor dog"))
    return files, classes, unknown


def _defect(path: Path) -> str:
    """What is wrong with the first bytes of an image file; empty if nothing is."""
    try:
        with path.open("rb") as file:
            head = file.read(3)
    except OSError as error:
        return f"the file cannot be read ({type(error).__name__})"
    if not head:
        return "the file is empty (0 bytes)"
    return "" if head == b"\xff\xd8\xff" else "not a JPEG file"
