"""Identity of a folder of results, and of its files when they were written: `manifest.json`.

It names the run and the part of it, and each file with its digest. So a folder that was exchanged for another one is
found, and what a disk, a copy or an edit has changed. It is not a signature: who can change a file can change it too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict, cast

from chestfed.core.checkpoint import write_json
from chestfed.core.errors import ChestfedError

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True)
class Part:
    """Which results a folder holds."""

    #: The digest of the study; empty for an evaluation. A run folder may be renamed: None accepts any run.
    run: str | None
    place: str  #: from the run folder on, such as `k2`; `.` for the run folder itself

    def __str__(self) -> str:
        """As messages name it."""
        run = f"the run {self.run}" if self.run else ""
        return run if self.place == "." else f"{self.place} of {run}" if run else self.place


#: The folder that an evaluation is written to.
EVALUATED: Final = Part("", "evaluation")


class MisplacedError(ChestfedError):
    """A folder of results holds other results than its name and the folder around it say."""

    def __init__(self, folder: Path, part: Part, expected: Part) -> None:
        self.folder, self.part, self.expected = folder, part, expected
        self.reason = f"{folder}: holds {part}, where {expected} is expected"
        remedy = "Put the right folder in its place, or run the same `chestfed study` again, which sets this one aside"
        if expected.place == ".":
            remedy = "Rename or move this folder, or choose another with --out"
        super().__init__(f"{self.reason}: it was copied, renamed or exchanged. {remedy}.")


def short_digest(text: str) -> str:
    """A short name of a text, such as one that folders of results end with: 12 hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def write_manifest(folder: Path, part: Part, names: Iterable[str], coming: Mapping[str, str] | None = None) -> None:
    """Write the manifest over those of the files that are there, and over texts that are written right after it."""
    files = {name: _digest((folder / name).read_bytes()) for name in sorted(names) if (folder / name).is_file()}
    files |= {name: _digest(text.encode()) for name, text in (coming or {}).items()}
    content = {"run": part.run, "part": part.place, "digests": "blake2b, 16 bytes", "files": files}
    write_json(folder / MANIFEST, content | {"digest": _digest_values(content)})


def find_damage(folder: Path, part: Part, needed: Iterable[str] = ()) -> list[str]:
    """Names of the files that are not as they were written, or missing; the manifest may be one of them.

    `needed` are files that any manifest of such a folder lists.

    Raises
    ------
    MisplacedError
        If the folder holds another part, or one of another run.
    OSError
        If a file is there and cannot be read.
    """
    try:
        content = cast("_Content", json.loads((folder / MANIFEST).read_bytes()))
        if content["digest"] != _digest_values({key: value for key, value in content.items() if key != "digest"}):
            return [MANIFEST]
        stored, files = Part(content["run"], content["part"]), content["files"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return [MANIFEST]
    if stored.place != part.place or part.run not in (None, stored.run):
        raise MisplacedError(folder, stored, part)
    return sorted({*needed} - {*files}) + [name for name, digest in files.items() if not _is(folder / name, digest)]


class _Content(TypedDict):
    """Content of `manifest.json`."""

    run: str | None
    part: str
    digests: str
    files: dict[str, str]
    digest: str


def _is(file: Path, digest: str) -> bool:
    return file.is_file() and _digest(file.read_bytes()) == digest


def _digest_values(content: Mapping[str, object]) -> str:
    return _digest(json.dumps(content, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
