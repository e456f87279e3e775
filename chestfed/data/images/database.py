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
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import xxhash

from chestfed.core.disk import find_lock_holder, is_shared
from chestfed.core.errors import ChestfedError

#: dtype of keys and digests; zeros mean that there is none.
KEY: Final = "V16"
FILES: Final = "files"
_FORMAT: Final = 3  # version of the file
_PAGE: Final = 16_384  # bytes; larger pages are read faster, and waste more of the disk
_KEYS_PER_QUERY: Final = 1_000
_SECRET_BYTES: Final = 32
_DAY: Final = 86_400  # seconds
#: Seconds after which a wait for another process is reported, and after which it is given up.
_PATIENCE: Final = 5.0
_LONGEST: Final = 600.0
_SCHEMA: Final = (
    "CREATE TABLE pixels (number INTEGER PRIMARY KEY, data BLOB)",
    "CREATE TABLE kinds (name TEXT PRIMARY KEY, used REAL)",
    "CREATE TABLE secret (value BLOB)",
)


_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")
Answer = TypeVar("Answer")


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
        with self.open_writing() as connection:
            if _format(connection) != _FORMAT:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(_SECRET_BYTES),))
                connection.execute(f"PRAGMA user_version = {_FORMAT}")

    def read_secret(self) -> bytes:
        """The secret of the keys, 32 bytes."""
        with self.open_reading() as connection:
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
        with self.open_reading() as connection:
            for start in range(0, len(unique) if has_table(connection, kind) else 0, _KEYS_PER_QUERY):
                part = unpack_keys(unique[start : start + _KEYS_PER_QUERY])
                condition = f"WHERE key IN ({','.join('?' * len(part))})"
                requested = set(part)  # a damaged file may give other rows
                rows = [
                    row for row, sound in read_rows(connection, kind, condition, part) if sound and row[0] in requested
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
        with self.open_reading() as connection:
            rows = read_rows(connection, kind, "WHERE key = ?", [key]) if has_table(connection, kind) else ()
            return any(sound for _, sound in rows)

    def add(self, tables: Mapping[str, Sequence[Row]]) -> None:
        """Write rows of several kinds, over earlier rows of the same keys, in one transaction.

        Raises `ChestfedError` if that is not possible; what was committed before stays.
        """
        with self.open_writing() as connection:
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
        with self.open_reading() as connection:
            for number, place in zip(numbers, out, strict=True):
                row = connection.execute("SELECT data FROM pixels WHERE number = ?", (number,)).fetchone()
                if row is not None and len(row[0]) == len(place):
                    place[:] = np.frombuffer(row[0], np.uint8)

    def mark_used(self, kind: str) -> None:
        """Note the time of the last use of a kind, at most once a day; nothing where this user cannot write."""
        if self.writable and time.time() - self.kinds().get(kind, 0) > _DAY:
            with suppress(BusyCacheError), self.open_writing(longest=0) as connection:
                connection.execute("INSERT OR REPLACE INTO kinds VALUES (?, ?)", (kind, time.time()))

    def kinds(self) -> dict[str, float]:
        """Kinds of results, with the times of their last use in seconds since 1970."""
        with self.open_reading() as connection:
            return dict(connection.execute("SELECT name, used FROM kinds ORDER BY name"))

    def count(self, kind: str, condition: str = "1") -> int:
        """Number of rows, or of those that meet an SQL condition."""
        with self.open_reading() as connection:
            if not has_table(connection, kind):
                return 0
            return int(connection.execute(f'SELECT count(*) FROM "{kind}" WHERE {condition}').fetchone()[0])

    def _has_tables(self) -> bool:
        with self.open_reading() as connection:
            return has_table(connection, "secret")

    def _make_access_error(self) -> ChestfedError:
        folder = self.file.parent
        return ChestfedError(
            f"{folder}: this cache belongs to another user. Its owner can open it to the group with `chmod -R "
            f"g+rX {folder}`; or choose another folder with --cache"
        )

    @contextmanager
    def open_reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that holds a reader's lock.

        Only a user who can write can roll back what a killed process has left.
        """
        try:
            with closing(self._connect("rw" if self.writable else "ro", "BEGIN")) as connection:
                yield connection
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise self._make_error(error, "read") from None

    @contextmanager
    def open_writing(self, *, transaction: bool = True, longest: float | None = None) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, which is committed at the end, or rolled back by an exception.

        Raises `BusyCacheError` if another process has the lock for so many seconds.
        """
        try:
            with closing(self._connect("rw", "SELECT 1", longest)) as connection:
                connection.execute(f"PRAGMA page_size = {_PAGE}")  # of a new file, as the next one
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                if transaction:
                    self._wait_for(lambda: connection.execute("BEGIN IMMEDIATE"), longest)
                yield connection
                if transaction:
                    self._wait_for(lambda: connection.execute("COMMIT"), longest)
        except sqlite3.DatabaseError as error:
            raise self._make_error(error, "written") from None

    def _connect(self, mode: str, begin: str, longest: float | None = None) -> sqlite3.Connection:
        place = f"{self.file.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            place, timeout=_PATIENCE if longest is None else min(_PATIENCE, longest), uri=True, isolation_level=None
        )
        # Text that is damaged is read all the same: the digest of its row differs.
        connection.text_factory = lambda cell: cell.decode(errors="surrogateescape")
        try:
            connection.execute(begin)
            version = self._wait_for(lambda: _format(connection), longest)
        except sqlite3.Error:
            connection.close()
            raise
        if version not in (0, _FORMAT):  # 0: another process is just making it
            connection.close()
            raise ValueError("written by another version of chestfed")
        return connection

    def _wait_for(self, work: Callable[[], Answer], longest: float | None) -> Answer:
        """Do work that needs a lock; the process that has it is named, and waited for."""
        begun, named, longest = time.monotonic(), False, _LONGEST if longest is None else longest
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not _get_code(error).startswith(_BUSY) or time.monotonic() - begun >= longest:
                    raise
            if not named:
                print(f"{self.file}: {find_lock_holder(self.file)} has locked it; waiting", file=sys.stderr, flush=True)
                named = True

    def _make_error(self, error: Exception, verb: str) -> ChestfedError:
        """The error by its cause: only what is damaged is to be deleted."""
        code = _get_code(error)
        if code.startswith(_BUSY):
            holder = find_lock_holder(self.file)
            text = f"{holder} has it locked for longer than chestfed waits. Nothing is damaged: wait until it has ended"
            return BusyCacheError(f"{self.file}: {text}", kind="busy cache", file=self.file.name, process=holder)
        if not code or code.startswith(_DAMAGED):
            text = f"this cache is damaged ({error}). If no other process uses it, delete this file"
            return ChestfedError(
                f"{self.file}: {text}; it will be made again", kind="damaged cache", file=self.file.name
            )
        journal = self.file.with_name(f"{self.file.name}-journal")
        if verb == "read" and not self.writable and journal.exists():
            advice = "a process that wrote to it was killed: `chestfed cache list` of its owner repairs it"
        elif code.startswith("SQLITE_FULL"):
            advice = "free some space, or choose another folder with --cache. Finished work is kept"
        else:
            advice = "the disk, its quota or the rights on it are the cause, not the file's content. Run the same "
            advice += "command again when these are in order, or choose another folder with --cache"
        text = f"{self.file}: the cache cannot be {verb} now ({error}, {code}): {advice}"
        return ChestfedError(text, kind=f"cache cannot be {verb}", file=self.file.name, code=code)


class BusyCacheError(ChestfedError):
    """Another process holds the lock of the file for too long."""


def _get_code(error: Exception) -> str:
    """SQLite's name of an error, such as SQLITE_IOERR_READ; empty for what is not SQLite's."""
    return str(getattr(error, "sqlite_errorname", ""))


def _format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the file has a table."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def read_rows(
    connection: sqlite3.Connection, kind: str, condition: str = "", values: Sequence[bytes] = ()
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Rows without their digests, and whether each is as it was written."""
    for row in connection.execute(f'SELECT * FROM "{kind}" {condition}', values):
        yield row[:-1], _seal(kind, row[:-1]) == row[-1]


def _seal(kind: str, row: Sequence[object]) -> bytes:
    """Digest of all cells of a row."""
    return xxhash.xxh3_64_digest(ascii((kind, *row)).encode())


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
