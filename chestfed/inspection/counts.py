"""How many of what a site has: images, patients, labels per split, views, ages, sexes, and the kinds of image files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from chestfed.inspection.scan import Scan
from chestfed.sites.label_counts import LabelCounts, count_labels
from chestfed.sites.opening import Survey
from chestfed.sites.reader import SPLITS

_ALL: Final = "all"


@dataclass(frozen=True)
class SplitCounts:
    """One split, or `all` of them."""

    split: str
    images: int
    patients: int
    labels: Mapping[str, LabelCounts]


@dataclass(frozen=True)
class AgeCounts:
    """Ages in years; the decades are named by their first year."""

    missing: int
    youngest: float | None
    median: float | None
    oldest: float | None
    decades: Mapping[str, int]


@dataclass(frozen=True)
class FileCounts:
    """Image files; each mapping counts readable ones, the most frequent first.

    `mean_gray` and `std_gray` are means over the preprocessed pictures, 0 to 255.
    """

    looked_at: int
    readable: int
    missing: int
    unreadable: int
    formats: Mapping[str, int]
    sizes: Mapping[str, int]
    bits: Mapping[str, int]
    modes: Mapping[str, int]
    transfer_syntaxes: Mapping[str, int]
    smallest: str
    largest: str
    mean_gray: float | None
    std_gray: float | None


@dataclass(frozen=True)
class Counts:
    """All counts; those of views are over all rows, the others over the rows of the views that are kept.

    `studies` is None where every study is called like its patient, as at a site that does not tell studies. `dropped`
    are the rows that are left out before, by the key of the YAML's `rows`.
    """

    rows: int
    images: int
    patients: int
    studies: int | None
    views: Mapping[str, int]
    left_out: int
    splits: tuple[SplitCounts, ...]
    unlabeled: int
    sexes: Mapping[str, int]
    ages: AgeCounts
    files: FileCounts | None
    dropped: Mapping[str, int]


def count(survey: Survey, scan: Scan | None) -> Counts:
    """The counts of a site."""
    table, raw = survey.table, survey.raw
    frame = table.frame
    present = [split for split in SPLITS if (frame["split"] == split).any()]
    parts = [(split, frame[(frame["split"] == split).to_numpy(dtype=bool)]) for split in present]
    parts += [(_ALL, frame)] if len(present) > 1 else []
    labels = table.labels()
    return Counts(
        rows=len(raw),
        images=len(frame),
        patients=int(frame["patient"].nunique()),
        studies=None
        if (frame["study"] == frame["patient"]).all()
        else len(frame[["patient", "study"]].drop_duplicates()),
        views=_counted(raw["view"].dropna()),
        left_out=table.other_views,
        splits=tuple(_split(name, part, table.diseases) for name, part in parts),
        unlabeled=int(np.isnan(labels).all(axis=1).sum()) if labels.size else 0,
        sexes=_counted(frame["sex"].astype(object).where(frame["sex"].notna(), "missing")),
        ages=_ages(frame["age"].to_numpy()),
        files=None if scan is None else _files(scan),
        dropped=dict(table.left_out),
    )


def _split(name: str, frame: pd.DataFrame, diseases: Iterable[str]) -> SplitCounts:
    names = list(diseases)
    labels = dict(zip(names, count_labels(frame[names].to_numpy(dtype=np.float32)), strict=True))
    return SplitCounts(name, len(frame), int(frame["patient"].nunique()), labels)


def _ages(years: np.ndarray) -> AgeCounts:
    known = years[~np.isnan(years)]
    decades = Counter(int(year // 10 * 10) for year in known.tolist())
    low, middle, high = (float(value) for value in np.percentile(known, (0, 50, 100))) if len(known) else (None,) * 3
    return AgeCounts(
        len(years) - len(known), low, middle, high, {str(first): decades[first] for first in sorted(decades)}
    )


def _files(scan: Scan) -> FileCounts:
    missing = sum(failure.kind == "missing" for failure in scan.failures.values())
    good = scan.frame[scan.readable]
    sizes = list(zip(good["width"].tolist(), good["height"].tolist(), strict=True))
    by_area = sorted(set(sizes), key=lambda size: (size[0] * size[1], size))
    return FileCounts(
        looked_at=len(scan.frame),
        readable=len(good),
        missing=missing,
        unreadable=len(scan.frame) - len(good) - missing,
        formats=_counted(good["format"]),
        sizes=_counted([_size(size) for size in sizes]),
        bits=_counted(good["bits"].astype(str)),
        modes=_counted(good["mode"]),
        transfer_syntaxes=_counted(good["syntax"][good["syntax"] != ""]),
        smallest=_size(by_area[0]) if by_area else "",
        largest=_size(by_area[-1]) if by_area else "",
        mean_gray=float(good["mean"].mean()) if len(good) else None,
        std_gray=float(good["std"].mean()) if len(good) else None,
    )


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _counted(values: Iterable[object]) -> dict[str, int]:
    return {str(value): number for value, number in Counter(values).most_common()}
