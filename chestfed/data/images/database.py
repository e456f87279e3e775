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

Pixels are read without any lock, by a connection that each thread keeps (`immutable=1`). What another process changes
meanwhile differs from its digest, and is read again with a lock.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import xxhash
from filelock import FileLock, Timeout

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
#: Days between two notes of a use; of a copy more, because a note sends the whole file back.
_NOTED_AGAIN: Final = 1
_COPY_NOTED_AGAIN: Final = 30
#: Connections that a thread keeps, and KiB of pages of each: the index of some hundred thousand images.
_KEPT: Final = 16
_PAGES_KEPT: Final = 1_024
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

    Every method raises `ChestfedError` if the file is damaged as a whole, or cannot be read. `origin` is the file that
    this one is a copy of (`copies.py`).
    """

    def __init__(self, file: Path, origin: Path | None = None) -> None:
        self.file, self.origin = file, origin

    @property
    def home(self) -> Path:
        """The folder of caches that it belongs to."""
        return (self.origin or self.file).parents[1]

    @property
    def writable(self) -> bool:
        """Whether this user can change it."""
        return os.access(self.file.parent, os.W_OK) and os.access(self.file, os.W_OK)

    def create(self) -> None:
        """Make the file, if there is none, for its owner only, or for the group if the folder is setgid.

        Raises `ChestfedError` if it cannot be made, or belongs to another user.
        """
        self.make_place(begin=True)
        _thread_readers().close(self.file)  # which may know an earlier state
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

    def make_place(self, *, begin: bool = False) -> int:
        """Make the folder, and with `begin` an empty file in it; returns the mode that the file has, or is to have."""
        folder = self.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mode = 0o660 if is_shared(folder) else 0o600
            if not self.file.exists():
                if is_shared(folder):
                    folder.chmod(folder.stat().st_mode | 0o070)
                if begin:
                    os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
                    self.file.chmod(mode)
        except OSError as error:
            if isinstance(error, PermissionError) and folder.exists() and not os.access(folder, os.X_OK):
                raise self._make_access_error() from None
            raise ChestfedError(
                f"{folder}: the cache cannot be created ({error.strerror}); choose another with --cache"
            ) from None
        return mode

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

    def read_pixels(self, numbers: np.ndarray, digests: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write pixels with these numbers, int64 `[n]`, into uint8 `[n, bytes]`.

        Returns which are as their digests, `KEY [n]`, say: bool `[n]`. The others are missing or damaged.
        """
        wanted = list(zip(numbers.tolist(), unpack_keys(digests), out, strict=True))
        sound = np.zeros(len(wanted), bool)
        with suppress(sqlite3.Error):
            sound[:] = _copy_pixels(_thread_readers().connect(self.file), wanted)
        if not sound.all():
            _thread_readers().close(self.file)
            with self.open_reading() as connection:
                sound[:] = _copy_pixels(connection, wanted)
        return sound

    def mark_used(self, kind: str) -> None:
        """Note the time of the last use of a kind, at most once a day; nothing where this user cannot write."""
        days = _NOTED_AGAIN if self.origin is None else _COPY_NOTED_AGAIN
        if self.writable and time.time() - self.kinds().get(kind, 0) > days * _DAY:
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
            also = "" if self.origin is None else f" and {self.origin}, of which it is a copy"
            text = f"this cache is damaged ({error}). If no other process uses it, delete this file{also}"
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


class _Readers:
    """The connections of one thread that take no lock, by file; the least used are closed first."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._open: OrderedDict[Path, sqlite3.Connection] = OrderedDict()

    def connect(self, file: Path) -> sqlite3.Connection:
        """Its connection, opened if need be."""
        if file not in self._open:
            while len(self._open) >= _KEPT:
                self._open.popitem(last=False)[1].close()
            place = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
            # A thread that ends may leave it to another one to be closed.
            connection = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
            connection.execute(f"PRAGMA cache_size = -{_PAGES_KEPT}")
            self._open[file] = connection
        self._open.move_to_end(file)
        return self._open[file]

    def close(self, file: Path) -> None:
        """Close its connection, which knows an earlier state of the file."""
        if file in self._open:
            self._open.pop(file).close()

    def __del__(self) -> None:
        for connection in self._open.values() if self.process == os.getpid() else ():
            connection.close()


_THREAD: Final = threading.local()


def _thread_readers() -> _Readers:
    """Connections of this thread; a fork has its own."""
    readers: _Readers | None = getattr(_THREAD, "readers", None)
    if readers is None or readers.process != os.getpid():
        readers = _THREAD.readers = _Readers()
    return readers


def _copy_pixels(connection: sqlite3.Connection, wanted: Sequence[tuple[int, bytes, np.ndarray]]) -> list[bool]:
    """Write pixels of numbers into places; whether each is as its digest says."""
    sound = []
    for number, digest, place in wanted:
        row = connection.execute("SELECT data FROM pixels WHERE number = ?", (number,)).fetchone()
        data = b"" if row is None or not isinstance(row[0], bytes) else row[0]
        sound.append(len(data) == len(place) and digest_pixels(data) == digest)
        if sound[-1]:
            place[:] = np.frombuffer(data, np.uint8)
    return sound


@contextmanager
def only_writer(database: Database) -> Iterator[None]:
    """One process at a time makes results; none has to wait where nothing can be written."""
    folder = database.file.parent
    if not (database.writable if database.file.exists() else os.access(folder, os.W_OK)):
        yield
        return
    lock = FileLock(database.file.with_suffix(".lock"), mode=0o660 if is_shared(folder) else 0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is filling {database.file}; waiting for it", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


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
