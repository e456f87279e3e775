"""Results about a site's image files, each made once and found again by the file's content.

    <cache root>/<site>/images.sqlite    see `database.py`

A file whose path and stamp are known is not opened. Any other is read once: if its content is known (it was touched,
copied, moved or renamed) it is not decoded. No file name or patient id is stored.

Only verdicts about a content are kept. An error of a file server, a lack of memory or a killed decoder is a `Failure`:
it is tried again in the same run, and in each later one. A complete store is read without writing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import xxhash

from chestfed.core.errors import ImageProblem, Problem
from chestfed.core.processes.workers import parallel_map
from chestfed.data.images.copies import open_database, publish
from chestfed.data.images.database import FILES, KEY, Database, Row, only_writer, pack_keys, unpack_keys
from chestfed.data.images.decoding.compressed import MAX_BYTES
from chestfed.data.images.levels import Stored
from chestfed.data.images.place import find_cache

if TYPE_CHECKING:
    import pandas as pd

Result = TypeVar("Result")

_BATCH = 64  # files between two commits
_NAMES_AT_ONCE: Final = 10_000
_PAUSES = (0.5, 3.0)  # seconds before a second and a third try
_OPENCV_NO_MEMORY: Final = -4
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
_LACKS_MEMORY: Final = "Fewer --workers need less memory. "
_ADVICE: Final = {
    "missing": "add the file or correct its name, or set rows.missing_image: drop in the YAML to leave out and "
    "count such rows",
    "denied": "the file may be fine: give this user permission to read it (`ls -l` shows the permissions)",
    "disk": "the file may be fine: check the disk or the file server, and run the same command again",
    "memory": f"the file may be fine: {_LACKS_MEMORY}Run the same command again",
    "crash": f"the file may be fine if memory was short: {_LACKS_MEMORY}Run the same command again; if it crashes "
    f"again, export the image again",
}


class ImageTable(Protocol):
    """Needed part of a site table; its frame has the columns image and row."""

    @property
    def name(self) -> str: ...
    @property
    def root(self) -> Path: ...
    @property
    def synthetic(self) -> bool: ...
    @property
    def frame(self) -> pd.DataFrame: ...
    def stored(self) -> list[Stored]: ...


@dataclass(frozen=True)
class Failure:
    """Why a file has no result this time. Nothing of it is kept: a later run tries again."""

    kind: Literal["missing", "denied", "disk", "memory", "crash"]
    reason: str

    def problem(self, image: str, row: int) -> Problem:
        """The problem to report."""
        title = "missing image" if self.kind == "missing" else NOT_READ_NOW
        return ImageProblem(title, image, self.reason, row, _ADVICE[self.kind])


#: The kind of problem of an image that may be read another time.
NOT_READ_NOW: Final = "image not read this time"
#: Why a row has no image.
MISSING: Final = Failure("missing", "no such file")
_CRASHED: Final = Failure(
    "crash", "its decoder crashed or took over two minutes: damaged, or too large for this machine's memory"
)


class ResultKind(NamedTuple, Generic[Result]):
    """One kind of result."""

    name: str  #: of its table; another version has another name
    #: Name -> dtype of the columns: `KEY`, a number, or object for text and bytes of any length.
    columns: Mapping[str, Any]
    #: From a path, and the site's information about its gray levels, to a result, in another process: a function of a
    #: module, or a partial one. It may raise OSError and MemoryError.
    work: Callable[[Path, Stored], Result]
    #: Cells and pixels of a result.
    encode: Callable[[Result], tuple[tuple[Any, ...], bytes | None]]
    what: str  #: for messages: "decoding images"


@dataclass
class StoredFiles:
    """A table's files in a store."""

    contents: np.ndarray  #: keyed digest of each row's content, `KEY [n]`; zeros where there is none
    failures: dict[int, Failure] = field(default_factory=dict)  #: row -> why there is none
    #: Row -> the result of a file that was refused unread, such as one too large; nothing of it is kept.
    refused: dict[int, Any] = field(default_factory=dict)
    #: Whether each row has a result, bool `[n]`.
    known: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  #: of their pixels `[n]`, or -1
    cells: dict[str, np.ndarray] = field(default_factory=dict)  #: by column, `[n]`; zeros without a result


