"""One pass over a site's image files, in parallel: one row of facts per image."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from chestfed.data.checks.facts import BINS, FACTS_VERSION, HASH_BYTES, HASHES, ImageFacts, look_at
from chestfed.data.images.file_store import Failure, ResultKind, SiteStore

if TYPE_CHECKING:
    from chestfed.data.sites.table import SiteTable

#: Facts stored in columns of their own.
_BYTES: Final = ("digest", "hash", "histogram")
#: The other attributes of `ImageFacts`, with their defaults.
_PLAIN: Final[dict[str, Any]] = {field.name: field.default for field in fields(ImageFacts) if field.name not in _BYTES}
#: Types of their columns, where not numpy's own for the default.
_DTYPES: Final[dict[type, type]] = {str: object, int: np.int32}
_ROWS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, eq=False)
class Scan:
    """Facts about the images of a table's rows, in their order."""

    table: SiteTable  #: the rows
    #: One row per image: the plain attributes of `ImageFacts`; an image that cannot be read has an `error`.
    frame: pd.DataFrame
    digests: np.ndarray  #: of the pictures, `S16 [n]`; empty without one
    hashes: np.ndarray  #: perceptual hashes uint8 `[n, 3, 32]`, see `near_hashes`
    hashed: np.ndarray  #: which rows have one, bool `[n]`: not the unreadable and blank pictures
    gray_levels: np.ndarray  #: pixels per bin of all preprocessed pictures, int64 `[64]`
    #: Rows whose file is missing or could not be read this time, and why; their `error` says it too.
    failures: Mapping[int, Failure]

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

    Raises `ChestfedError` if the results cannot be saved.
    """
    files = SiteStore(cache_root, table).complete(FACTS, workers=workers, progress=progress)
    rows, size = np.flatnonzero(files.known), len(table.frame)
    plain = {name: np.full(size, default, _DTYPES.get(type(default))) for name, default in _PLAIN.items()}
    digests, hashes = np.zeros(size, "S16"), np.zeros((size, HASHES, HASH_BYTES), np.uint8)
    hashed, gray_levels = np.zeros(size, bool), np.zeros(BINS, np.int64)
    for part in np.array_split(rows, max(1, -(-len(rows) // _ROWS_AT_ONCE))):
        texts, part_digests, part_hashes, histograms = (files.cells[name][part] for name in FACTS.columns)
        _set_plain(plain, part, [json.loads(text) for text in texts])
        digests[part], hashed[part] = part_digests, [bool(value) for value in part_hashes]
        blank = bytes(HASHES * HASH_BYTES)
        data = b"".join(value or blank for value in part_hashes)
        hashes[part] = np.frombuffer(data, np.uint8).reshape(-1, HASHES, HASH_BYTES)
        gray_levels += np.frombuffer(b"".join(histograms), "<i4").reshape(-1, BINS).sum(axis=0, dtype=np.int64)
    for row, facts in files.refused.items():  # too large to be read: without a picture
        _set_plain(plain, [row], [{name: getattr(facts, name) for name in _PLAIN}])
    for row, failure in files.failures.items():
        plain["error"][row] = failure.reason
    frame = pd.DataFrame(
        {name: pd.Categorical(plain.pop(name)) if _is_text(name) else plain.pop(name) for name in _PLAIN}
    )
    return Scan(table, frame, digests, hashes, hashed, gray_levels, files.failures)


def _is_text(name: str) -> bool:
    return isinstance(_PLAIN[name], str)


def _set_plain(columns: Mapping[str, np.ndarray], rows: Any, facts: Iterable[Mapping[str, Any]]) -> None:
    """Fill some rows; equal texts are one object."""
    for name, column in columns.items():
        values = [image_facts[name] for image_facts in facts]
        column[rows] = [sys.intern(value) for value in values] if _is_text(name) else values


def _encode(facts: ImageFacts) -> tuple[tuple[str, bytes, bytes, bytes], None]:
    plain = json.dumps({name: getattr(facts, name) for name in _PLAIN})
    return (plain, facts.digest, facts.hash, facts.histogram.astype("<i4").tobytes()), None


#: Result kept of each file.
FACTS: Final = ResultKind(
    f"facts-{FACTS_VERSION}",
    dict.fromkeys(("plain", *_BYTES), object),
    look_at,
    _encode,
    "looking at images",
)
