"""Folders are tried before hours are spent on what goes into them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chestfed.core.checkpoint import write_text
from chestfed.core.errors import ChestfedError, NotWrittenError


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Name the folder in which something could not be written: what a library raises for a full disk names no file."""
    try:
        yield
    except OSError as error:
        advice = "Make room there, or choose another folder, and run the same command again"
        raise NotWrittenError(f"{folder}: cannot be written: {error.strerror or error}. {advice}", error) from None


def check_folder(folder: Path, option: str) -> None:
    """Make sure that files can be written and renamed in a folder, made if need be; `option` chooses another."""
    probe = folder / ".probe"  # always the same: one that a killed process has left goes with the next
    try:
        str(folder).encode()
        folder.mkdir(parents=True, exist_ok=True)
        write_text(probe, "chestfed\n")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise ChestfedError(
            f"{folder}: cannot be written: {error.strerror}. Choose another with {option}.",
            kind="cannot be written",
            option=option,
        ) from None
    except UnicodeEncodeError:
        raise ChestfedError(
            f"{folder}: this name is not UTF-8, as Parquet needs. Choose another with {option}."
        ) from None
    except ChestfedError as error:
        raise ChestfedError(f"{error} Choose another folder with {option}.") from None


@contextmanager
def making_folder(folder: Path, option: str) -> Iterator[None]:
    """`check_folder`; after an error the folders that it made are removed, unless something is in them."""
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        check_folder(folder, option)
        yield
    except BaseException:
        for place in absent:
            with suppress(OSError):
                place.rmdir()
        raise


def size_text(count: int) -> str:
    """A number of bytes, for people."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(len(str(count)) - 1, 14) // 3
    return f"{count / 1000**power:.{min(power, 1)}f} {units[power]}"


def check_room(folder: Path, needed: int, what: str, option: str) -> None:
    """Make sure that `needed` bytes fit on the disk of a folder that exists."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ChestfedError(
            f"{folder}: {what} need about {size_text(needed)}, and {size_text(free)} are free. Make room, or choose "
            f"another folder with {option}."
        )


def find_lock_holder(file: Path) -> str:
    """The process that has locked a file, in words, as far as the system says (Linux does)."""
    try:
        inode = file.stat().st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
        pids = {int(words[4]) for words in locks if words[1] != "->" and words[5].endswith(f":{inode}")}
        names = [f"process {pid} ({_name_process(pid)})" for pid in sorted(pids - {os.getpid(), -1})]
    except (OSError, ValueError, IndexError):
        names = []
    return " and ".join(names) or "another process, perhaps of another machine,"


def _name_process(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return " ".join(Path(word.decode(errors="replace")).name for word in words[:4] if word)[:60]


def is_shared(folder: Path) -> bool:
    """Whether what is made in a folder is for its group: the setgid bit is set."""
    return os.name != "nt" and bool(folder.stat().st_mode & stat.S_ISGID)
