"""How unequal a model is over groups of patients: the worst group, and the gap between the best and the worst.

A group's AUC compares its own positives with its own negatives. Best and worst are found on the test set, so by chance
alone there is a gap; its interval is that of these two groups, over patients, who are drawn together in both: a patient
with images in both groups counts in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import rankdata

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.labeled import Column

#: A group with fewer patients than this of either class does not count.
FEWEST: Final = 5
_RESAMPLES: Final = 1000


@dataclass(frozen=True)
class GroupGap:
    """The groups of one disease with the lowest and the highest AUC; intervals of 95% over patients, by bootstrap."""

    worst: str
    worst_auc: float
    worst_interval: Interval
    best: str
    best_auc: float
    gap: float
    gap_interval: Interval


def find_gap(column: Column, groups: Mapping[str, np.ndarray], seed: int = 0) -> GroupGap | None:
    """The worst and the best of groups, each bool `[m]` over the column's images; None with fewer than two groups.

    The interval is of percentiles; a resample without both classes in both groups does not count.
    """
    aucs = {name: _auc(column, rows) for name, rows in groups.items() if _is_large(column, rows)}
    if len(aucs) < 2:
        return None
    worst, best = min(aucs, key=lambda name: aucs[name]), max(aucs, key=lambda name: aucs[name])
    _, patients = np.unique(column.patient, return_inverse=True)
    places = [np.flatnonzero(patients == number) for number in range(patients.max() + 1)]
    draw = numpy_stream(seed, "groups", column.disease)
    drawn = []
    for _ in range(_RESAMPLES):
        rows = np.concatenate([places[number] for number in draw.integers(0, len(places), len(places))])
        drawn.append([_auc(column, rows[groups[name][rows]]) for name in (worst, best)])
    values = np.array(drawn)
    values = values[np.isfinite(values).all(axis=1)]
    low, high = np.percentile(np.column_stack([values[:, 0], values[:, 1] - values[:, 0]]), [2.5, 97.5], axis=0)
    return GroupGap(
        worst,
        aucs[worst],
        Interval(float(low[0]), float(high[0])),
        best,
        aucs[best],
        aucs[best] - aucs[worst],
        Interval(float(low[1]), float(high[1])),
    )


def _auc(column: Column, rows: np.ndarray) -> float:
    """Of some rows, bool `[m]` or int `[n]`; ties count one half. NaN without both classes."""
    positive, ranks = column.positive[rows], rankdata(column.score[rows])
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not (positives and negatives):
        return float("nan")
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _is_large(column: Column, rows: np.ndarray) -> bool:
    positive, patient = column.positive[rows], column.patient[rows]
    return all(len(np.unique(patient[positive == value])) >= FEWEST for value in (True, False))
