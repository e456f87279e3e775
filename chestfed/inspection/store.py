"""What was found of image files, kept on disk: a check that was stopped resumes, and a second one is quick.

    <cache root>/<site>-scan/
        salt             secret of the keys, readable by its owner only
        scan.sqlite      key of a file -> its facts
        letters.sqlite   key of a file -> what is known of text in it

The key is a keyed hash of path, size and time of change, as in the cache of images: no file name or patient id is
stored. The folder can be deleted; it only costs time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np
from filelock import FileLock

from chestfed.core.errors import ChestfedError
from chestfed.images.folder import make_salt, read_salt, reading
from chestfed.inspection.facts import FACTS_VERSION, Facts

Found = TypeVar("Found")

_AT_ONCE: Final = 900  # keys in one question


class KeptResults(Generic[Found]):
    """Results of one kind, by the keys of their files.

    Parameters
    ----------
    file, table
        The sqlite file, and the table in it.
    columns
        Name -> type of the columns of a result.
    version
        Results of other versions are not found.
    pack, unpack
        From a result to the values of its columns, and back.

    Raises
    ------
    ChestfedError
        If there is another file, or a damaged one.
    """

    def __init__(
        self,
        file: Path,
        table: str,
        columns: Mapping[str, str],
        version: int,
        pack: Callable[[Found], Sequence[object]],
        unpack: Callable[..., Found],
    ) -> None:
        self._file, self._table, self._columns, self._version = file, table, columns, version
        self._pack, self._unpack = pack, unpack
        kinds = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        with reading(file.parent), closing(self._connect()) as index, index:
            index.execute(
                f"CREATE TABLE IF NOT EXISTS {table} "
                f"(key BLOB, version INTEGER, {kinds}, PRIMARY KEY (key, version)) WITHOUT ROWID"
            )

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Found]:
        """The results of those keys that are known.

        Raises
        ------
        ChestfedError
            If the file is damaged.
        """
        found: dict[bytes, Found] = {}
        names = ", ".join(self._columns)
        with reading(self._file.parent), closing(self._connect()) as index:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, {names} FROM {self._table} WHERE version = ? AND key IN ({marks})"
                for key, *values in index.execute(query, (self._version, *part)):
                    found[key] = self._unpack(*values)
        return found

    def keep(self, keys: Sequence[bytes], results: Sequence[Found]) -> None:
        """Write results.

        Raises
        ------
        ChestfedError
            If the disk is full; what was kept before stays.
        """
        entries = [(key, self._version, *self._pack(one)) for key, one in zip(keys, results, strict=True)]
        marks = ", ".join("?" * (2 + len(self._columns)))
        try:
            with closing(self._connect()) as index, index:
                index.executemany(f"INSERT OR REPLACE INTO {self._table} VALUES ({marks})", entries)
        except sqlite3.DatabaseError as error:
            raise ChestfedError(
                f"{self._file} cannot be written ({error}): free some space or choose another folder with --cache. "
                "What was read is kept."
            ) from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=60)


def scan_folder(cache_root: Path, site: str) -> tuple[Path, bytes]:
    """The folder of a site's results, made if need be, and the secret of the keys in it.

    Raises
    ------
    ChestfedError
        If it cannot be written, or the secret is damaged.
    """
    folder = cache_root / f"{site}-scan"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "create.lock"):
            make_salt(folder)
    except OSError as error:
        raise ChestfedError(f"{folder}: cannot be created ({error}); choose another folder with --cache") from None
    return folder, read_salt(folder)


def kept_facts(folder: Path) -> KeptResults[Facts]:
    """The kept facts of one site."""
    columns = {"plain": "TEXT", "digest": "BLOB", "hash": "BLOB", "histogram": "BLOB"}
    return KeptResults(folder / "scan.sqlite", "file", columns, FACTS_VERSION, _columns, _facts)


def _columns(facts: Facts) -> tuple[str, bytes, bytes, bytes]:
    plain = asdict(facts)
    for name in ("digest", "hash", "histogram"):
        del plain[name]
    return json.dumps(plain), facts.digest, facts.hash, facts.histogram.astype("<i4").tobytes()


def _facts(plain: str, digest: bytes, picture_hash: bytes, histogram: bytes) -> Facts:
    told: dict[str, Any] = json.loads(plain)
    return Facts(**told, digest=digest, hash=picture_hash, histogram=np.frombuffer(histogram, "<i4").astype(np.int32))
