"""Counts of labels per disease; every image counts once, however often it is repeated in the training list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LabelCounts:
    """Labels of a disease; `prevalence` is the share of positives among the labeled images, None without any."""

    positive: int
    negative: int
    missing: int
    prevalence: float | None


def count_labels(labels: np.ndarray) -> list[LabelCounts]:
    """Of labels `[n, J]` in {0, 1, NaN} the counts of each disease."""
    counts = []
    for column in labels.T:
        positive, negative = int((column == 1).sum()), int((column == 0).sum())
        labeled = positive + negative
        ratio = positive / labeled if labeled else None
        counts.append(LabelCounts(positive, negative, len(column) - labeled, ratio))
    return counts