class SiteStore:
    """The store of one site, made if need be.

    Raises `ChestfedError` if it cannot be made or read.
    """

    def __init__(self, cache_root: Path, table: ImageTable) -> None:
        place = find_cache(cache_root, table.name, table.root)
        self.database, self._table = open_database(place, table.name), table
        self.database.create()

    @cached_property
    def _secret(self) -> bytes:
        return self.database.read_secret()

    def complete(
        self,
        kind: ResultKind[Result],
        *,
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> StoredFiles:
        """Make and keep the results of all rows that are not known yet.

        Raises `ChestfedError` if something has to be written and cannot be; what was kept stays.

        Parameters
        ----------
        workers, progress
            As in `fill_cache`.
        """
        names, stamps, _ = self._names
        files = StoredFiles(np.zeros(len(names), KEY), self.absent)
        todo = self._find_missing(kind, names, stamps, files)
        if len(todo):
            with only_writer(self.database):
                todo = self._find_missing(kind, names, stamps, files)  # another process may have done it meanwhile
                self._make(kind, names, stamps, files, todo, workers, progress)
            self._find_results(kind, files)
        self.database.mark_used(kind.name)
        publish(self.database)
        return files

    def _find_results(self, kind: ResultKind[Any], files: StoredFiles) -> None:
        files.known, files.numbers, files.cells = self.database.find(kind.name, kind.columns, files.contents)

    @property
    def absent(self) -> dict[int, Failure]:
        """The rows whose file is not there; no file is opened."""
        return dict.fromkeys(self._names[2], MISSING)

    @cached_property
    def _names(self) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Keyed hashes of path and stamp of each row's file; rows without a file."""
        images, stored = self._table.frame["image"], self._table.stored()
        root, secret = str(self._table.root), self._secret
        suffixes = {
            place: f"\0{tuple(levels)}".encode() for place, levels in {id(item): item for item in stored}.items()
        }
        names, stamps, absent = bytearray(), bytearray(), list[int]()
        for start in range(0, len(images), _NAMES_AT_ONCE):  # as Python's texts, all of them would be large
            for row, image in enumerate(images.iloc[start : start + _NAMES_AT_ONCE].tolist(), start):
                name = image.encode(errors="surrogateescape") + suffixes[id(stored[row])]
                names += hashlib.blake2b(name, key=secret, digest_size=16).digest()
                try:
                    status = os.stat(f"{root}/{image}")  # noqa: PTH116 (called for every image: Path is slow)
                    stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
                    stamps += hashlib.blake2b(stamp.encode(), key=secret, digest_size=8).digest()
                except (OSError, ValueError) as error:  # a name with a zero byte is of no file
                    stamps += bytes(8)
                    if isinstance(error, ValueError) or error.errno in _ABSENT:
                        absent.append(row)
        return np.frombuffer(names, KEY), np.frombuffer(stamps, "V8"), absent

    def _find_missing(
        self, kind: ResultKind[Any], names: np.ndarray, stamps: np.ndarray, files: StoredFiles
    ) -> np.ndarray:
        """Rows without a result; contents and results of the others are filled in."""
        known, _, cells = self.database.find(FILES, {"stamp": "V8", "content": KEY}, names)
        known &= (cells["stamp"] == stamps) & (stamps != np.zeros((), "V8"))
        files.contents[known] = cells["content"][known]
        del known, cells  # of a large site, much memory
        self._find_results(kind, files)
        done = files.known.copy()
        done[list(files.failures)] = True
        return np.flatnonzero(~done)

    def _make(
        self,
        kind: ResultKind[Any],
        names: np.ndarray,
        stamps: np.ndarray,
        files: StoredFiles,
        todo: np.ndarray,
        workers: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        total = len(todo)
        images, stored = self._table.frame["image"], self._table.stored()
        work = partial(_work_on_file, kind, self.database, self._secret)
        for pause in (*_PAUSES, None):
            paths = [f"{self._table.root}/{image}" for image in images.iloc[todo]]
            jobs = list(zip(paths, [stored[row] for row in todo], unpack_keys(files.contents[todo]), strict=True))
            results, done = parallel_map(work, jobs, workers, what=kind.what, crashed=_report_crash), 0
            while part := list(islice(results, _BATCH)):
                rows = todo[done : done + len(part)]
                self._keep(kind, _sort_results(rows, part, files), rows, names, stamps, files)
                done += len(part)
                if progress is not None:
                    progress(total - len(todo) + done, total)
            failed = {row: files.failures[row].kind for row in todo.tolist() if row in files.failures}
            todo = np.array([row for row, why in failed.items() if why in ("disk", "memory")], np.int64)
            if pause is None or not len(todo):
                return
            workers = 1 if "memory" in failed.values() else workers
            time.sleep(pause)

    def _keep(
        self,
        kind: ResultKind[Any],
        results: Mapping[bytes, Any],
        rows: np.ndarray,
        names: np.ndarray,
        stamps: np.ndarray,
        files: StoredFiles,
    ) -> None:
        """Write results by content, and the stamps of their files; the same picture may be twice in a site."""
        tables = {kind.name: [Row(key, *kind.encode(result)) for key, result in results.items()]}
        known, _, _ = self.database.find(kind.name, {}, pack_keys(list(results)))
        tables[kind.name] = [row for row, there in zip(tables[kind.name], known, strict=True) if not there]
        if self.database.writable:
            rows = rows[files.contents[rows] != np.zeros((), KEY)]
            columns = (unpack_keys(array[rows]) for array in (names, stamps, files.contents))
            tables[FILES] = [Row(name, (stamp, key)) for name, stamp, key in zip(*columns, strict=True)]
        if any(tables.values()):
            self.database.add(tables)


def _sort_results(
    rows: np.ndarray, results: Sequence[tuple[bytes | None, Any]], files: StoredFiles
) -> dict[bytes, Any]:
    """New results by content; failures and what was refused unread go to the files."""
    fresh = {}
    for row, (content, result) in zip(rows.tolist(), results, strict=True):
        files.failures.pop(row, None)
        if isinstance(result, Failure):
            files.failures[row], files.contents[row] = result, np.zeros((), KEY)
        elif content is None:
            files.refused[row] = result
        else:
            files.contents[row] = np.void(content)
            if result is not None:
                fresh[content] = result
    return fresh


def _work_on_file(
    kind: ResultKind[Any], database: Database, secret: bytes, job: tuple[str, Stored, bytes]
) -> tuple[bytes | None, Any]:
    """A file's content, None if it was refused unread, and its result: None if the database has it."""
    path, stored, content = Path(job[0]), job[1], job[2]
    try:
        before = path.stat()
        if not stat.S_ISREG(before.st_mode) or before.st_size > MAX_BYTES:
            return None, kind.work(path, stored)
        if not any(content):
            with path.open("rb") as file:
                content = _digest_content(secret, stored, file)
        result = None if database.has(kind.name, content) else kind.work(path, stored)
        after = path.stat()
    except MemoryError:
        return None, Failure("memory", "not enough memory to decode it")
    except OSError as error:
        return None, _classify(error)
    except Exception as error:  # OpenCV's has this code where memory is short
        if getattr(error, "code", None) != _OPENCV_NO_MEMORY:
            raise
        return None, Failure("memory", "not enough memory to decode it")
    if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
        return None, Failure("disk", "it changed while it was read")
    return content, result


def _digest_content(secret: bytes, stored: Stored, file: BinaryIO) -> bytes:
    """Keyed digest; XXH3 reads a file at the speed of memory, and collisions cannot be made without its secret seed."""
    seed = int.from_bytes(secret[:8], "little")
    content = hashlib.file_digest(file, partial(xxhash.xxh3_128, seed=seed)).digest()  # type: ignore[arg-type]
    return hashlib.blake2b(repr(tuple(stored)).encode() + content, key=secret, digest_size=16).digest()


def _classify(error: OSError) -> Failure:
    """The failure that an error of the operating system is: it says nothing about the file's content."""
    if error.errno in _ABSENT:
        return MISSING
    if error.errno == errno.ENOMEM:
        return Failure("memory", "not enough memory to read it")
    denied = error.errno in (errno.EACCES, errno.EPERM)
    return Failure("denied" if denied else "disk", f"cannot be read ({error.strerror or type(error).__name__})")


def _report_crash(_: object) -> tuple[None, Failure]:
    return None, _CRASHED
