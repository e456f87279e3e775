"""What is known of a site's image files, kept on disk by their content.

    <cache root>/<site>/
        cache.json       what this is, for people
        salt             secret of the keys
        files.sqlite     keyed hash of a path -> stamp of the file (size, times, inode), keyed digest of its content
        KIND.sqlite      digest of the content -> one kind of result: cached pixels, facts of a check, text in a picture

A file whose path and stamp are known is not opened. Any other is read once: if its content is known (it was touched,
copied, moved or renamed) it is not decoded. No file name or patient id is stored.

Only verdicts about a content are kept. What a file server, a lack of memory or a killed decoder prevents is a
`Failure`: it is tried again in the same run, and in each later one. A store that lacks nothing is read without writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import xxhash
from filelock import FileLock

from chestfed.core.errors import ChestfedError, Problem
from chestfed.core.workers import spread
from chestfed.images.compressed import MAX_BYTES
from chestfed.images.index import KEY, Index, blobs, let_the_group_write, lock_mode, packed, writing
from chestfed.images.levels import Stored

if TYPE_CHECKING:
    import pandas as pd

Found = TypeVar("Found")

_BATCH = 64  # files between two commits
_AT_ONCE: Final = 10_000  # rows
_PAUSES = (0.5, 3.0)  # seconds before a second and a third try
_SALT_BYTES: Final = 32
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


class Table(Protocol):
    """What is needed of a site table; its frame has the columns image and row."""

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
        """What a report says of it."""
        title = "missing image" if self.kind == "missing" else NOT_READ_NOW
        return Problem(title, image, self.reason, row, _ADVICE[self.kind])


#: The kind of problem of an image that may be read another time.
NOT_READ_NOW: Final = "image not read this time"
#: Why a row has no image.
MISSING: Final = Failure("missing", "no such file")
_CRASHED: Final = Failure(
    "crash", "its decoder crashed or took over two minutes: damaged, or too large for this machine's memory"
)


class Kind(NamedTuple, Generic[Found]):
    """One kind of result."""

    name: str  #: of its file; another version has another name
    #: Name -> dtype of the columns: `KEY`, a number, or object for text and bytes of any length.
    columns: Mapping[str, Any]
    #: From a path, and what its site says of its gray levels, to a result, in another process: a function of a module,
    #: or a partial one. It may raise OSError and MemoryError.
    work: Callable[[Path, Stored], Found]
    what: str  #: for messages: "decoding images"


@dataclass
class Files:
    """A table's files in a store."""

    contents: np.ndarray  #: keyed digest of each row's content, `KEY [n]`; zeros where there is none
    failures: dict[int, Failure] = field(default_factory=dict)  #: row -> why there is none
    #: Row -> the result of a file that was refused unread, such as one too large; nothing of it is kept.
    refused: dict[int, Any] = field(default_factory=dict)
    #: known, found: whether the row has a result, bool `[n]`, and its columns, `[n]`: zeros without one.
    known: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    found: dict[str, np.ndarray] = field(default_factory=dict)


