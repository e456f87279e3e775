"""One pass over a site's image files, in parallel: one row of facts per image."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from chestfed.images.file_store import Failure, Kind, SiteStore
from chestfed.inspection.facts import BINS, FACTS_VERSION, Facts, look_at

if TYPE_CHECKING:
    from chestfed.sites.table import SiteTable

#: What is stored in columns of their own.
_BYTES: Final = ("digest", "hash", "histogram")
_PLAIN: Final = [field.name for field in fields(Facts) if field.name not in _BYTES]


@dataclass(frozen=True, eq=False)
class Scan:
    """What the images of a table's rows are, in their order."""

    table: SiteTable  #: the rows
    #: One row per image: the plain attributes of `Facts`; an image that cannot be read has an `error`.
    frame: pd.DataFrame
    digests: tuple[bytes, ...]  #: 16 bytes per row; empty without a picture
    hashes: np.ndarray  #: perceptual hashes uint8 `[n, 32]`
    hashed: np.ndarray  #: which rows have one, bool `[n]`: not the unreadable and blank pictures
    histograms: np.ndarray  #: pixels per bin of the preprocessed pictures, int32 `[n, 64]`
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
    made = files.refused | {row: Facts(error=failure.reason) for row, failure in files.failures.items()}
    facts = [
        _facts(*(files.cells[name][row] for name in FACTS.columns)) if there else made[row]
        for row, there in enumerate(files.known.tolist())
    ]
    return _scan(table, facts, files.failures)


def _scan(table: SiteTable, facts: Sequence[Facts], failures: Mapping[int, Failure]) -> Scan:
    columns = {name: [getattr(one, name) for one in facts] for name in _PLAIN}
    hashed = np.array([bool(one.hash) for one in facts], dtype=bool)
    hashes = np.frombuffer(b"".join(one.hash or bytes(32) for one in facts), np.uint8).reshape(-1, 32)
    histograms = np.stack([one.histogram for one in facts]) if facts else np.zeros((0, BINS), np.int32)
    digests = tuple(one.digest for one in facts)
    return Scan(table, pd.DataFrame(columns), digests, hashes, hashed, histograms, failures)


def _encode(facts: Facts) -> tuple[tuple[str, bytes, bytes, bytes], None]:
    plain = json.dumps({name: getattr(facts, name) for name in _PLAIN})
    return (plain, facts.digest, facts.hash, facts.histogram.astype("<i4").tobytes()), None


#: What is kept of each file.
FACTS: Final = Kind(
    f"facts-{FACTS_VERSION}",
    dict.fromkeys(("plain", *_BYTES), object),
    look_at,
    _encode,
    "looking at images",
)


def _facts(plain: str, digest: bytes, picture_hash: bytes, histogram: bytes) -> Facts:
    bins = np.frombuffer(histogram, "<i4").astype(np.int32)
    return Facts(**json.loads(plain), digest=digest, hash=picture_hash, histogram=bins)
