"""The folders of a site: which files there are, whatever their endings, and links that lead out of them.

Letters with accents may be stored as one character or as two (Unicode's NFC and NFD; file names that come from a Mac
are often the latter): both are the same name here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from chestfed.data.dicom.file_kinds import image_ending
from chestfed.data.sites.label_files.text import composed


class Folders:
    """The folders below a root, each listed once, by paths relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._real = os.path.realpath(root)
        self._listed: dict[str, dict[str, bool]] = {}
        self._accents: dict[str, dict[str, str]] = {}
        self._stems: dict[str, dict[str, list[str]]] = {}
        self._below: dict[str, dict[str, list[str]]] = {}
        self._strays: dict[str, bool] = {"": False}

    def holds(self, path: str) -> bool:
        """Whether there is such a file."""
        folder, _, name = path.rpartition("/")
        return name in self._list_entries(folder)

    def find(self, path: str) -> str | None:
        """The path as it is on the disk, which may encode accents differently; None if it does not exist."""
        if self.holds(path):
            return path
        if path.isascii():
            return None
        place = ""
        for part in path.split("/"):
            name = part if part in self._list_entries(place) else self._list_composed(place).get(composed(part))
            if name is None:
                return None
            place = f"{place}/{name}" if place else name
        return place

    def twins(self, path: str) -> list[str]:
        """The images that are called like this one, whatever their endings; only itself if it exists."""
        if self.holds(path):
            return [path]
        folder, _, name = path.rpartition("/")
        if folder not in self._stems:
            self._stems[folder] = defaultdict(list)
            for file in sorted(self._list_entries(folder)):
                if ending := image_ending(file):
                    self._stems[folder][file.removesuffix(ending)].append(file)
        names = self._stems[folder].get(name.removesuffix(image_ending(name)), [])
        return [f"{folder}/{file}" if folder else file for file in names]

    def files(self, prefix: str) -> list[str]:
        """All files in or below a folder (`prefix` ends with a slash, or is empty).

        Hidden folders and links to folders are left out.
        """
        files = []
        for folder, folders, names in os.walk(Path(self.root, prefix)):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside = Path(folder).relative_to(self.root).as_posix()
            files += [name if inside == "." else f"{inside}/{name}" for name in sorted(names)]
        return files

    def below(self, prefix: str, path: str) -> list[str]:
        """Those of `files` whose paths end with `path`."""
        if prefix not in self._below:
            named = defaultdict(list)
            for file in self.files(prefix):
                named[composed(file.rpartition("/")[2])].append(file)
            self._below[prefix] = dict(named)
        ending = composed(path)
        files = self._below[prefix].get(ending.rpartition("/")[2], [])
        return [file for file in files if f"/{composed(file.removeprefix(prefix))}".endswith(f"/{ending}")]

    def strays(self, path: str) -> bool:
        """Whether the path, or a link on the way to it, leads out of the root."""
        folder, _, name = path.rpartition("/")
        return self._folder_strays(folder) or (self._list_entries(folder).get(name, False) and self._is_outside(path))

    def _folder_strays(self, folder: str) -> bool:
        if folder not in self._strays:
            self._strays[folder] = self.strays(folder)
        return self._strays[folder]

    def _is_outside(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118 - many paths, and Path is slow
        return real != self._real and not real.startswith(self._real.rstrip(os.sep) + os.sep)

    def _list_composed(self, folder: str) -> dict[str, str]:
        """Name in NFC -> the entry of the folder, for those with accents."""
        if folder not in self._accents:
            names = self._list_entries(folder)
            self._accents[folder] = {composed(name): name for name in names if not name.isascii()}
        return self._accents[folder]

    def _list_entries(self, folder: str) -> dict[str, bool]:
        """Name -> whether it is a link; empty if the folder does not exist or cannot be read."""
        if folder not in self._listed:
            try:
                with os.scandir(Path(self.root, folder)) as entries:
                    self._listed[folder] = {entry.name: entry.is_symlink() for entry in entries}
            except (OSError, ValueError):
                self._listed[folder] = {}
        return self._listed[folder]
