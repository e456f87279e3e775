"""Area under the ROC curve per disease, on scores and labels with missing entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chestfed.evaluation.labeled import labeled_columns


@dataclass(frozen=True)
class DiseaseAuc:
    """AUC of one disease and what it is over. `auc` is None if there is no pair, and `reason` says why."""

    disease: str
    auc: float | None
    positives: int
    negatives: int
    missing: int
    reason: str = ""


def auc_per_disease(scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str]) -> list[DiseaseAuc]:
    """AUC of each column of `scores` `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}; ties count one half.

    Raises
    ------
    ValueError
        If a score of a labeled image is NaN, a label is another number, or the shapes differ.
    """
    from sklearn.metrics import roc_auc_score

    results = []
    for column in labeled_columns(scores, labels, diseases):
        auc = None if column.reason else float(roc_auc_score(column.positive, column.score))
        counts = (column.positives, column.negatives, column.missing)
        results.append(DiseaseAuc(column.disease, auc, *counts, column.reason))
    return results


def mean_auc(results: Sequence[DiseaseAuc]) -> float | None:
    """Mean over the diseases that have an AUC; None if none has."""
    values = [result.auc for result in results if result.auc is not None]
    return float(np.mean(values)) if values else None
