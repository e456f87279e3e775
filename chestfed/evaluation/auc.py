"""Area under the ROC curve per disease, on scores and labels with missing entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
        If a score of a labelled image is NaN, or the shapes differ.
    """
    from sklearn.metrics import roc_auc_score

    if scores.shape != labels.shape or scores.shape[1] != len(diseases):
        raise ValueError(f"scores {scores.shape} and labels {labels.shape} do not fit {len(diseases)} diseases")
    results = []
    for j, disease in enumerate(diseases):
        known = ~np.isnan(labels[:, j])
        truth, score = labels[known, j], scores[known, j]
        if np.isnan(score).any():
            raise ValueError(f"scores of {disease} contain NaN")
        positives = int((truth == 1).sum())
        negatives = len(truth) - positives
        reason = ""
        if positives == 0 or negatives == 0:
            reason = "no positive image" if positives == 0 else "no negative image"
        auc = None if reason else float(roc_auc_score(truth, score))
        results.append(DiseaseAuc(disease, auc, positives, negatives, int((~known).sum()), reason))
    return results


def mean_auc(results: Sequence[DiseaseAuc]) -> float | None:
    """Mean over the diseases that have an AUC; None if none has."""
    values = [result.auc for result in results if result.auc is not None]
    return float(np.mean(values)) if values else None
