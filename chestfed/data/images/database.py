"""The SQLite file of one site: results about its image files, found by content.

    files    keyed hash of a path -> stamp of the file (size, times, inode), keyed digest of its content
    KIND     keyed digest of a content -> number of its pixels (-1: none), columns of this kind of result
    pixels   number -> pixels
    kinds    kind -> time of its last use
    secret   of the keys

Each row of `files` and of a kind ends with a digest of all its cells; pixels are covered by their digest, which is one
of these cells. A row that differs from its digest counts as missing. A transaction writes pixels, results and stamps
together, so that a killed process loses what it had not committed, and nothing else.

The journal is SQLite's default one and not a write-ahead log, which neither a read-only folder nor a network file
system supports; nothing is mapped into memory, which a truncated file would turn into a crash.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xxhash

from chestfed.core.errors import ChestfedError

#: dtype of keys and digests; zeros mean that there is none.
KEY: Final = "V16"
FILES: Final = "files"
_FORMAT: Final = 3  # version of the file
_PAGE: Final = 16_384  # bytes; larger pages are read faster, and waste more of the disk
_KEYS_PER_QUERY: Final = 1_000
_SECRET_BYTES: Final = 32
_DAY: Final = 86_400  # seconds
_SCHEMA: Final = (
    "CREATE TABLE pixels (number INTEGER PRIMARY KEY, data BLOB)",
    "CREATE TABLE kinds (name TEXT PRIMARY KEY, used REAL)",
    "CREATE TABLE secret (value BLOB)",
)


class Row(NamedTuple):
    """One result. If it has pixels, the first cell is their digest."""

    key: bytes
    cells: tuple[object, ...]  #: bytes, text, integers or None
    pixels: bytes | None = None


class Database:
    """The file of one site; it is made by `create`.

    Every method raises `ChestfedError` if the file is damaged as a whole, or cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def writable(self) -> bool:
        """Whether this user can change it."""
        return os.access(self.file.parent, os.W_OK) and os.access(self.file, os.W_OK)

    def create(self) -> None:
        """Make the file, if there is none, for its owner only, or for the group if the folder is setgid.

        Raises `ChestfedError` if it cannot be made, or belongs to another user.
        """
        folder = self.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not self.file.exists():
                if is_shared(folder):
                    folder.chmod(folder.stat().st_mode | 0o070)
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
                self.file.chmod(0o660 if is_shared(folder) else 0o600)
        except OSError as error:
            if isinstance(error, PermissionError) and folder.exists() and not os.access(folder, os.X_OK):
                raise self._make_access_error() from None
            raise ChestfedError(
                f"{folder}: the cache cannot be created ({error.strerror}); choose another with --cache"
            ) from None
        if not os.access(self.file, os.R_OK):
            raise self._make_access_error()
        if not self.writable or self._has_tables():
            return
        with self._open_writing() as connection:
            if _format(connection) != _FORMAT:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(_SECRET_BYTES),))
                connection.execute(f"PRAGMA user_version = {_FORMAT}")

    def read_secret(self) -> bytes:
        """The secret of the keys, 32 bytes."""
        with self._open_reading() as connection:
            ((secret,),) = connection.execute("SELECT value FROM secret").fetchall()
            if len(secret) != _SECRET_BYTES:  # an empty one would leave the keys without a secret
                raise ValueError("secret of the wrong length")
            return bytes(secret)

    def find(
        self, kind: str, columns: Mapping[str, str], keys: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Results of keys, `KEY [n]`: which are known, bool `[n]`; pixel numbers int64 `[n]`; cells per column `[n]`.

        `columns` gives their dtypes. An unknown key has the number -1 and zeros as cells.
        """
        unique, inverse = np.unique(keys.view("S16"), return_inverse=True)
        known, numbers = np.zeros(len(unique), bool), np.full(len(unique), -1, np.int64)
        values = {name: np.zeros(len(unique), dtype) for name, dtype in columns.items()}
        with self._open_reading() as connection:
            for start in range(0, len(unique) if _has_table(connection, kind) else 0, _KEYS_PER_QUERY):
                part = unpack_keys(unique[start : start + _KEYS_PER_QUERY])
                condition = f"WHERE key IN ({','.join('?' * len(part))})"
                requested = set(part)  # a damaged file may give other rows
                rows = [
                    row for row, sound in _read_rows(connection, kind, condition, part) if sound and row[0] in requested
                ]
                if not rows:
                    continue
                row_keys, row_numbers, *cells = zip(*rows, strict=True)
                places = np.searchsorted(unique, pack_keys(row_keys).view("S16"))
                known[places], numbers[places] = True, row_numbers
                for (name, dtype), column in zip(columns.items(), cells, strict=True):
                    values[name][places] = pack_keys(column, dtype) if "V" in str(dtype) else np.array(column, dtype)
        return known[inverse], numbers[inverse], {name: column[inverse] for name, column in values.items()}

    def has(self, kind: str, key: bytes) -> bool:
        """Whether the result of a key is known."""
        with self._open_reading() as connection:
            rows = _read_rows(connection, kind, "WHERE key = ?", [key]) if _has_table(connection, kind) else ()
            return any(sound for _, sound in rows)

    def add(self, tables: Mapping[str, Sequence[Row]]) -> None:
        """Write rows of several kinds, over earlier rows of the same keys, in one transaction.

        Raises `ChestfedError` if that is not possible; what was committed before stays.
        """
        with self._open_writing() as connection:
            for kind, rows in tables.items():
                if not rows:
                    continue
                columns = ", ".join(f"c{place}" for place in range(len(rows[0].cells)))
                names = f"key, number, {columns}, digest, PRIMARY KEY (key)"
                connection.execute(f'CREATE TABLE IF NOT EXISTS "{kind}" ({names}) WITHOUT ROWID')
                marks = ", ".join("?" * (len(rows[0].cells) + 3))
                for key, cells, pixels in rows:
                    number: int | None = -1
                    if pixels is not None:
                        number = connection.execute("INSERT INTO pixels (data) VALUES (?)", (pixels,)).lastrowid
                    row = (key, number, *cells)
                    connection.execute(f'INSERT OR REPLACE INTO "{kind}" VALUES ({marks})', (*row, _seal(kind, row)))
                if kind != FILES:
                    connection.execute("INSERT OR IGNORE INTO kinds VALUES (?, ?)", (kind, time.time()))

    def read_pixels(self, numbers: Sequence[int], out: np.ndarray) -> None:
        """Write pixels into uint8 `[n, bytes]`; missing ones, and ones of another size, are left as they are."""
        with self._open_reading() as connection:
            connection.execute("BEGIN")  # one lock for all
            for number, place in zip(numbers, out, strict=True):
                row = connection.execute("SELECT data FROM pixels WHERE number = ?", (number,)).fetchone()
                if row is not None and len(row[0]) == len(place):
                    place[:] = np.frombuffer(row[0], np.uint8)

    def mark_used(self, kind: str) -> None:
        """Note the time of the last use of a kind, at most once a day; nothing where this user cannot write."""
        if self.writable and time.time() - self.kinds().get(kind, 0) > _DAY:
            with self._open_writing() as connection:
                connection.execute("INSERT OR REPLACE INTO kinds VALUES (?, ?)", (kind, time.time()))

    def kinds(self) -> dict[str, float]:
        """Kinds of results, with the times of their last use in seconds since 1970."""
        with self._open_reading() as connection:
            return dict(connection.execute("SELECT name, used FROM kinds ORDER BY name"))

    def count(self, kind: str, condition: str = "1") -> int:
        """Number of rows, or of those that meet an SQL condition."""
        with self._open_reading() as connection:
            if not _has_table(connection, kind):
                return 0
            return int(connection.execute(f'SELECT count(*) FROM "{kind}" WHERE {condition}').fetchone()[0])

    def prune(self, unused_days: float | None = None) -> int:
        """Remove damaged rows, those that no file needs, and kinds not used for so long; returns the damaged ones."""
        limit = time.time() - (float("inf") if unused_days is None else unused_days * _DAY)
        with self._open_reading() as connection:
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise sqlite3.DatabaseError("its structure is damaged")
        with self._open_writing() as connection:
            for kind, used in connection.execute("SELECT name, used FROM kinds").fetchall():
                if used < limit:
                    connection.execute("DELETE FROM kinds WHERE name = ?", (kind,))
                    connection.execute(f'DROP TABLE IF EXISTS "{kind}"')
            kinds = [name for (name,) in connection.execute("SELECT name FROM kinds").fetchall()]
            tables = [table for table in (FILES, *kinds) if _has_table(connection, table)]
            damaged = sum(_remove_damaged(connection, table) for table in tables)
            connection.execute("CREATE TEMP TABLE used_pixels (number INTEGER PRIMARY KEY)")
            for table in tables:
                if table != FILES and FILES in tables:
                    connection.execute(f'DELETE FROM "{table}" WHERE key NOT IN (SELECT c1 FROM {FILES})')
                connection.execute(f'INSERT OR IGNORE INTO used_pixels SELECT number FROM "{table}"')
            connection.execute("DELETE FROM pixels WHERE number NOT IN (SELECT number FROM used_pixels)")
        with self._open_writing(transaction=False) as connection:
            connection.execute("PRAGMA incremental_vacuum").fetchall()
        return damaged

    def _has_tables(self) -> bool:
        with self._open_reading() as connection:
            return _has_table(connection, "secret")

    def _make_access_error(self) -> ChestfedError:
        folder = self.file.parent
        return ChestfedError(
            f"{folder}: this cache belongs to another user. Its owner can open it to the group with `chmod -R "
            f"g+rX {folder}`; or choose another folder with --cache"
        )

    @contextmanager
    def _open_reading(self) -> Iterator[sqlite3.Connection]:
        """A connection. Only a user who can write can roll back what a killed process has left."""
        try:
            with closing(self._connect("rw" if self.writable else "ro")) as connection:
                yield connection
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise self._make_damage_error(error) from None

    @contextmanager
    def _open_writing(self, *, transaction: bool = True) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, which is committed at the end, or rolled back by an exception."""
        try:
            with closing(self._connect("rw")) as connection:
                connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file, as the next one
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("BEGIN IMMEDIATE" if transaction else "SELECT 1")
                yield connection
                if transaction:
                    connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "SQLITE_CORRUPT") in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
                raise self._make_damage_error(error) from None
            raise ChestfedError(
                f"{self.file}: the cache cannot be written ({error}): free some space, or choose another folder with "
                f"--cache. Finished work is kept"
            ) from None

    def _connect(self, mode: str) -> sqlite3.Connection:
        place = f"{self.file.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(place, timeout=60, uri=True, isolation_level=None)
        # Text that is damaged is read all the same: the digest of its row differs.
        connection.text_factory = lambda cell: cell.decode(errors="surrogateescape")
        try:
            version = _format(connection)
        except sqlite3.Error:
            connection.close()
            raise
        if version not in (0, _FORMAT):  # 0: another process is just making it
            connection.close()
            raise ValueError("written by another version of chestfed")
        return connection

    def _make_damage_error(self, error: Exception) -> ChestfedError:
        text = str(error) if isinstance(error, sqlite3.Error) else f"damaged: {error}"
        return ChestfedError(
            f"{self.file}: this cache cannot be read ({text}). If no other process uses it, delete this file; it will "
            f"be made again",
            kind="damaged cache",
            file=self.file.name,
        )


