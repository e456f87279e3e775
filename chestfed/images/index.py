"""One sqlite file of a store, and who may change it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from filelock import FileLock, Timeout

from chestfed.core.errors import ChestfedError

#: dtype of keys and digests; zeros mean that there is none.
KEY: Final = "V16"
#: Version of the file. One of another version holds nothing, and is emptied when something is kept.
FORMAT: Final = 2
_AT_ONCE: Final = 1_000  # keys in one question
_MANY: Final = 100_000  # keys for which an index is read from end to end


class Index:
    """A sqlite file: key of 16 bytes -> values; it is made when something is first kept.

    Each row ends with a digest of its cells. One that is not as it was written is as if it were not there.
    Raises `ChestfedError` from every method, if the file is damaged as a whole.
    """

    def __init__(self, file: Path, columns: Mapping[str, Any]) -> None:
        self.file, self._columns = file, columns

    @property
    def writable(self) -> bool:
        """Whether this user can change it."""
        there = self.file.exists()
        return os.access(self.file.parent, os.W_OK) and (not there or os.access(self.file, os.W_OK))

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Which keys, `KEY [n]`, are known: bool `[n]`."""
        return self.find(keys)[0]

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Which keys, `KEY [n]`, are known, bool `[n]`, and their values per column, `[n]`: zeros for the others."""
        unique, of_key = np.unique(keys.view("S16"), return_inverse=True)
        known = np.zeros(len(unique), bool)
        values = {name: np.zeros(len(unique), dtype) for name, dtype in self._columns.items()}
        with self._reading() as index:
            for rows in self._rows(index, unique) if index is not None else ():
                found, *cells = zip(*rows, strict=True)
                keyed = packed(found).view("S16")
                places = np.minimum(np.searchsorted(unique, keyed), len(unique) - 1)
                wanted = unique[places] == keyed
                places = places[wanted]
                known[places] = True
                for (name, dtype), column in zip(self._columns.items(), cells, strict=True):
                    array = packed(column, dtype) if "V" in str(dtype) else np.array(column, dtype)
                    values[name][places] = array[wanted]
        return known[of_key], {name: column[of_key] for name, column in values.items()}

    def _rows(self, index: Any, keys: np.ndarray) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of the keys, some thousand at once; for many keys all rows, which is quicker."""
        if len(keys) > _MANY:
            yield from _sound_rows(index)
            return
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            yield from _sound_rows(index, f"WHERE key IN ({marks})", blobs(part))

    def all(self) -> Iterator[list[tuple[Any, ...]]]:
        """Every key with its values, some thousand at a time, in the order of the keys; without damaged rows."""
        with self._reading() as index:
            if index is not None:
                yield from _sound_rows(index)

    def count(self, condition: str = "1") -> int:
        """Number of keys, or of those that meet an SQL condition."""
        with self._reading() as index:
            query = f"SELECT count(*) FROM result WHERE {condition}"
            return 0 if index is None else int(index.execute(query).fetchone()[0])

    def check(self) -> None:
        """Have sqlite look for damage in all of the file."""
        with self._reading() as index:
            found = [("ok",)] if index is None else index.execute("PRAGMA integrity_check").fetchall()
            if found != [("ok",)]:
                raise sqlite3.DatabaseError("its structure is damaged")

    def keep(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write keys with their values (bytes, text, integers, None), over those that are there.

        Raises `ChestfedError` if that is not possible; what was kept before stays.
        """
        marks = ", ".join("?" * (2 + len(self._columns)))
        self._change(f"INSERT OR REPLACE INTO result VALUES ({marks})", [(*row, _digest(row)) for row in rows])

    def drop(self, column: str, values: Sequence[Any], sign: str = "=") -> None:
        """Remove the keys whose column, or `key`, has one of these values (is at least this value, with `>=`).

        Raises `ChestfedError` as `keep`.
        """
        self._change(f"DELETE FROM result WHERE {column} {sign} ?", [(value,) for value in values])

    def largest(self, column: str) -> int:
        """The largest number of a column; -1 without any."""
        query = f"SELECT max({column}) FROM result WHERE typeof({column}) = 'integer'"  # a damaged cell may be a text
        with self._reading() as index:
            (number,) = (None,) if index is None else index.execute(query).fetchone()
            return -1 if number is None else int(number)

    def drop_damaged(self) -> int:
        """Remove the rows that are not as they were written; returns how many.

        Raises `ChestfedError` as `keep`.
        """
        with self._reading() as index:
            rows = () if index is None else index.execute("SELECT * FROM result")
            damaged = [row[0] for row in rows if _digest(row[:-1]) != row[-1]]
        self.drop("key", damaged)
        return len(damaged)

    def _change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        try:
            new = not self.file.exists()
            with closing(sqlite3.connect(self.file, timeout=60)) as index, index:
                index.execute("BEGIN IMMEDIATE")
                if not _is_current(index):
                    names = ", ".join(("key", *self._columns, "digest_of_row"))
                    index.execute("DROP TABLE IF EXISTS result")
                    index.execute(f"CREATE TABLE result ({names}, PRIMARY KEY (key)) WITHOUT ROWID")
                    index.execute(f"PRAGMA user_version = {FORMAT}")
                index.executemany(statement, rows)
            if new:
                let_the_group_write(self.file)
        except (OSError, sqlite3.DatabaseError) as error:
            raise unwritable(self.file, error) from None

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """A connection; None if nothing was kept yet. Only a writer can clean up after one that was killed."""
        if not self.file.exists():
            yield None
            return
        mode = "rw" if self.writable else "ro"
        place = f"{self.file.absolute().as_uri()}?mode={mode}"
        with reading(self.file), closing(sqlite3.connect(place, timeout=60, uri=True)) as index:
            # What is no text any more is read all the same: the digest of its row differs.
            index.text_factory = lambda cell: cell.decode(errors="surrogateescape")
            # another process or thread may be making the file at this moment: it is there before its table
            yield index if _is_current(index) else None


def _is_current(index: sqlite3.Connection) -> bool:
    return bool(index.execute("PRAGMA user_version").fetchone() == (FORMAT,))


def _sound_rows(index: Any, condition: str = "", values: Sequence[bytes] = ()) -> Iterator[list[tuple[Any, ...]]]:
    """Rows without their digests, some thousand at once, in the order of the keys; damaged ones are left out."""
    rows = index.execute(f"SELECT * FROM result {condition} ORDER BY key", values)
    while part := rows.fetchmany(_AT_ONCE):
        if sound := [row[:-1] for row in part if _digest(row[:-1]) == row[-1]]:
            yield sound


def _digest(row: Sequence[Any]) -> bytes:
    return xxhash.xxh3_64_digest(ascii(tuple(row)).encode())


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Around what reads an index.

    Raises `ChestfedError` if it cannot be read, or holds something else than what was written.
    """
    try:
        yield
    except (sqlite3.Error, ValueError, TypeError) as error:
        text = str(error) if isinstance(error, sqlite3.Error) else "damaged"
        raise ChestfedError(
            f"{file}: this index cannot be read ({text}). If no other process uses it, delete this file; it will "
            f"be made again"
        ) from None


def blobs(keys: np.ndarray) -> list[bytes]:
    """The keys `[n]` as bytes, trailing zeros included."""
    data, size = keys.tobytes(), keys.dtype.itemsize
    return [data[start : start + size] for start in range(0, len(data), size)]


def packed(values: Sequence[bytes], dtype: str = KEY) -> np.ndarray:
    """Bytes of one length as an array.

    Raises `ValueError` if one has another length.
    """
    if set(map(len, values)) - {np.dtype(dtype).itemsize}:
        raise ValueError("bytes of another length")
    return np.frombuffer(b"".join(values), dtype)


def unwritable(file: Path, error: Exception) -> ChestfedError:
    """That a file of the store cannot be written."""
    return ChestfedError(
        f"{file}: the cache cannot be written ({error}): free some space, or choose another folder with --cache. "
        f"Finished work is kept"
    )


def _shared(folder: Path) -> bool:
    return os.name != "nt" and bool(folder.stat().st_mode & stat.S_ISGID)


def lock_mode(folder: Path) -> int:
    """Permissions of a lock in a folder."""
    return 0o660 if _shared(folder) else 0o644


def let_the_group_write(path: Path) -> None:
    """In a folder that is a group's (its setgid bit is set), the group may read and change what is made there."""
    if path.is_dir() and _shared(path):
        path.chmod(path.stat().st_mode | 0o070)
    elif path.is_file() and _shared(path.parent):
        path.chmod(0o660)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """While an index is written: another process waits, and says so."""
    lock = FileLock(file.with_suffix(".lock"), mode=lock_mode(file.parent))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is filling {file}; waiting for it", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
