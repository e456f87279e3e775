"""The image files below a folder."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chestfed.core.errors import ConfigError
from chestfed.dicom.file_kinds import DICOM, PICTURE, UNKNOWN, counted, image_ending, kind_of, without_strangers
from chestfed.sites.spreadsheet.image_paths import composed

#: A file of unknown kind counts: it may be a damaged image that must not be ignored.
_IMAGES: Final = (DICOM, PICTURE, UNKNOWN)


@dataclass(frozen=True)
class Pictures:
    """The images below the folder that the user named.

    Attributes
    ----------
    files
        Paths relative to the site's root.
    without_header
        Those of `files` that are PNG or JPEG.
    aside
        What else is in the folder, in words with counts; empty if nothing is.
    by_name, by_stem
        Name of a file (in NFC), with and without its extension -> the files with that name.
    """

    root: Path
    folder: str
    files: tuple[str, ...]
    without_header: frozenset[str] = field(repr=False)
    aside: str
    by_name: Mapping[str, list[str]] = field(repr=False)
    by_stem: Mapping[str, list[str]] = field(repr=False)

    @property
    def endings(self) -> Counter[str]:
        """Extension as it is written, perhaps empty -> number of files."""
        return Counter(image_ending(file.rpartition("/")[2]) for file in self.files)

    @property
    def listed_endings(self) -> str:
        """`40 .png, 2 without extension`."""
        return ", ".join(f"{number:,} {ending or 'without extension'}" for ending, number in self.endings.most_common())

    @property
    def dicoms(self) -> tuple[str, ...]:
        """The files that may have a DICOM header."""
        return tuple(file for file in self.files if file not in self.without_header)


def list_pictures(images: Path, root: Path) -> Pictures:
    """All image files below `images`, which is below `root`. Links to folders are not followed.

    Raises
    ------
    ConfigError
        If there is no image in the folder.
    """
    names = []
    for folder, folders, inside in os.walk(images):
        folders.sort()
        names += [Path(folder, name).relative_to(root).as_posix() for name in sorted(inside)]
    top = images.relative_to(root).as_posix()
    top = "" if top == "." else top
    below = [name.removeprefix(f"{top}/") for name in names]
    kinds = without_strangers(below, [kind_of(images, name) for name in below])
    files = [name for name, kind in zip(names, kinds, strict=True) if kind in _IMAGES]
    if not any(kind in (DICOM, PICTURE) or image_ending(name) for name, kind in zip(below, kinds, strict=True)):
        others = f"; found: {counted(kinds)}" if kinds else ""
        raise ConfigError(f"--images {images}: no PNG, JPEG or DICOM file in it or below it{others}")
    by_name, by_stem = defaultdict(list), defaultdict(list)
    for file in files:
        name = composed(file.rpartition("/")[2])
        by_name[name].append(file)
        by_stem[name.removesuffix(image_ending(name))].append(file)
    flat = frozenset(name for name, kind in zip(names, kinds, strict=True) if kind == PICTURE)
    aside = counted([kind for kind in kinds if kind not in _IMAGES])
    return Pictures(root, top, tuple(files), flat, aside, by_name, by_stem)