def _format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _read_rows(
    connection: sqlite3.Connection, kind: str, condition: str = "", values: Sequence[bytes] = ()
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Rows without their digests, and whether each is as it was written."""
    for row in connection.execute(f'SELECT * FROM "{kind}" {condition}', values):
        yield row[:-1], _seal(kind, row[:-1]) == row[-1]


def _seal(kind: str, row: Sequence[object]) -> bytes:
    """Digest of all cells of a row."""
    return xxhash.xxh3_64_digest(ascii((kind, *row)).encode())


def _remove_damaged(connection: sqlite3.Connection, kind: str) -> int:
    """Remove the rows that differ from their digests, or whose pixels do; returns how many."""
    rows = _read_rows(connection, kind)
    keys = [row[0] for row, sound in rows if not (sound and _has_sound_pixels(connection, *row[1:3]))]
    connection.executemany(f'DELETE FROM "{kind}" WHERE key IS ?', [(key,) for key in keys])
    return len(keys)


def _has_sound_pixels(connection: sqlite3.Connection, number: int, digest: bytes) -> bool:
    pixels = connection.execute("SELECT data FROM pixels WHERE number = ?", (number,)).fetchone()
    return number < 0 or (pixels is not None and digest_pixels(pixels[0]) == digest)


def digest_pixels(data: bytes | memoryview) -> bytes:
    """16 bytes of pixels: to find damage, and to compare images; quick enough for every read."""
    return xxhash.xxh3_128_digest(data)


def unpack_keys(keys: np.ndarray) -> list[bytes]:
    """The keys `[n]` as bytes, trailing zeros included."""
    data, size = keys.tobytes(), keys.dtype.itemsize
    return [data[start : start + size] for start in range(0, len(data), size)]


def pack_keys(values: Sequence[bytes], dtype: str = KEY) -> np.ndarray:
    """Bytes of one length as an array.

    Raises `ValueError` if one has another length.
    """
    if set(map(len, values)) - {np.dtype(dtype).itemsize}:
        raise ValueError("bytes of another length")
    return np.frombuffer(b"".join(values), dtype)


def is_shared(folder: Path) -> bool:
    """Whether what is made in a folder is for its group: the setgid bit is set."""
    return os.name != "nt" and bool(folder.stat().st_mode & stat.S_ISGID)
