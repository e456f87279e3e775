"""One pass over a site's image files, in parallel: one row of facts per image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from chestfed.images.cache import CRASHED, image_keys
from chestfed.inspection.facts import BINS, Facts, Job, jobs_of, look_at
from chestfed.inspection.resumed import resumed
from chestfed.inspection.store import kept_facts, scan_folder

if TYPE_CHECKING:
    from chestfed.sites.table import SiteTable

#: Why a row has no facts.
MISSING: Final = "no such file"
_COLUMNS: Final = (
    "error",
    "format",
    "wrong_suffix",
    "width",
    "height",
    "bits",
    "mode",
    "syntax",
    "colored",
    "blank",
    "mean",
    "std",
    "polarity",
    "unwindowed",
)


@dataclass(frozen=True, eq=False)
class Scan:
    """What the images of a table's rows are, in their order.

    Attributes
    ----------
    table
        The rows.
    frame
        One row per image: the plain attributes of `Facts`; an image that cannot be read has an `error`.
    digests
        16 bytes per row; empty without a picture.
    hashes
        Perceptual hashes uint8 `[n, 32]`.
    hashed
        Which rows have one, bool `[n]`: not the unreadable and blank pictures.
    histograms
        Pixels per bin of the preprocessed pictures, int32 `[n, 64]`.
    """

    table: SiteTable
    frame: pd.DataFrame
    digests: tuple[bytes, ...]
    hashes: np.ndarray
    hashed: np.ndarray
    histograms: np.ndarray

    @property
    def readable(self) -> np.ndarray:
        """Which rows have a picture, bool `[n]`."""
        return (self.frame["error"] == "").to_numpy(dtype=bool)


def scan_images(
    table: SiteTable,
    cache_root: Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scan:
    """Inspect the image of every row; results of an earlier call are reused unless the file has changed.

    `workers` processes decode (default: one per core); `progress(done, total)` counts the images to inspect.

    Raises
    ------
    ChestfedError
        If the results cannot be saved.
    """
    folder, salt = scan_folder(cache_root, table.name)
    store = kept_facts(folder)
    keys = image_keys(table, salt)
    known = resumed(
        keys,
        jobs_of(table),
        _look_at,
        find=store.find,
        keep=store.keep,
        lasting=lambda facts: facts.error not in (CRASHED, MISSING),
        crashed=_crashed,
        what="looking at images",
        workers=workers,
        progress=progress,
    )
    missing = Facts(error=MISSING)
    return _scan(table, [missing if key is None else known[key] for key in keys])


def _scan(table: SiteTable, facts: Sequence[Facts]) -> Scan:
    columns = {name: [getattr(one, name) for one in facts] for name in _COLUMNS}
    hashed = np.array([bool(one.hash) for one in facts], dtype=bool)
    hashes = np.frombuffer(b"".join(one.hash or bytes(32) for one in facts), np.uint8).reshape(-1, 32)
    histograms = np.stack([one.histogram for one in facts]) if facts else np.zeros((0, BINS), np.int32)
    return Scan(table, pd.DataFrame(columns), tuple(one.digest for one in facts), hashes, hashed, histograms)


def _look_at(job: Job) -> Facts:
    try:
        return look_at(job)
    except FileNotFoundError:  # removed meanwhile
        return Facts(error=MISSING)


def _crashed(_: Job) -> Facts:
    return Facts(error=CRASHED)
