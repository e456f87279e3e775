"""What a folder's files held when they were written: `manifest.json` names each with its digest.

It finds what a disk, a copy or an edit has changed since. It is not a signature: who can change a file can change it
too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from chestfed.core.checkpoint import write_json

MANIFEST: Final = "manifest.json"


def name_of_text(text: str) -> str:
    """A short name of a text, such as one that folders of results end with: 12 hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def seal(folder: Path, names: Iterable[str], coming: Mapping[str, str] | None = None) -> None:
    """Write the manifest over those of the files that are there, and over texts that are written right after it."""
    found = {name: _digest((folder / name).read_bytes()) for name in sorted(names) if (folder / name).is_file()}
    found |= {name: _digest(text.encode()) for name, text in (coming or {}).items()}
    write_json(folder / MANIFEST, {"digests": "blake2b, 16 bytes", "files": found})


def damaged(folder: Path, needed: Iterable[str] = ()) -> list[str] | None:
    """Names of the files that are not as they were written, or missing; None without a manifest.

    `needed` are files that any manifest of such a folder lists.

    Raises
    ------
    OSError
        If a file is there and cannot be read.
    """
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        listed = {str(name): str(digest) for name, digest in files.items()}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return [MANIFEST]
    return sorted({*needed} - {*listed}) + [name for name, digest in listed.items() if not _is(folder / name, digest)]


def _is(file: Path, digest: str) -> bool:
    return file.is_file() and _digest(file.read_bytes()) == digest


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
