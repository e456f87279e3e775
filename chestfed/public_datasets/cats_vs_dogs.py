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
from chestfed.public_datasets.collection import Collection, FilePixels, Part, Progress
from chestfed.public_datasets.files import image_names, missing

CLASS_NAMES: Final = ("cat", "dog")
_KAGGLE_NAME: Final = re.compile(r"(cat|dog)\.[0-9]+\.jpe?g", re.IGNORECASE)
_TOLD_EVERY: Final = 500


def read(root: Path, progress: Progress) -> Collection:
    """Some 25 000 color photographs of many sizes: cat 0, dog 1. There is no labeled test part."""
    (cats, dogs), unreadable = _list(root)
    files, kept = [*cats, *dogs], []
    for row, file in enumerate(files):
        defect = _defect(root / file)
        if defect:
            unreadable.append(Problem("damaged image", file, defect))
        else:
            kept.append(row)
        if (row + 1) % _TOLD_EVERY == 0 or row + 1 == len(files):
            progress(row + 1, len(files))
    classes = np.repeat(np.arange(2), [len(cats), len(dogs)])[kept]
    train = Part(FilePixels(root, [files[row] for row in kept]), classes)
    return Collection("cats_vs_dogs", CLASS_NAMES, train, None, tuple(unreadable))


def _list(root: Path) -> tuple[list[list[str]], list[Problem]]:
    """Files of each class relative to the root, and images whose name does not tell their class."""
    for prefix in ("PetImages/", ""):
        if (root / f"{prefix}Cat").is_dir() or (root / f"{prefix}Dog").is_dir():
            return [_microsoft(root, f"{prefix}{name}") for name in ("Cat", "Dog")], []
    for prefix in ("train/", ""):
        names = image_names(root / prefix) if (root / prefix).is_dir() else []
        kinds = {name: match[1].lower() for name in names if (match := _KAGGLE_NAME.fullmatch(name))}
        if kinds:
            found = [[prefix + name for name, kind in kinds.items() if kind == wanted] for wanted in CLASS_NAMES]
            for wanted, files in zip(CLASS_NAMES, found, strict=True):
                if not files:
                    raise missing(root / f"{prefix}{wanted}.0.jpg")
            told = "the name begins with neither cat nor dog"
            unknown = [Problem("image without a class", prefix + name, told) for name in names if name not in kinds]
            return found, unknown
    raise missing(root / "PetImages" / "Cat")


def _microsoft(root: Path, folder: str) -> list[str]:
    if not (root / folder).is_dir():
        raise missing(root / folder)
    found = [f"{folder}/{image}" for image in image_names(root / folder)]
    if not found:
        raise ConfigError(f"{root / folder}: no .jpg files")
    return found


def _defect(path: Path) -> str:
    """What is wrong with the first bytes of an image file; empty if nothing is."""
    if not path.is_file():
        return "not a file"
    with path.open("rb") as file:
        head = file.read(3)
    if not head:
        return "the file is empty (0 bytes)"
    return "" if head == b"\xff\xd8\xff" else "not a JPEG file"
