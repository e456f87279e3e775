"""Counts of what a site has: images, patients, labels per split, views, ages, sexes, and the kinds of image files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from chestfed.data.checks.scan import Scan
from chestfed.data.sites.opening import Survey
from chestfed.data.sites.reader import SPLITS
from chestfed.data.sites.table import LabelCounts, count_labels

#: The name of all splits together.
ALL_SPLITS: Final = "all"


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
    are the rows that are left out before, by the key of the YAML's `rows` or `images`.
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
    counted = frame[["patient", *table.diseases]]
    parts = [(split, counted[(frame["split"] == split).to_numpy(dtype=bool)]) for split in present]
    parts += [(ALL_SPLITS, counted)] if len(present) > 1 else []
    labels = table.labels()
    return Counts(
        rows=len(raw),
        images=len(frame),
        patients=int(frame["patient"].nunique()),
        studies=_count_studies(frame),
        views=_count_values(raw["view"].dropna()),
        left_out=table.other_views,
        splits=tuple(_count_split(name, part, table.diseases) for name, part in parts),
        unlabeled=int(np.isnan(labels).all(axis=1).sum()) if labels.size else 0,
        sexes=_count_values(frame["sex"].astype(object).where(frame["sex"].notna(), "missing")),
        ages=_count_ages(frame["age"].to_numpy()),
        files=None if scan is None else _count_files(scan),
        dropped=dict(table.left_out),
    )


def _count_split(name: str, frame: pd.DataFrame, diseases: Iterable[str]) -> SplitCounts:
    names = list(diseases)
    labels = dict(zip(names, count_labels(frame[names].to_numpy(dtype=np.float32)), strict=True))
    return SplitCounts(name, len(frame), int(frame["patient"].nunique()), labels)


def _count_ages(years: np.ndarray) -> AgeCounts:
    known = years[~np.isnan(years)]
    firsts, numbers = np.unique((known // 10 * 10).astype(int), return_counts=True)
    low, middle, high = (float(value) for value in np.percentile(known, (0, 50, 100))) if len(known) else (None,) * 3
    decades = {str(first): int(number) for first, number in zip(firsts, numbers, strict=True)}
    return AgeCounts(len(years) - len(known), low, middle, high, decades)


def _count_files(scan: Scan) -> FileCounts:
    missing = sum(failure.kind == "missing" for failure in scan.failures.values())
    good = scan.frame[scan.readable]
    sizes = _count_values(good["width"].astype(str) + "x" + good["height"].astype(str))
    by_area = sorted(sizes, key=lambda size: (math.prod(map(int, size.split("x"))), *map(int, size.split("x"))))
    return FileCounts(
        looked_at=len(scan.frame),
        readable=len(good),
        missing=missing,
        unreadable=len(scan.frame) - len(good) - missing,
        formats=_count_values(good["format"]),
        sizes=sizes,
        bits=_count_values(good["bits"].astype(str)),
        modes=_count_values(good["mode"]),
        transfer_syntaxes=_count_values(good["syntax"][good["syntax"] != ""]),
        smallest=by_area[0] if by_area else "",
        largest=by_area[-1] if by_area else "",
        mean_gray=float(good["mean"].mean()) if len(good) else None,
        std_gray=float(good["std"].mean()) if len(good) else None,
    )


def _count_values(values: pd.Series) -> dict[str, int]:
    """Value -> number, the most frequent first; of as many, the one that occurs first."""
    codes, words = pd.factorize(values)
    numbers = np.bincount(codes, minlength=len(words))
    return {str(words[place]): int(numbers[place]) for place in np.argsort(-numbers, kind="stable")}


def _count_studies(frame: pd.DataFrame) -> int | None:
    if (frame["study"] == frame["patient"]).all():
        return None
    studies, patients = (pd.factorize(frame[name])[0] for name in ("study", "patient"))
    return len(np.unique(studies.astype(np.int64) * (len(frame) + 1) + patients))
