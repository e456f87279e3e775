"""Inequality of a model over groups of patients: the worst group, and the gap between the best and the worst.

A group's AUC compares its own positives with its own negatives. Best and worst are found on the test set, so by chance
alone there is a gap; its interval is that of these two groups, over patients, who are drawn together in both: a patient
with images in both groups counts in both.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    parts = {name: column.take(rows) for name, rows in groups.items()}
    aucs = {name: auc for name, part in parts.items() if part.in_mean and (auc := compute_auc(part)) is not None}
    if len(aucs) < 2:
        return None
    worst, best = min(aucs, key=lambda name: aucs[name]), max(aucs, key=lambda name: aucs[name])
    labels = np.stack([np.where(groups[name], column.positive, np.nan) for name in (worst, best)], axis=1)
    scores = np.repeat(column.score[:, None], 2, axis=1)
    values = jointly_resampled_aucs(scores, labels, column.patient, _RESAMPLES, seed)
    values = values[np.isfinite(values).all(axis=1)]
    low, high = np.percentile(values[:, 1] - values[:, 0], [2.5, 97.5])
    gap = aucs[best] - aucs[worst]
    return GroupGap(worst, aucs[worst], best, aucs[best], gap, Interval(float(low), float(high)))
