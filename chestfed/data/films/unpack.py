"""Archives from elsewhere: only the files that are asked for, only below one folder, and only so many bytes."""

from __future__ import annotations

import errno
import hashlib
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Final

from chestfed.core.disk import size_text, writing_to
from chestfed.core.errors import ChestfedError, DamagedError
from chestfed.data.films.download import Progress

_CHUNK: Final = 1 << 20
_MOST_FILES: Final = 200_000
#: Errors of a name: too long, or a file where another entry has a folder.
_IMPOSSIBLE: Final = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.EINVAL, errno.EILSEQ)


def unpack(archive: Path, target: Path, *, strip: int, keep: Sequence[str], most: int, progress: Progress) -> int:
    """Unpack a tar or zip archive into a folder, which is empty; returns the number of files.

    Raises `DamagedError` if it is no archive, a name leads out of the folder, it holds links or devices, it holds none
    of the files, or it unpacks to more than `most` bytes.
    """
    files, total, size = 0, 0, archive.stat().st_size
    with closing(_iterate_members(archive)) as members:
        while True:
            with _reading(archive):
                member = next(members, None)
            if member is None:
                break
            name, stream, done = member
            progress(done, size)
            path = _find_place(archive, name, strip)
            if path is None or not any(fnmatchcase(path, pattern) for pattern in keep):
                continue
            with _make_file(archive, target, path) as out:
                while True:
                    with _reading(archive):
                        chunk = stream.read(_CHUNK)
                    if not chunk:
                        break
                    total += len(chunk)
                    if total > most:
                        raise DamagedError(f"{archive.name}: unpacks to more than {size_text(most)}: refused")
                    out.write(chunk)
            files += 1
            if files > _MOST_FILES:
                raise DamagedError(f"{archive.name}: holds more than {_MOST_FILES:,} files: refused")
    if not files:
        raise DamagedError(f"{archive.name}: holds none of the files that are expected ({', '.join(keep)})")
    progress(size, size)
    return files


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Whatever a decompressor raises means a damaged archive, unless the system says that the file cannot be read."""
    try:
        yield
    except DamagedError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            text = f"{archive}: cannot be read: {error.strerror}. Run the same command again"
            raise ChestfedError(text, kind="cannot be read", file=archive.name) from None
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DamagedError(
            f"{archive.name}: cannot be unpacked ({reason})", kind="damaged archive", file=archive.name
        ) from None


@contextmanager
def _make_file(archive: Path, target: Path, path: str) -> Iterator[IO[bytes]]:
    """A new file below the target; a name that no folder can have is the archive's mistake, not the disk's."""
    place = target / path
    with writing_to(target):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            out = place.open("wb")
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in _IMPOSSIBLE:
                raise
            raise DamagedError(
                f"{archive.name}: holds a file whose name is impossible here", kind="damaged archive", file=archive.name
            ) from None
        with out:
            yield out


def _iterate_members(archive: Path) -> Generator[tuple[str, IO[bytes], int], None, None]:
    """Name, content and place in the archive of each file; a link or device is refused."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise DamagedError(f"{archive.name}: holds a link: refused")
                if not entry.is_dir():
                    with packed.open(entry) as stream:
                        yield entry.filename, stream, entry.header_offset
        return
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r:*") as packed:
        for member in packed:
            if not (member.isfile() or member.isdir()):
                raise DamagedError(f"{archive.name}: holds a link or a device: refused")
            content = packed.extractfile(member)
            if content is not None:
                yield member.name, content, file.tell()
        assert packed.fileobj is not None
        while packed.fileobj.read(_CHUNK):  # else an archive that was cut off looks like a shorter one
            pass


def _find_place(archive: Path, name: str, strip: int) -> str | None:
    """The path below the target; None for what `strip` drops, and for the hidden files of a Mac."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise DamagedError(f"{archive.name}: the name of a file leads out of the folder: refused")
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return None if hidden else "/".join(path.parts[strip:]) or None


def git_id(path: Path) -> str:
    """Git's identifier (SHA-1) of a file, or of a folder of ordinary files."""
    if path.is_dir():
        entries = sorted((entry.name + "/" * entry.is_dir(), entry) for entry in path.iterdir())
        content = b"".join(
            (b"40000 " if entry.is_dir() else b"100644 ") + entry.name.encode() + b"\0" + bytes.fromhex(git_id(entry))
            for _, entry in entries
        )
        return _hash_object(b"tree", content)
    return _hash_object(b"blob", path.read_bytes())


def _hash_object(kind: bytes, content: bytes) -> str:
    return hashlib.sha1(kind + b" %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def move_into(source: Path, target: Path) -> None:
    """Move everything in a folder to another on the same disk; files of the same name are replaced."""
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir() and place.is_dir():
            move_into(entry, place)
        else:
            entry.replace(place)
    shutil.rmtree(source)
