"""What was found of image files, kept on disk: a check that was stopped goes on, and a second one is quick.

    <cache root>/<site>-scan/
        salt          secret of the keys, readable by its owner only
        scan.sqlite   key of a file -> its facts

The key is a keyed hash of path, size and time of change, as in the cache of images: no file name or patient id is
stored. Deleting the folder costs nothing but time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from chestfed.errors import ChestfedError
from chestfed.images.folder import make_salt, read_salt, reading
from chestfed.inspection.facts import FACTS_VERSION, Facts

_AT_ONCE = 900  # keys in one question


class FactsStore:
    """The kept facts of one site."""

    def __init__(self, cache_root: Path, site: str) -> None:
        """Open it, made if need be.

        Raises
        ------
        ChestfedError
            If the folder cannot be written.
        """
        self.folder = cache_root / f"{site}-scan"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "create.lock"):
                make_salt(self.folder)
                with reading(self.folder), closing(self._connect()) as index, index:
                    index.execute(
                        "CREATE TABLE IF NOT EXISTS file "
                        "(key BLOB, version INTEGER, plain TEXT, digest BLOB, hash BLOB, histogram BLOB, "
                        "PRIMARY KEY (key, version)) WITHOUT ROWID"
                    )
            self.salt = read_salt(self.folder)
        except OSError as error:
            raise ChestfedError(
                f"{self.folder}: cannot be made ({error}); choose another folder with --cache"
            ) from None

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Facts]:
        """The facts of those keys that are known."""
        found: dict[bytes, Facts] = {}
        with reading(self.folder), closing(self._connect()) as index:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, plain, digest, hash, histogram FROM file WHERE version = ? AND key IN ({marks})"
                for key, *columns in index.execute(query, (FACTS_VERSION, *part)):
                    found[key] = _facts(*columns)
        return found

    def keep(self, keys: Sequence[bytes], facts: Sequence[Facts]) -> None:
        """Write facts.

        Raises
        ------
        ChestfedError
            If the disk is full; what was kept before stays.
        """
        entries = [(key, FACTS_VERSION, *_columns(one)) for key, one in zip(keys, facts, strict=True)]
        try:
            with closing(self._connect()) as index, index:
                index.executemany("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?)", entries)
        except sqlite3.DatabaseError as error:
            raise ChestfedError(
                f"{self.folder} cannot be written ({error}): free some space or choose another folder with --cache. "
                "What was read is kept."
            ) from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "scan.sqlite", timeout=60)


def _columns(facts: Facts) -> tuple[str, bytes, bytes, bytes]:
    plain = asdict(facts)
    for name in ("digest", "hash", "histogram"):
        del plain[name]
    return json.dumps(plain), facts.digest, facts.hash, facts.histogram.astype("<i4").tobytes()


def _facts(plain: str, digest: bytes, picture_hash: bytes, histogram: bytes) -> Facts:
    told: dict[str, Any] = json.loads(plain)
    return Facts(**told, digest=digest, hash=picture_hash, histogram=np.frombuffer(histogram, "<i4").astype(np.int32))
