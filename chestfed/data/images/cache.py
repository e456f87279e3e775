"""Decoded images on disk, made once, in the store of their site (`file_store.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from chestfed.core.errors import ImageError, ImageProblem, Problem, SeveralSitesError, SiteError
from chestfed.data.images.copies import open_database
from chestfed.data.images.database import KEY, Database, digest_pixels
from chestfed.data.images.decode import prepare_image
from chestfed.data.images.file_store import Failure, ImageTable, ResultKind, SiteStore, StoredFiles
from chestfed.data.images.levels import Stored
from chestfed.data.images.place import find_cache
from chestfed.data.images.preprocess import Preprocess

if TYPE_CHECKING:
    from chestfed.data.images.batches import Rows  # with torch, which the processes that decode do without

_SKIP_ADVICE: Final = (
    "fix or remove these files, or leave them out and count them with --skip-unreadable; what was decoded is kept"
)
#: Columns of a cached image: digests of pixels and picture, or why it cannot be decoded.
COLUMNS: Final = {"digest": KEY, "source": KEY, "reason": object}


@dataclass(frozen=True, eq=False)
class CachedImages:
    """The cached images of a table's rows, in their order."""

    database: Database
    size: int
    records: np.ndarray  #: int64 `[n]`: number of each row's pixels, -1 for a quarantined one
    digests: np.ndarray  #: 16 bytes per row, of the pixels, `KEY [n]`; zeros for a quarantined one
    #: Digests like these of the picture, whatever the size and fit: of its gray levels, or of a JPEG's compressed data.
    sources: np.ndarray
    quarantined: tuple[Problem, ...]  #: why rows have no image

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels uint8 `[n, size, size]` of some rows, each checked against its digest.

        Raises `ImageError` if a row is quarantined or the cache is damaged.
        """
        records = self.records[rows]
        if (records < 0).any():
            raise ImageError(f"row {np.asarray(rows)[records < 0][0]} has no readable image", kind="unreadable row")
        pixels = np.zeros((len(records), self.size, self.size), np.uint8)
        if not self.database.read_pixels(records, self.digests[rows], pixels.reshape(len(pixels), -1)).all():
            raise ImageError(
                f"{self.database.file}: this cache is damaged or was pruned meanwhile. Run `chestfed cache prune`, "
                f"which removes damaged images, then the same command, which decodes them again",
                kind="damaged cache",
            )
        return pixels

    def take(self, rows: np.ndarray) -> CachedImages:
        """The images of some rows, int `[m]`."""
        return replace(self, records=self.records[rows], digests=self.digests[rows], sources=self.sources[rows])


def fill_cache(
    table: ImageTable,
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
    store = SiteStore(cache_root, table)
    return _fill(store, table, preprocess, workers, progress, skip_unreadable=skip_unreadable)


def fill_caches(
    tables: Mapping[str, ImageTable],
    cache_root: Path,
    preprocess: Preprocess,
    *,
    skip_unreadable: bool = False,
    progress: Callable[[str], Callable[[int, int], None]],
) -> dict[str, CachedImages]:
    """`fill_cache` of several sites by name; `progress(name)` counts the images of one.

    Raises `SiteError` with the missing images of all sites before any is decoded, and with the unreadable ones of all
    sites when all are decoded, which is kept: hours of decoding do not end with the first of several reports.
    """
    stores = {name: SiteStore(cache_root, table) for name, table in tables.items()}
    if not skip_unreadable:
        absent = {name: _list_problems(tables[name], {}, store.absent) for name, store in stores.items()}
        _refuse([SiteError(tables[name].name, problems) for name, problems in absent.items() if problems])
    images, errors = dict[str, CachedImages](), list[SiteError]()
    for name, store in stores.items():
        try:
            images[name] = _fill(store, tables[name], preprocess, None, progress(name), skip_unreadable=skip_unreadable)
        except SiteError as error:
            errors.append(error)
    _refuse(errors)
    return images


def _refuse(errors: Sequence[SiteError]) -> None:
    if errors:
        raise errors[0] if len(errors) == 1 else SeveralSitesError(errors)


def _fill(
    store: SiteStore,
    table: ImageTable,
    preprocess: Preprocess,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
    *,
    skip_unreadable: bool,
) -> CachedImages:
    files = store.complete(pixels(preprocess), workers=workers, progress=progress)
    return _collect(table, store.database, preprocess.size, files, skip_unreadable)


def lacking_bytes(table: ImageTable, cache_root: Path, preprocess: Preprocess) -> int:
    """Bytes of the pixels of these rows minus those of this site that are cached, if no two files are equal."""
    database = open_database(find_cache(cache_root, table.name, table.root), table.name)
    cached = database.count(pixels(preprocess).name, "number >= 0") if database.file.exists() else 0
    return max(0, table.frame["image"].nunique() - cached) * preprocess.size**2


def pixels(preprocess: Preprocess) -> ResultKind[tuple[bytes, bytes] | str]:
    """Cached pixels of one kind of preprocessing."""
    name = f"pixels-{preprocess.size}-{preprocess.digest()}"
    return ResultKind(name, COLUMNS, partial(_prepare_one, preprocess), _encode, "decoding images")


def _prepare_one(preprocess: Preprocess, path: Path, stored: Stored) -> tuple[bytes, bytes] | str:
    """Pixels and digest of the picture that they are made of, or why it cannot be decoded."""
    try:
        square, source = prepare_image(path, stored, preprocess)
    except ImageError as error:
        return str(error)
    return square.tobytes(), source


def _encode(result: tuple[bytes, bytes] | str) -> tuple[tuple[bytes, bytes, str | None], bytes | None]:
    if isinstance(result, str):
        return (bytes(16), bytes(16), result), None
    data, source = result
    return (digest_pixels(data), source, None), data


def _collect(
    table: ImageTable, database: Database, size: int, files: StoredFiles, skip_unreadable: bool
) -> CachedImages:
    undecodable = np.flatnonzero(files.known & (files.numbers < 0)).tolist()
    reasons = {row: files.cells["reason"][row] for row in undecodable} | files.refused
    problems = _list_problems(table, reasons, files.failures)
    if problems and not skip_unreadable:
        raise SiteError(table.name, problems)
    cells = files.cells
    return CachedImages(database, size, files.numbers, cells["digest"], cells["source"], tuple(problems))


def _list_problems(table: ImageTable, reasons: Mapping[int, str], failures: Mapping[int, Failure]) -> list[Problem]:
    """The problems of rows whose image cannot be decoded, for these reasons, or could not be read this time."""
    problems: list[Problem] = []
    lines = table.frame["row"].to_numpy()
    for row in sorted({*reasons, *failures}):
        image, line = str(table.frame["image"].iat[row]), int(lines[row])
        if row in reasons:
            problems.append(ImageProblem("unreadable image", image, reasons[row], line, _SKIP_ADVICE))
        else:
            problems.append(failures[row].problem(image, line))
    return problems
