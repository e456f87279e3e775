"""What the stores below a cache folder hold; removing what nothing names; checking what is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ChestfedError
from chestfed.images.cache import COLUMNS, digest_of
from chestfed.images.file_store import files_of
from chestfed.images.index import Index, packed, unwritable, writing

_NAMES: Final = {"pixels": "pixels", "facts": "facts of the check", "text": "text in pictures"}


@dataclass(frozen=True)
class Part:
    """One kind of result of a site.

    `unreadable` of the images have no pixels. `used` is the time of the last use, in seconds since 1970.
    """

    site: str
    what: str
    images: int
    unreadable: int
    size: int
    used: float
    place: Path


def parts(cache_root: Path) -> list[Part]:
    """What the folder holds, by site.

    Raises `ChestfedError` if an index cannot be read.
    """
    found = []
    for folder in sorted(path for path in cache_root.glob("*") if path.is_dir()):
        for index in _kinds(folder):
            records = _records(index)
            total = index.count()
            kind, _, rest = index.file.stem.partition("-")
            what = f"{_NAMES[kind]} {rest}" if kind == "pixels" else _NAMES[kind]
            without = total - index.count("record >= 0") if records is not None else 0
            size = index.file.stat().st_size + (records.stat().st_size if records and records.exists() else 0)
            found.append(Part(folder.name, what, total, without, size, index.file.stat().st_mtime, index.file))
    return found


def prune(cache_root: Path, unused_days: float | None = None) -> int:
    """Remove what no file of a site has any more, and lost records; returns the bytes freed.

    With `unused_days` also kinds of results that were not used for so long. No study may be running: its records move.

    Raises `ChestfedError` if something cannot be read or removed.
    """
    before = sum(part.size for part in parts(cache_root))
    for part in parts(cache_root):
        old = unused_days is not None and time.time() - part.used > unused_days * 86400
        try:
            if old:
                part.place.unlink()
                part.place.with_suffix(".u8").unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(part.place, error) from None
    for folder in (path for path in cache_root.glob("*") if path.is_dir()):
        named = [packed([row[2] for row in rows]) for rows in files_of(folder).all()]
        for index in _kinds(folder):
            with writing(index.file):
                index.drop_damaged()
                if named:  # without it nothing is known of what is in use
                    _drop_unnamed(index, np.unique(np.concatenate(named).view("S16")))
                _close_gaps(index)
    return before - sum(part.size for part in parts(cache_root))


def verify(cache_root: Path, progress: Callable[[str, int, int], None] | None = None) -> dict[Path, tuple[int, int]]:
    """Check every record and every index; what is damaged is removed, so that it is made again when it is needed.

    Returns index -> entries checked and entries removed; `progress(site, done, total)`.

    Raises `ChestfedError` if an index is damaged: it says which file to delete.
    """
    found = {}
    for folder in sorted(path for path in cache_root.glob("*") if path.is_dir()):
        for index in (files_of(folder), *_kinds(folder)):
            total = index.count()
            damaged = index.drop_damaged()
            lost, done = list[bytes](), damaged
            for rows in index.all():
                lost += [row[0] for row in rows if _records(index) is not None and not _is_sound(index, row)]
                done += len(rows)
                if progress is not None:
                    progress(folder.name, done, total)
            index.drop("key", lost)
            index.check()
            if index.file.exists():
                found[index.file] = total, damaged + len(lost)
    return found


def _kinds(folder: Path) -> Iterator[Index]:
    for file in sorted(folder.glob("*.sqlite")):
        kind = file.stem.partition("-")[0]
        if kind in _NAMES:
            yield Index(file, COLUMNS if kind == "pixels" else {})


def _records(index: Index) -> Path | None:
    """The records that belong to an index, if it is one of pixels."""
    return index.file.with_suffix(".u8") if index.file.stem.startswith("pixels-") else None


def _length(index: Index) -> int:
    """Bytes of a record: the name says the side of the square."""
    return int(index.file.stem.split("-")[1]) ** 2


def _is_sound(index: Index, row: tuple[bytes, int, bytes, bytes, str | None]) -> bool:
    _, record, digest, _, reason = row
    return reason is not None if record < 0 else digest_of(_read(index, record)) == digest


def _read(index: Index, record: int) -> bytes:
    try:
        with index.file.with_suffix(".u8").open("rb") as file:
            file.seek(record * _length(index))
            return file.read(_length(index))
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ChestfedError(f"{index.file.with_suffix('.u8')}: cannot be read: {error.strerror}") from None


def _drop_unnamed(index: Index, named: np.ndarray) -> None:
    for rows in list(index.all()):
        keys = [row[0] for row in rows]
        there = np.isin(packed(keys).view("S16"), named)
        index.drop("key", [key for key, kept in zip(keys, there, strict=True) if not kept])


def _close_gaps(index: Index) -> None:
    """Move the last records into the gaps, and cut the file behind them.

    A killed process leaves a whole cache: a gap is filled and on the disk before the index names it.
    """
    file, count = _records(index), _length(index) if _records(index) is not None else 0
    if file is None or not file.exists():
        return
    entries = {row[1]: row for rows in index.all() for row in rows if row[1] >= 0}
    gaps = [place for place in range(len(entries)) if place not in entries]
    last = sorted((record for record in entries if record >= len(entries)), reverse=True)
    try:
        with file.open("r+b") as pixels:
            for gap, record in zip(gaps, last, strict=True):
                data = _read(index, record)
                pixels.seek(gap * count)
                pixels.write(data)
            pixels.flush()
            index.keep([(entries[old][0], gap, *entries[old][2:]) for gap, old in zip(gaps, last, strict=True)])
            pixels.truncate(len(entries) * count)
    except OSError as error:
        raise unwritable(file, error) from None
