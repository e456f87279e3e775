"""The marker of the bundled phantoms: a digest of their folder, so that no other files can pass for them.

Names of what has no patient behind it are made with a key that everybody knows. A stray or copied marker, or a word in
a YAML, must not do that to a hospital: the digest in the marker has to be that of the files around it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chestfed.data.images.place import BESIDE

#: The file in a folder of phantoms that holds the digest.
MARKER: Final = "SYNTHETIC.txt"
_DIGEST: Final = re.compile(r"^digest: ([1-9]\d*) files, ([0-9a-f]{32})$", re.MULTILINE)
#: Files that a system adds to folders; any other hidden file counts.
_OF_THE_SYSTEM: Final = (".DS_Store", ".directory")
#: Files of the cache, which is in a folder of phantoms where a site's root is a folder below it.
_CACHED: Final = re.compile(rf"{re.escape(BESIDE)}/[^/]+/images\.(?:sqlite(?:-[a-z]+)?|lock)")


def write_marker(folder: Path, text: str) -> None:
    """Write the marker of a folder that is whole: a text, and the digest of all other files."""
    files = sorted(_list_files(folder))
    (folder / MARKER).write_bytes(f"{text}digest: {len(files)} files, {_digest(folder, files)}\n".encode())


def find_marker(folder: Path, above: int = 1) -> Path | None:
    """The marker in a folder or in the folders around it, whatever it holds; None without one."""
    places = [folder, *folder.absolute().parents[:above]]
    return next((place / MARKER for place in places if (place / MARKER).is_file()), None)


def is_phantoms(folder: Path, above: int = 1) -> bool:
    """Whether a folder belongs to bundled phantoms: the marker found for it has the digest of the files around it.

    All files count, those in hidden folders too.
    """
    marker = find_marker(folder, above)
    try:
        stated = marker and _DIGEST.search(marker.read_text(encoding="utf-8"))
        if not marker or not stated:
            return False
        files = []
        for name in _list_files(marker.parent):  # of another folder, this may be a million
            files.append(name)
            if len(files) > int(stated[1]):
                return False
        return len(files) == int(stated[1]) and _digest(marker.parent, sorted(files)) == stated[2]
    except (OSError, ValueError):
        return False


def _list_files(folder: Path) -> Iterator[str]:
    """Paths below the folder, without the marker, the cache, and what the system adds."""
    for place, _, files in os.walk(folder, followlinks=True):
        for name in files:
            path = Path(place, name).relative_to(folder).as_posix()
            if path != MARKER and name not in _OF_THE_SYSTEM and not _CACHED.fullmatch(path):
                yield path


def _digest(folder: Path, files: list[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in files:
        content = (folder / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()
