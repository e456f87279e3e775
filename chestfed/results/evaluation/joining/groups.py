"""Inequality of a model over groups of patients: the worst group, and the gap between the best and the worst.

A group's AUC compares its own positives with its own negatives. Best and worst are found on the test set, so by chance
alone there is a gap; its interval is that of these two groups, over patients, who are drawn together in both: a patient
with images in both groups counts in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.results.evaluation.estimates import compute_auc
from chestfed.results.evaluation.intervals.bootstrap import jointly_resampled_aucs
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.labeled import Column

_RESAMPLES: Final = 1000


@dataclass(frozen=True)
class GroupGap:
    """The groups of one disease with the lowest and the highest AUC.

    The interval of the gap is at 95% over patients, by bootstrap; those of the two AUCs are of `auc_estimates`.
    """

    worst: str
    worst_auc: float
    best: str
    best_auc: float
    gap: float
    gap_interval: Interval


def find_gap(column: Column, groups: Mapping[str, np.ndarray], seed: int = 0) -> GroupGap | None:
    """The worst and the best of groups, each bool `[m]` over the column's images; None with fewer than two groups.

    A group with fewer patients of a class than a mean needs does not count. The interval is of percentiles; a resample
    without both classes in both groups does not count.
    """
    return find_gaps([(column, groups)], seed)[0]


def find_gaps(diseases: Sequence[tuple[Column, Mapping[str, np.ndarray]]], seed: int = 0) -> list[GroupGap | None]:
    """As `find_gap` of each disease; those with the same labeled images share the draws, which take the time."""
    ends = [_find_ends(column, groups) for column, groups in diseases]
    gaps: list[GroupGap | None] = [None] * len(diseases)
    left = [number for number, found in enumerate(ends) if found]
    while left:
        patients = diseases[left[0]][0].patient
        alike = [number for number in left if np.array_equal(diseases[number][0].patient, patients)]
        left = [number for number in left if number not in alike]
        labels, scores = list[np.ndarray](), list[np.ndarray]()
        for number in alike:
            column, groups = diseases[number]
            labels += [np.where(groups[name], column.positive, np.nan) for _, name in ends[number]]
            scores += [column.score] * 2
        values = jointly_resampled_aucs(np.stack(scores, 1), np.stack(labels, 1), patients, _RESAMPLES, seed)
        for place, number in enumerate(alike):
            gaps[number] = _make_gap(ends[number], values[:, 2 * place : 2 * place + 2])
    return gaps


def _find_ends(column: Column, groups: Mapping[str, np.ndarray]) -> list[tuple[float, str]]:
    """AUC and name of the worst and of the best group that counts; none with fewer than two."""
    parts = {name: column.take(rows) for name, rows in groups.items()}
    aucs = {name: auc for name, part in parts.items() if part.in_mean and (auc := compute_auc(part)) is not None}
    if len(aucs) < 2:
        return []
    worst, best = min(aucs, key=lambda name: aucs[name]), max(aucs, key=lambda name: aucs[name])
    return [(aucs[worst], worst), (aucs[best], best)]


def _make_gap(ends: Sequence[tuple[float, str]], values: np.ndarray) -> GroupGap:
    """The gap between the ends, by their AUCs in resamples `[r, 2]`."""
    (low_auc, worst), (high_auc, best) = ends
    values = values[np.isfinite(values).all(axis=1)]
    low, high = np.percentile(values[:, 1] - values[:, 0], [2.5, 97.5])
    return GroupGap(worst, low_auc, best, high_auc, high_auc - low_auc, Interval(float(low), float(high)))
