"""Copies of caches on a local disk, for machines of a cluster whose cache is on a network file system.

SQLite opens the copy alone. A cache that is newer than its copy is copied before it is opened, as one file, and a copy
to which something was added is sent back, as one file that takes the place of the other. `images.origin` beside a copy
says which state of both is the same. If two machines add to one cache, the last one that sends stays, and what it lacks
is decoded again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Final

from chestfed.core.checkpoint import write_text
from chestfed.core.disk import check_room
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.images.database import Database, only_writer
from chestfed.data.images.place import FILE

#: Names the folder of the copies.
VARIABLE: Final = "CHESTFED_CACHE_COPY"
_PAUSES: Final = (0.5, 3.0)  # seconds before a second and a third try, if the file changes while it is copied
_COUNTER: Final = slice(24, 28)  # of the changes, in the header of an SQLite file


def find_copies(cache_root: Path) -> Path | None:
    """The folder for copies of the caches of a folder; None if no copies are wanted.

    Raises `ConfigError` if the variable is empty or names no folder.
    """
    given = os.environ.get(VARIABLE)
    if given is None:
        return None
    if not given or not Path(given).is_dir():
        raise ConfigError(
            f"${VARIABLE}: '{given}' is not a folder: name one on a local disk of each machine, or unset it",
            kind="no such folder",
            option=VARIABLE,
        )
    owner = os.getuid() if hasattr(os, "getuid") else ""
    name = hashlib.blake2b(f"{owner} {cache_root.resolve()}".encode(errors="surrogateescape"), digest_size=6)
    return Path(given) / f"chestfed-{name.hexdigest()}"


def open_database(cache_root: Path, site: str) -> Database:
    """The database of a site below a cache folder, or its copy; it may not exist yet.

    Raises `ChestfedError` if the copy cannot be made.
    """
    shared, copies = cache_root / site / FILE, find_copies(cache_root)
    if copies is None:
        return Database(shared)
    database = Database(copies / site / FILE, shared)
    _make_private(copies)
    database.file.parent.mkdir(mode=0o700, exist_ok=True)
    if not _is_current(database):
        with only_writer(database):
            if not _is_current(database):  # another process may have done it meanwhile
                check_room(copies, shared.stat().st_size, f"the copy of {shared}", f"${VARIABLE}")
                _copy(shared, database.file, 0o600)
                _note(database)
    return database


def publish(database: Database) -> None:
    """Send a copy back to which something was added; without a copy nothing is to be done.

    Raises `ChestfedError` if it cannot be written; the copy stays.
    """
    origin = database.origin
    if origin is None or (origin.exists() and _read_note(database)[1:] == [_read_counter(database.file)]):
        return
    shared = Database(origin)
    if origin.exists() and not shared.writable:
        print(f"{origin}: cannot be written by this user; what was added stays in {database.file}", file=sys.stderr)
        return
    with only_writer(database):
        mode = shared.make_place()
        _copy(database.file, origin, mode)
        _note(database)


def _make_private(folder: Path) -> None:
    """A folder of this user: disks of machines have folders in which everybody writes."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise ChestfedError(
            f"${VARIABLE}: {folder} cannot be made ({error.strerror})", kind="cannot be written", option=VARIABLE
        ) from None
    foreign = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o077)
    if foreign or not stat.S_ISDIR(status.st_mode):
        raise ChestfedError(
            f"${VARIABLE}: {folder} is not a folder that only you can open: remove it, or name another place",
            kind="not private",
            option=VARIABLE,
        )


def _is_current(database: Database) -> bool:
    """Whether the copy has all that its origin has."""
    assert database.origin is not None
    if not database.origin.exists():
        return True
    return database.file.exists() and _read_note(database)[:1] == [_stamp(database.origin)]


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _read_counter(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(_COUNTER.stop)[_COUNTER].hex()


def _note(database: Database) -> None:
    """Note that both are alike now."""
    assert database.origin is not None
    write_text(_place_note(database), f"{_stamp(database.origin)}\n{_read_counter(database.file)}\n")


def _read_note(database: Database) -> list[str]:
    """The stamp of the origin and the counter of the copy when both were alike; empty if they never were."""
    place = _place_note(database)
    return place.read_text(encoding="utf-8").splitlines() if place.exists() else []


def _place_note(database: Database) -> Path:
    return database.file.with_suffix(".origin")


def _copy(source: Path, target: Path, mode: int) -> None:
    """A whole copy in place of the target, never a part of one, nor one of a file that is being written."""
    part = target.with_name(f"{target.name}-{os.uname().nodename if hasattr(os, 'uname') else ''}-{os.getpid()}")
    try:
        for pause in (*_PAUSES, None):
            before = _stamp(source)
            with source.open("rb") as opened, open(part, "wb", opener=_open_private) as written:
                shutil.copyfileobj(opened, written, 1 << 22)
                written.flush()
                os.fsync(written.fileno())
            journal = source.with_name(f"{source.name}-journal").exists()
            if before == _stamp(source) and not journal:
                part.chmod(mode)
                part.replace(target)
                return
            if pause is None:
                raise ChestfedError(
                    f"{source}: it is being written, so it cannot be copied. Run the same command when the other has "
                    f"ended; if there is none, `chestfed cache list {source.parents[1]}` repairs what it has left",
                    kind="busy cache",
                    file=source.name,
                )
            time.sleep(pause)
    except OSError as error:
        raise ChestfedError(
            f"{target}: cannot be copied from {source} ({error.strerror}): look at both disks, or unset ${VARIABLE}",
            kind="cache not copied",
            file=target.name,
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_TRUNC, 0o600)
