"""Files of a collection: found below its root, or a message that says where to get them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chestfed.core.errors import ConfigError


def missing(path: Path) -> ConfigError:
    """The error for a file or folder that is not there; `open_collection` adds where to get it."""
    return ConfigError(f"{path}: no such file or folder")


def require_file(path: Path) -> Path:
    """`path`, which must be a file."""
    if not path.is_file():
        raise missing(path)
    return path


def folder_with(root: Path, folders: Sequence[str], files: Iterable[str]) -> Path | None:
    """The first of `folders` below `root` that has any of `files`; "." is the root itself."""
    wanted = tuple(files)
    return next((root / folder for folder in folders if any((root / folder / file).is_file() for file in wanted)), None)


def read_records(path: Path, size: int) -> np.ndarray:
    """Bytes uint8 `[n, size]` of a file of records; half a record is an error."""
    data = np.fromfile(require_file(path), np.uint8)
    if len(data) == 0 or len(data) % size:
        raise ConfigError(
            f"{path}: {len(data)} bytes is not a whole number of records of {size} bytes: the file is cut off or not "
            f"of this collection"
        )
    return data.reshape(-1, size)


def read_lines(path: Path, classes: int | None = None) -> tuple[str, ...]:
    """The lines of a text file, stripped, without empty ones; the names of so many classes, if it is said."""
    try:
        text = require_file(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file") from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return tuple(lines) if classes is None else check_names(path, lines, classes)


def check_names(path: Path, names: Any, count: int) -> tuple[str, ...]:
    """The names of `count` classes, or an error."""
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: expected the names of {count} classes")
    return tuple(names)


def check_classes(path: Path, classes: np.ndarray, first: int, count: int) -> np.ndarray:
    """int64 `[n]` from 0, of stored class numbers that run from `first`.

    Raises `ConfigError` if a number is outside of `count` classes.
    """
    numbers = classes.astype(np.int64) - first
    bad = np.flatnonzero((numbers < 0) | (numbers >= count))
    if len(bad):
        raise ConfigError(
            f"{path}: label {int(numbers[bad[0]]) + first} of image {int(bad[0]) + 1} is outside of "
            f"{first}..{first + count - 1} ({len(bad)} such labels): the file is damaged or not of this collection"
        )
    return numbers


def image_names(folder: Path) -> list[str]:
    """Names of the JPEG files of one folder, in natural order: `2.jpg` before `10.jpg`.

    Thumbnails and hidden files that a file browser left behind are not images.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    images = [name for name in names if name.lower().endswith((".jpg", ".jpeg")) and not name.startswith(".")]
    return sorted(images, key=_natural)


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Key that orders digits as numbers; the name itself decides between `1` and `01`."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts], name
