"""Decoded images on disk, made once, in the store of their site (`file_store.py`):

    <cache root>/<site>/
        pixels-SIZE-DIGEST.sqlite   content of a file -> number of its record, digests of its pixels and of the picture
                                    that they were made of, or why it cannot be decoded
        pixels-SIZE-DIGEST.u8       records of SIZE x SIZE bytes, one after the other

Pixels reach the disk before their index entries, so a process that is killed loses at most the last batch; one process
writes at a time, any number read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from chestfed.core.errors import ImageError, Problem, SiteError
from chestfed.images.decode import prepared
from chestfed.images.file_store import Files, Kind, SiteStore, Table
from chestfed.images.index import KEY, Index, blobs, let_the_group_write, unwritable
from chestfed.images.levels import Stored
from chestfed.images.preprocess import Preprocess

if TYPE_CHECKING:
    from chestfed.images.batches import Rows  # with torch, which the processes that decode do without

_SKIP_ADVICE: Final = "fix or remove these files, or leave them out and count them with --skip-unreadable"
#: Of a cached image: its record (-1: none), digests of its pixels and its picture, or why it cannot be decoded.
COLUMNS: Final = {"record": np.int64, "digest": KEY, "source": KEY, "reason": object}


@dataclass(frozen=True, eq=False)
class CachedImages:
    """The cached images of a table's rows, in their order."""

    file: Path  #: the records
    size: int
    records: np.ndarray  #: int64 `[n]`: number of each row's record, -1 for a quarantined one
    digests: np.ndarray  #: 16 bytes per row, of the pixels, `KEY [n]`; zeros for a quarantined one
    #: The same of the picture itself, whatever the size and fit: of its gray levels, or of a JPEG's compressed data.
    sources: np.ndarray
    quarantined: tuple[Problem, ...]  #: why rows have no image

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels uint8 `[n, size, size]` of some rows, each checked against its digest.

        Raises `ImageError` if a row is quarantined or the cache is damaged.
        """
        records = self.records[rows]
        if (records < 0).any():
            raise ImageError(f"row {np.asarray(rows)[records < 0][0]} has no readable image")
        pixels = np.zeros((len(records), self.size, self.size), np.uint8)
        try:
            with self.file.open("rb", buffering=0) as file:
                for picture, record in zip(pixels, records.tolist(), strict=True):
                    file.seek(record * picture.size)
                    file.readinto(picture.data)
        except FileNotFoundError:
            pass  # as if its content were wrong
        if [digest_of(picture.data) for picture in pixels] != blobs(self.digests[rows]):
            raise ImageError(
                f"{self.file}: this cache is damaged or was pruned meanwhile. Run `chestfed cache verify`, which "
                f"removes damaged images, then the same command, which decodes them again"
            )
        return pixels

    def take(self, rows: np.ndarray) -> CachedImages:
        """The images of some rows, int `[m]`."""
        return replace(self, records=self.records[rows], digests=self.digests[rows], sources=self.sources[rows])


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

    Raises `SiteError` with all missing and unreadable images in one report, unless `skip_unreadable`: then they are
    quarantined. Raises `ChestfedError` if the disk is full; what was decoded is kept.
    """
    store, kind = SiteStore(cache_root, table), pixels(preprocess)
    index = store.index(kind)
    file = index.file.with_suffix(".u8")
    _forget_lost_records(index, file, preprocess.size)
    files = store.complete(kind, partial(_append, file, index, preprocess.size), workers=workers, progress=progress)
    return _collect(table, file, preprocess.size, files, skip_unreadable)


def lacking_bytes(table: Table, cache_root: Path, preprocess: Preprocess) -> int:
    """What the pixels of these rows take beyond those of this site that are cached, if no two files are equal."""
    file = cache_root / table.name / f"{pixels(preprocess).name}.u8"
    there = file.stat().st_size if file.exists() else 0
    return max(0, table.frame["image"].nunique() * preprocess.size**2 - there)


def _forget_lost_records(index: Index, file: Path, size: int) -> None:
    """Entries whose pixels a cut or missing file has lost are decoded again."""
    last = index.largest("record")  # first: another process may append pixels, and then their entries, meanwhile
    whole = file.stat().st_size // (size * size) if file.exists() else 0
    if last >= whole:
        index.drop("record", [whole], ">=")


def pixels(preprocess: Preprocess) -> Kind[tuple[bytes, bytes] | str]:
    """Cached pixels of one kind of preprocessing."""
    name = f"pixels-{preprocess.size}-{preprocess.digest()}"
    return Kind(name, COLUMNS, partial(_prepare_one, preprocess), "decoding images")


def _prepare_one(preprocess: Preprocess, path: Path, stored: Stored) -> tuple[bytes, bytes] | str:
    """Pixels and digest of the picture that they are made of, or why it cannot be decoded."""
    try:
        square, source = prepared(path, stored, preprocess)
    except ImageError as error:
        return str(error)
    return square.tobytes(), source


def _append(file: Path, index: Index, size: int, results: Mapping[bytes, tuple[bytes, bytes] | str]) -> None:
    """Write records and flush them; only then commit their index entries."""
    if not results:
        return
    count = size * size
    entries: list[tuple[bytes, int, bytes, bytes, str | None]] = []
    try:
        with file.open("ab", buffering=0) as pixels:
            let_the_group_write(file)
            # A process that was killed may have left part of a record, or records that no entry names: go on behind.
            pixels.seek(0, os.SEEK_END)
            next_record = -(-pixels.tell() // count)
            pixels.truncate(next_record * count)
            for content, result in results.items():
                if isinstance(result, str):
                    entries.append((content, -1, bytes(16), bytes(16), result))
                    continue
                data, source = result
                view = memoryview(data)
                while view:  # an unbuffered write may be short
                    view = view[pixels.write(view) :]
                entries.append((content, next_record, digest_of(data), source, None))
                next_record += 1
            os.fsync(pixels.fileno())
    except OSError as error:
        raise unwritable(file, error) from None
    index.keep(entries)


def _collect(table: Table, file: Path, size: int, files: Files, skip_unreadable: bool) -> CachedImages:
    known, found = files.known, files.found
    records = np.where(known, found["record"], -1)
    reasons = {row: found["reason"][row] for row in np.flatnonzero(known & (records < 0)).tolist()} | files.refused
    problems, lines = [], table.frame["row"].to_numpy()
    for row in sorted({*reasons, *files.failures}):
        image, line = str(table.frame["image"].iat[row]), int(lines[row])
        if row in reasons:
            problems.append(Problem("unreadable image", image, reasons[row], line, _SKIP_ADVICE))
        else:
            problems.append(files.failures[row].problem(image, line))
    if problems and not skip_unreadable:
        raise SiteError(table.name, problems)
    return CachedImages(file, size, records, found["digest"], found["source"], tuple(problems))


def digest_of(data: bytes | memoryview) -> bytes:
    """16 bytes of a record: against damage, and to tell pictures apart; quick enough for every read."""
    return xxhash.xxh3_128_digest(data)