class SiteStore:
    """The store of one site; the folder is made if need be.

    Raises `ChestfedError` if it cannot be made, or its secret cannot be read.
    """

    def __init__(self, cache_root: Path, table: Table) -> None:
        self.folder, self._table = cache_root / table.name, table
        if not (self.folder / "salt").exists():
            _create(self.folder, table)
        self._files = files_of(self.folder)

    @cached_property
    def _salt(self) -> bytes:
        file = self.folder / "salt"
        try:
            salt = file.read_bytes()
        except PermissionError:
            raise ChestfedError(
                f"{file}: this cache belongs to another user. Its owner can open it to the group with `chmod -R "
                f"g+rX {self.folder}`; or choose another folder with --cache"
            ) from None
        except OSError as error:
            raise ChestfedError(f"{file}: cannot be read: {error.strerror}") from None
        if len(salt) != _SALT_BYTES:  # an empty one would leave the keys without a secret
            raise ChestfedError(f"{file}: damaged. Delete the folder {self.folder}; it will be made again")
        return salt

    def complete(
        self,
        kind: Kind[Found],
        keep: Callable[[Mapping[bytes, Found]], None],
        *,
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Files:
        """Make the results of all rows that are not known yet, and keep them.

        Raises `ChestfedError` if something has to be written and cannot be; what was kept stays.

        Parameters
        ----------
        keep
            Writes results by content.
        workers, progress
            As in `fill_cache`.
        """
        index = self.index(kind)
        names, stamps, files = self._look()
        todo = self._lacking(index, names, stamps, files)
        if len(todo):
            with _only_writer(index):
                todo = self._lacking(index, names, stamps, files)  # another process may have done it meanwhile
                self._make(kind, keep, names, stamps, files, todo, workers, progress)
            files.known, files.found = index.find(files.contents)
        if index.file.exists() and index.writable:
            os.utime(index.file)  # the last use, for `chestfed cache list`
        return files

    def index(self, kind: Kind[Any]) -> Index:
        """The results of a kind."""
        return Index(self.folder / f"{kind.name}.sqlite", kind.columns)

    def _look(self) -> tuple[np.ndarray, np.ndarray, Files]:
        """Keyed hashes of path and stamp of each row's file."""
        images, stored = self._table.frame["image"], self._table.stored()
        root, salt = str(self._table.root), self._salt
        told_by_site = {place: f"\0{tuple(one)}".encode() for place, one in {id(one): one for one in stored}.items()}
        names, stamps, failures = bytearray(), bytearray(), {}
        for start in range(0, len(images), _AT_ONCE):  # as Python's texts, all of them would be large
            for row, image in enumerate(images.iloc[start : start + _AT_ONCE].tolist(), start):
                name = image.encode(errors="surrogateescape") + told_by_site[id(stored[row])]
                names += hashlib.blake2b(name, key=salt, digest_size=16).digest()
                try:
                    status = os.stat(f"{root}/{image}")  # noqa: PTH116 (called for every image: Path is slow)
                    told = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
                    stamps += hashlib.blake2b(told.encode(), key=salt, digest_size=8).digest()
                except (OSError, ValueError) as error:  # a name with a zero byte is of no file
                    stamps += bytes(8)
                    if isinstance(error, ValueError) or error.errno in _ABSENT:
                        failures[row] = MISSING
        return np.frombuffer(names, KEY), np.frombuffer(stamps, "V8"), Files(np.zeros(len(images), KEY), failures)

    def _lacking(self, index: Index, names: np.ndarray, stamps: np.ndarray, files: Files) -> np.ndarray:
        """Rows without a result; contents and results of the others are filled in."""
        known, told = self._files.find(names)
        known &= (told["stamp"] == stamps) & (stamps != np.zeros((), "V8"))
        files.contents[known] = told["content"][known]
        del known, told  # of a large site, much memory
        files.known, files.found = index.find(files.contents)
        done = files.known.copy()
        done[list(files.failures)] = True
        return np.flatnonzero(~done)

    def _make(
        self,
        kind: Kind[Found],
        keep: Callable[[Mapping[bytes, Found]], None],
        names: np.ndarray,
        stamps: np.ndarray,
        files: Files,
        todo: np.ndarray,
        workers: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        total, index = len(todo), self.index(kind)
        images, stored = self._table.frame["image"], self._table.stored()
        work = partial(_result_of, kind.work, index, self._salt)
        for pause in (*_PAUSES, None):
            paths = [f"{self._table.root}/{image}" for image in images.iloc[todo]]
            jobs = list(zip(paths, [stored[row] for row in todo], blobs(files.contents[todo]), strict=True))
            results, done = spread(work, jobs, workers, what=kind.what, crashed=_crashed), 0
            while part := list(islice(results, _BATCH)):
                rows = todo[done : done + len(part)]
                fresh = self._sorted_out(rows, part, files)
                known = index.has(packed(list(fresh)))  # the same picture twice in a site
                keep({key: fresh[key] for key, there in zip(fresh, known, strict=True) if not there})
                if self._files.writable:
                    kept = rows[files.contents[rows] != np.zeros((), KEY)]
                    columns = (blobs(array[kept]) for array in (names, stamps, files.contents))
                    self._files.keep(list(zip(*columns, strict=True)))
                done += len(part)
                if progress is not None:
                    progress(total - len(todo) + done, total)
            failed = {row: files.failures[row].kind for row in todo.tolist() if row in files.failures}
            todo = np.array([row for row, why in failed.items() if why in ("disk", "memory")], np.int64)
            if pause is None or not len(todo):
                return
            workers = 1 if "memory" in failed.values() else workers
            time.sleep(pause)

    def _sorted_out(self, rows: np.ndarray, part: Sequence[tuple[bytes | None, Any]], files: Files) -> dict[bytes, Any]:
        """New results by content; failures and what was refused unread go to the files."""
        fresh = {}
        for row, (content, found) in zip(rows.tolist(), part, strict=True):
            files.failures.pop(row, None)
            if isinstance(found, Failure):
                files.failures[row], files.contents[row] = found, np.zeros((), KEY)
            elif content is None:
                files.refused[row] = found
            else:
                files.contents[row] = np.void(content)
                if found is not None:
                    fresh[content] = found
        return fresh


def _result_of(
    work: Callable[[Path, Stored], Any], index: Index, salt: bytes, job: tuple[str, Stored, bytes]
) -> tuple[bytes | None, Any]:
    """A file's content, None if it was refused unread, and its result: None if the index has it."""
    path, stored, content = Path(job[0]), job[1], job[2]
    try:
        before = path.stat()
        if not stat.S_ISREG(before.st_mode) or before.st_size > MAX_BYTES:
            return None, work(path, stored)
        if not any(content):
            with path.open("rb") as file:
                content = _content_name(salt, stored, file)
        found = None if index.has(packed([content]))[0] else work(path, stored)
        after = path.stat()
    except MemoryError:
        return None, Failure("memory", "not enough memory to decode it")
    except OSError as error:
        return None, failure_of(error)
    except Exception as error:  # OpenCV's has this code where memory is short
        if getattr(error, "code", None) != _OPENCV_NO_MEMORY:
            raise
        return None, Failure("memory", "not enough memory to decode it")
    if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
        return None, Failure("disk", "it changed while it was read")
    return content, found


def _content_name(salt: bytes, stored: Stored, file: BinaryIO) -> bytes:
    """Keyed digest; XXH3 reads a file at the speed of memory, and its secret seed leaves nobody to make two alike."""
    seed = int.from_bytes(salt[:8], "little")
    content = hashlib.file_digest(file, partial(xxhash.xxh3_128, seed=seed)).digest()  # type: ignore[arg-type]
    return hashlib.blake2b(repr(tuple(stored)).encode() + content, key=salt, digest_size=16).digest()


def failure_of(error: OSError) -> Failure:
    """What an error of the operating system says of a file: nothing about its content."""
    if error.errno in _ABSENT:
        return MISSING
    if error.errno == errno.ENOMEM:
        return Failure("memory", "not enough memory to read it")
    denied = error.errno in (errno.EACCES, errno.EPERM)
    return Failure("denied" if denied else "disk", f"cannot be read ({error.strerror or type(error).__name__})")


def _crashed(_: object) -> tuple[None, Failure]:
    return None, _CRASHED


def files_of(folder: Path) -> Index:
    """The paths, stamps and contents of a store."""
    return Index(folder / "files.sqlite", {"stamp": "V8", "content": KEY})


def _create(folder: Path, table: Table) -> None:
    """A folder with a secret that only its owner can read, or the group too if the folder is the group's (setgid)."""
    about = {
        "what": "results of chestfed about image files; safe to delete, made again when needed",
        "site": table.name,
        "synthetic": table.synthetic,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        let_the_group_write(folder)
        with FileLock(folder / "create.lock", mode=lock_mode(folder)):
            if (folder / "salt").exists():
                return
            (folder / "cache.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
            temporary = folder / "salt.part"
            temporary.unlink(missing_ok=True)  # left by a killed process
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_SALT_BYTES))
            let_the_group_write(temporary)
            temporary.replace(folder / "salt")
    except OSError as error:
        raise ChestfedError(
            f"{folder}: the cache cannot be created ({error.strerror}); choose another with --cache"
        ) from None


@contextmanager
def _only_writer(index: Index) -> Iterator[None]:
    """One process at a time; none has to wait where nothing can be written."""
    if not index.writable:
        yield
        return
    with writing(index.file):
        yield
