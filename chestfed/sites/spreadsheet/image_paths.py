"""Where the image of a row is: path templates, several roots, and links that lead out of the site's folder.

Letters with accents may be stored as one character or as two (Unicode's NFC and NFD; file names that come from a Mac
are often the latter): both are the same name here.
"""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.dicom.file_kinds import image_ending
from chestfed.sites.reader import leaves_root
from chestfed.sites.spreadsheet.config import FIELD, Images


class Folders:
    """The folders below a root, each listed once, by paths relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._real = os.path.realpath(root)
        self._listed: dict[str, dict[str, bool]] = {}
        self._accents: dict[str, dict[str, str]] = {}
        self._stems: dict[str, dict[str, list[str]]] = {}
        self._below: dict[str, dict[str, list[str]]] = {}
        self._strays: dict[str, bool] = {"": False}

    def holds(self, path: str) -> bool:
        """Whether there is such a file."""
        folder, _, name = path.rpartition("/")
        return name in self._entries(folder)

    def find(self, path: str) -> str | None:
        """The path as it is on the disk, which may encode accents differently; None if it does not exist."""
        if self.holds(path):
            return path
        if path.isascii():
            return None
        found = ""
        for part in path.split("/"):
            name = part if part in self._entries(found) else self._composed(found).get(composed(part))
            if name is None:
                return None
            found = f"{found}/{name}" if found else name
        return found

    def twins(self, path: str) -> list[str]:
        """The images that are called like this one, whatever their endings; only itself if it exists."""
        if self.holds(path):
            return [path]
        folder, _, name = path.rpartition("/")
        if folder not in self._stems:
            self._stems[folder] = defaultdict(list)
            for file in sorted(self._entries(folder)):
                if ending := image_ending(file):
                    self._stems[folder][file.removesuffix(ending)].append(file)
        found = self._stems[folder].get(name.removesuffix(image_ending(name)), [])
        return [f"{folder}/{file}" if folder else file for file in found]

    def files(self, prefix: str) -> list[str]:
        """All files in or below a folder (`prefix` ends with a slash, or is empty).

        Hidden folders and links to folders are left out.
        """
        found = []
        for folder, folders, names in os.walk(Path(self._root, prefix)):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside = Path(folder).relative_to(self._root).as_posix()
            found += [name if inside == "." else f"{inside}/{name}" for name in sorted(names)]
        return found

    def below(self, prefix: str, path: str) -> list[str]:
        """Those of `files` whose paths end with `path`."""
        if prefix not in self._below:
            named = defaultdict(list)
            for file in self.files(prefix):
                named[composed(file.rpartition("/")[2])].append(file)
            self._below[prefix] = dict(named)
        wanted = composed(path)
        files = self._below[prefix].get(wanted.rpartition("/")[2], [])
        return [file for file in files if f"/{composed(file.removeprefix(prefix))}".endswith(f"/{wanted}")]

    def strays(self, path: str) -> bool:
        """Whether the path, or a link on the way to it, leads out of the root."""
        folder, _, name = path.rpartition("/")
        return self._folder_strays(folder) or (self._entries(folder).get(name, False) and self._is_outside(path))

    def _folder_strays(self, folder: str) -> bool:
        if folder not in self._strays:
            self._strays[folder] = self.strays(folder)
        return self._strays[folder]

    def _is_outside(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self._root, path))  # noqa: PTH118 - many paths, and Path is slow
        return real != self._real and not real.startswith(self._real.rstrip(os.sep) + os.sep)

    def _composed(self, folder: str) -> dict[str, str]:
        """Name in NFC -> the entry of the folder, for those with accents."""
        if folder not in self._accents:
            names = self._entries(folder)
            self._accents[folder] = {composed(name): name for name in names if not name.isascii()}
        return self._accents[folder]

    def _entries(self, folder: str) -> dict[str, bool]:
        """Name -> whether it is a link; empty if there is no such folder."""
        if folder not in self._listed:
            try:
                with os.scandir(Path(self._root, folder)) as entries:
                    self._listed[folder] = {entry.name: entry.is_symlink() for entry in entries}
            except (OSError, ValueError):
                self._listed[folder] = {}
        return self._listed[folder]


def template_columns(images: Images, roles: Mapping[str, str | None]) -> list[str]:
    """The columns that the path is made of; `roles` maps image, patient and study to theirs."""
    if images.path is None:
        return [name for name in (roles["image"],) if name is not None]
    return [roles.get(match[1]) or match[1] for match in FIELD.finditer(images.path)]


def image_names(frame: pd.DataFrame, images: Images, roles: Mapping[str, str | None]) -> pd.Series:
    """Paths below one of the roots; missing where a cell that belongs to it is empty."""
    template = images.path if images.path is not None else "{image}"
    path = pd.Series("", index=frame.index, dtype=object)
    end = 0
    for match in FIELD.finditer(template):
        cells = frame[roles.get(match[1]) or match[1]].astype(object)
        if match[1] == "image" and images.remove_prefix:
            cells = _plain(cells).str.removeprefix(str(_plain(pd.Series([images.remove_prefix])).iat[0]))
        path = path + template[end : match.start()] + (cells.str[: int(match[2])] if match[2] else cells)
        end = match.end()
    path = _plain(path + template[end:])
    if images.suffix and not images.any_ending:
        path = path.where(path.str.lower().str.endswith(images.suffix.lower(), na=True), path + images.suffix)
    return path


@dataclass(frozen=True)
class Placed:
    """Where the images of `n` rows are.

    Attributes
    ----------
    images
        Paths relative to the site's root.
    below
        The same paths relative to the one of the roots that holds them.
    strays
        Which of them go through a link out of the site's root, bool `[n]`.
    ambiguous
        For which rows several files fit, of which none is taken, bool `[n]`; only if folders below the roots are
        searched, or endings do not count.
    """

    images: pd.Series
    below: pd.Series
    strays: np.ndarray
    ambiguous: np.ndarray


def in_roots(paths: pd.Series, images: Images, folders: Folders | None) -> Placed:
    """Where the images are whose paths below one of the roots are `paths`.

    A path is below the first root that holds the file, or below the first of all; that is so without `folders` too.
    """
    prefixes = [prefix_of(root) for root in images.roots]
    first = prefixes[0] + paths
    strays, ambiguous = np.zeros(len(paths), dtype=bool), np.zeros(len(paths), dtype=bool)
    if folders is None:
        return Placed(first, paths, strays, ambiguous)
    chosen, below = first.to_numpy(dtype=object, copy=True), paths.to_numpy(dtype=object, copy=True)
    safe = (paths.notna() & ~leaves_root(paths)).to_numpy(dtype=bool)
    for place in np.flatnonzero(safe).tolist():
        name = str(paths.iat[place])
        if images.recursive:
            found = {file: file.removeprefix(prefix) for prefix in prefixes for file in folders.below(prefix, name)}
            ambiguous[place] = len(found) > 1
            if len(found) == 1:
                ((chosen[place], below[place]),) = found.items()
        elif images.any_ending:
            files = next((twins for prefix in prefixes if (twins := folders.twins(prefix + name))), [])
            ambiguous[place] = len(files) > 1
            chosen[place] = files[0] if len(files) == 1 else chosen[place]
        else:
            there = (folders.find(prefix + name) for prefix in prefixes)
            chosen[place] = next((file for file in there if file is not None), chosen[place])
        strays[place] = folders.strays(chosen[place])
    index = paths.index
    return Placed(pd.Series(chosen, index, dtype=object), pd.Series(below, index, dtype=object), strays, ambiguous)


def composed(text: str) -> str:
    """The text with each accented letter as one character (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _plain(paths: pd.Series) -> pd.Series:
    """With slashes, and without the folder `.`."""
    slashed = paths.str.replace("\\", "/", regex=False)
    return slashed.str.replace(r"^(?:\./)+", "", regex=True).str.replace(r"/(?:\./)+", "/", regex=True)


def prefix_of(root: str) -> str:
    """A root of `Images` as the beginning of a path: with a slash at its end, or empty."""
    name = root.replace("\\", "/").strip("/").removeprefix("./")
    return "" if name in ("", ".") else f"{name}/"
