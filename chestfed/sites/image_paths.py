"""Where the image of a row is: path templates, several roots, and links that lead out of the site's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.sites.table import leaves_root
from chestfed.sites.table_config import FIELD, Images


class Folders:
    """The folders below a root, each listed once, by paths relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._real = os.path.realpath(root)
        self._listed: dict[str, dict[str, bool]] = {}
        self._strays: dict[str, bool] = {"": False}

    def holds(self, path: str) -> bool:
        """Whether there is such a file."""
        folder, _, name = path.rpartition("/")
        return name in self._entries(folder)

    def strays(self, path: str) -> bool:
        """Whether a link on the way to the path, or the path itself, leads out of the root."""
        folder, _, name = path.rpartition("/")
        return self._folder_strays(folder) or (self._entries(folder).get(name, False) and self._is_outside(path))

    def _folder_strays(self, folder: str) -> bool:
        if folder not in self._strays:
            self._strays[folder] = self.strays(folder)
        return self._strays[folder]

    def _is_outside(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self._root, path))  # noqa: PTH118 - many paths, and Path is slow
        return real != self._real and not real.startswith(self._real.rstrip(os.sep) + os.sep)

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
    if images.suffix:
        path = path.where(path.str.lower().str.endswith(images.suffix.lower(), na=True), path + images.suffix)
    return path


def in_roots(paths: pd.Series, images: Images, folders: Folders | None) -> tuple[pd.Series, np.ndarray]:
    """Paths relative to the site's root, and which of them go through a link out of it, bool `[n]`.

    A path is below the first root that holds the file, or below the first of all; that is so without `folders` too.
    """
    prefixes = [_prefix(root) for root in images.roots]
    first = prefixes[0] + paths
    strays = np.zeros(len(paths), dtype=bool)
    if folders is None:
        return first, strays
    chosen = first.to_numpy(dtype=object, copy=True)
    safe = (paths.notna() & ~leaves_root(paths)).to_numpy(dtype=bool)
    for place in np.flatnonzero(safe).tolist():
        if len(prefixes) > 1:
            name = str(paths.iat[place])
            chosen[place] = next((path for path in (p + name for p in prefixes) if folders.holds(path)), chosen[place])
        strays[place] = folders.strays(chosen[place])
    return pd.Series(chosen, index=paths.index, dtype=object), strays


def _plain(paths: pd.Series) -> pd.Series:
    """With slashes, and without the folder `.`."""
    slashed = paths.str.replace("\\", "/", regex=False)
    return slashed.str.replace(r"^(?:\./)+", "", regex=True).str.replace(r"/(?:\./)+", "/", regex=True)


def _prefix(root: str) -> str:
    name = root.replace("\\", "/").strip("/").removeprefix("./")
    return "" if name in ("", ".") else f"{name}/"
