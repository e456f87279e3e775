"""What the folders of caches share: the secret of their keys, and what is said of a damaged index."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chestfed.core.errors import ChestfedError

_BYTES: Final = 32


def make_salt(folder: Path) -> None:
    """Write `salt`, readable by its owner only, unless it is there; call it under the folder's lock.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    if (folder / "salt").exists():
        return
    temporary = folder / "salt.part"
    temporary.unlink(missing_ok=True)  # left by a killed process
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
    temporary.replace(folder / "salt")


def read_salt(folder: Path) -> bytes:
    """The secret of a folder's keys.

    Raises
    ------
    ChestfedError
        If it cannot be read, or is not whole: an empty one would leave the keys without a secret.
    """
    try:
        salt = (folder / "salt").read_bytes()
    except OSError as error:
        raise ChestfedError(f"{folder / 'salt'}: cannot be read: {error.strerror}") from None
    if len(salt) != _BYTES:
        raise ChestfedError(f"{folder / 'salt'}: damaged. Delete the folder {folder}: it will be created again")
    return salt


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Around what reads a folder's index.

    Raises
    ------
    ChestfedError
        If it cannot be read, or holds something else than what was written.
    """
    try:
        yield
    except (sqlite3.Error, ValueError, TypeError) as error:
        text = str(error) if isinstance(error, sqlite3.Error) else "damaged"
        raise ChestfedError(
            f"{folder}: its index cannot be read ({text}). If no other process uses it, delete this folder: it will "
            "be made again"
        ) from None
