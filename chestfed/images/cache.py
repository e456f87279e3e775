"""Decoded images on disk, made once.

One folder per site and kind of preprocessing:

    <cache root>/<site>-<preprocess digest>/
        cache.json      what this is, for people
        salt            secret of the keys, readable by its owner only
        index.sqlite    key of an image -> number of its record, digests of its pixels and of the picture that they were
                        made of, or why it is unreadable
        pixels.u8       records of size x size bytes, one after the other

The key of an image is a keyed hash of its path, size, time of change and what its site says of its gray levels
(`Stored`): no file name or patient id is stored, and a file that changes is decoded anew. Pixels reach the disk before
their index entries, so a process that is killed loses at most the last batch; one process writes at a time, any number
read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from filelock import FileLock, Timeout

from chestfed.core.errors import ChestfedError, ImageError, Problem, SiteError
from chestfed.core.workers import spread
from chestfed.images.decode import decode, picture_digest
from chestfed.images.folder import make_salt, read_salt, reading
from chestfed.images.levels import Stored
from chestfed.images.preprocess import Preprocess

if TYPE_CHECKING:
    import pandas as pd

_BATCH = 64  # images between two commits
#: Why a file that ended the process of its decoder has no pixels.
CRASHED = "its decoder crashed or took over two minutes: damaged, or too large for this machine's memory"
_SKIP_ADVICE = "fix or remove these files, or leave them out and count them with --skip-unreadable"


class Table(Protocol):
    """What the cache needs of a site table: columns image, row."""

    @property
    def name(self) -> str:
        """Short name of the site."""
        ...

    @property
    def root(self) -> Path:
        """Folder of the images."""
        ...

    @property
    def synthetic(self) -> bool:
        """Whether the site is synthetic."""
        ...

    @property
    def frame(self) -> pd.DataFrame:
        """One row per image."""
        ...

    def stored(self) -> list[Stored]:
        """How the file of each row holds its gray levels."""
        ...


@dataclass(frozen=True)
class CachedImages:
    """The cached images of a table's rows, in their order.

    Attributes
    ----------
    records
        int64 `[n]`: number of each row's record, -1 for a quarantined one.
    digests
        16 bytes per row, of the pixels; zeros for a quarantined one.
    sources
        The same of the gray levels as decoded: they depend on the picture, and on no size or fit.
    quarantined
        Why rows have no image.
    """

    folder: Path
    size: int
    records: np.ndarray
    digests: tuple[bytes, ...]
    sources: tuple[bytes, ...]
    quarantined: tuple[Problem, ...]

    def read(self, row: int) -> np.ndarray:
        """Pixels uint8 `[size, size]` of a row, checked against their digest.

        Raises
        ------
        ImageError
            If the row is quarantined or the cache is damaged.
        """
        record = int(self.records[row])
        if record < 0:
            raise ImageError(f"row {row} has no readable image")
        count = self.size * self.size
        with (self.folder / "pixels.u8").open("rb", buffering=0) as file:
            file.seek(record * count)
            data = bytearray(count)  # which gives an array that can be written to
            file.readinto(data)
        if _digest(data) != self.digests[row]:
            raise ImageError(f"the cache {self.folder} is damaged: delete this folder; it will be filled again")
        return np.frombuffer(data, np.uint8).reshape(self.size, self.size)


class _Entry(NamedTuple):
    """What the index holds of an image."""

    record: int
    digest: bytes
    source: bytes
    reason: str | None


def fill_cache(
    table: Table,
    cache_root: Path,
    preprocess: Preprocess,
    *,
    workers: int | None = None,
    skip_unreadable: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CachedImages:
    """Decode what is not in the cache yet; returns the images of all rows.

    `workers` processes decode (default: one per core); `progress(done, total)` counts the images to decode.

    Raises
    ------
    SiteError
        All missing and unreadable images in one report, unless `skip_unreadable`: then they are quarantined.
    ChestfedError
        If the disk is full; what was decoded is kept.
    """
    folder = cache_root / f"{table.name}-{preprocess.digest()}"
    _create(folder, table, preprocess)
    keys = image_keys(table, read_salt(folder))
    known = _lookup(folder, keys)
    todo = [row for row, key in enumerate(keys) if key is not None and key not in known]
    if todo:
        with _only_writer(folder):
            known = _lookup(folder, keys)  # another process may have done the work meanwhile
            todo = [row for row in todo if keys[row] not in known]
            _decode_all(folder, table, preprocess, keys, todo, workers, progress)
        known = _lookup(folder, keys)
    return _collect(folder, table, preprocess, keys, known, skip_unreadable)


def _create(folder: Path, table: Table, preprocess: Preprocess) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "create.lock"):
            make_salt(folder)
            if not (folder / "cache.json").exists():
                description = {
                    "what": "decoded images; safe to delete; it is filled again when needed",
                    "site": table.name,
                    "synthetic": table.synthetic,
                    "preprocess": preprocess.model_dump(),
                }
                (folder / "cache.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
            with reading(folder), closing(_connect(folder)) as index, index:
                index.execute(
                    "CREATE TABLE IF NOT EXISTS image "
                    "(key BLOB PRIMARY KEY, record INTEGER, digest BLOB, source BLOB, reason TEXT) WITHOUT ROWID"
                )
    except OSError as error:
        raise ChestfedError(
            f"{folder}: the cache cannot be created ({error.strerror}); choose another with --cache"
        ) from None


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "index.sqlite", timeout=60)


def image_keys(table: Table, salt: bytes) -> list[bytes | None]:
    """Key per row: a hash of path, size, time of change and `Stored`, keyed with `salt`; None without a file."""
    keys: list[bytes | None] = []
    root = str(table.root)
    for image, stored in zip(table.frame["image"], table.stored(), strict=True):
        try:
            status = os.stat(f"{root}/{image}")  # noqa: PTH116 (called for every image of a site: Path is slow)
        except (OSError, ValueError):  # a name with a zero byte is of no file
            keys.append(None)
            continue
        text = f"{image}\0{status.st_size}\0{status.st_mtime_ns}\0{tuple(stored)}"
        keys.append(hashlib.blake2b(text.encode(errors="surrogateescape"), key=salt, digest_size=16).digest())
    return keys


def _lookup(folder: Path, keys: Sequence[bytes | None]) -> dict[bytes, _Entry]:
    """Index entries of the given keys."""
    found: dict[bytes, _Entry] = {}
    wanted = [key for key in keys if key is not None]
    with reading(folder), closing(_connect(folder)) as index:
        for start in range(0, len(wanted), 900):
            part = wanted[start : start + 900]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, record, digest, source, reason FROM image WHERE key IN ({marks})"
            found |= {key: _Entry(*values) for key, *values in index.execute(query, part)}
    return found


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    lock = FileLock(folder / "write.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is filling {folder}; waiting for it", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _decode_all(
    folder: Path,
    table: Table,
    preprocess: Preprocess,
    keys: Sequence[bytes | None],
    todo: Sequence[int],
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    images, stored = table.frame["image"].tolist(), table.stored()
    jobs = [(str(table.root / images[row]), stored[row], preprocess) for row in todo]
    done = 0
    with closing(_connect(folder)) as index, (folder / "pixels.u8").open("ab", buffering=0) as pixels:
        results = spread(_decode_one, jobs, workers, what="decoding images", crashed=_crashed)
        while part := list(islice(results, _BATCH)):
            _append(pixels, index, [keys[row] for row in todo[done : done + len(part)]], part, preprocess.size)
            done += len(part)
            if progress is not None:
                progress(done, len(todo))


def _decode_one(job: tuple[str, Stored, Preprocess]) -> tuple[bytes, bytes] | str:
    """Pixels and digest of the picture that they are made of, or why it cannot be decoded."""
    path, stored, preprocess = job
    try:
        gray = decode(Path(path), stored, preprocess.levels)
        return preprocess.apply(gray).tobytes(), picture_digest(gray)
    except ImageError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _crashed(_: tuple[str, Stored, Preprocess]) -> tuple[bytes, bytes] | str:
    return CRASHED


def _append(
    pixels: Any,
    index: sqlite3.Connection,
    keys: Sequence[bytes | None],
    results: Sequence[tuple[bytes, bytes] | str],
    size: int,
) -> None:
    """Write records and flush them; only then commit their index entries."""
    count = size * size
    # A process that was killed may have left part of a record, or records that no entry names: go on behind them.
    pixels.seek(0, os.SEEK_END)
    next_record = -(-pixels.tell() // count)
    entries: list[tuple[bytes | None, int, bytes, bytes, str | None]] = []
    try:
        pixels.truncate(next_record * count)
        for key, result in zip(keys, results, strict=True):
            if isinstance(result, str):
                entries.append((key, -1, b"", b"", result))
                continue
            data, source = result
            view = memoryview(data)
            while view:  # an unbuffered write may be short
                view = view[pixels.write(view) :]
            entries.append((key, next_record, _digest(data), source, None))
            next_record += 1
        os.fsync(pixels.fileno())
        with index:
            index.executemany("INSERT OR REPLACE INTO image VALUES (?, ?, ?, ?, ?)", entries)
    except (OSError, sqlite3.DatabaseError) as error:
        raise ChestfedError(
            f"the image cache cannot be written ({error}): free some space or choose another folder with --cache. "
            "What was decoded is kept."
        ) from None


def _collect(
    folder: Path,
    table: Table,
    preprocess: Preprocess,
    keys: Sequence[bytes | None],
    known: dict[bytes, _Entry],
    skip_unreadable: bool,
) -> CachedImages:
    records, digests, sources, problems = np.full(len(keys), -1, np.int64), [], [], []
    images, rows = table.frame["image"].tolist(), table.frame["row"].tolist()
    for position, key in enumerate(keys):
        digest = source = bytes(16)
        if key is None:
            problems.append(
                Problem("missing image", images[position], "no such file", int(rows[position]), _SKIP_ADVICE)
            )
        else:
            found = known[key]
            if found.reason is None:
                records[position], digest, source = found.record, found.digest, found.source
            else:
                problem = Problem("unreadable image", images[position], found.reason, int(rows[position]), _SKIP_ADVICE)
                problems.append(problem)
        digests.append(digest)
        sources.append(source)
    if problems and not skip_unreadable:
        raise SiteError(table.name, problems)
    return CachedImages(folder, preprocess.size, records, tuple(digests), tuple(sources), tuple(problems))


def _digest(data: bytes | bytearray) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
