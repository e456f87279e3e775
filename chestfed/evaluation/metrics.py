"""Per-disease metrics beside the AUC: precision-recall, the ROC at low false-positive rates, operating points.

Everything takes scores `[n, J]` and labels `[n, J]` in {0, 1, NaN} and returns one entry per disease. A disease with
one class only has None for every value, and the reason.

An image is called positive if its score is at least the threshold. So the thresholds that make a difference are the
scores themselves, and one above all of them, written as infinity, under which no image is called. Images of the same
score are called together: between two such points of the ROC nothing can be achieved, and nothing is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chestfed.evaluation.labeled import Column, labeled_columns


@dataclass(frozen=True)
class DiseaseValue:
    """A number for one disease. `value` is None if it is not defined, and `reason` says why."""

    disease: str
    value: float | None
    positives: int
    negatives: int
    missing: int
    reason: str = ""


@dataclass(frozen=True)
class OperatingPoint:
    """What a threshold does to one disease's images.

    Attributes
    ----------
    threshold
        Images with this score or more are called positive; infinity if none is.
    ppv, npv
        Share of true ones among the called, and among the not called, in this test set: they depend on its prevalence.
        None if there are none.
    reason
        Why the values are None.
    """

    disease: str
    threshold: float | None
    sensitivity: float | None
    specificity: float | None
    ppv: float | None
    npv: float | None
    true_positives: int | None
    false_positives: int | None
    true_negatives: int | None
    false_negatives: int | None
    missing: int
    reason: str = ""


def average_precision_per_disease(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str]
) -> list[DiseaseValue]:
    """AUPRC as average precision: the sum over thresholds of precision times gain in recall, without interpolation.

    A score without information comes to the share of positives, n+ / (n+ + n-), not to one half.
    """
    from sklearn.metrics import average_precision_score

    return _values(scores, labels, diseases, lambda c: min(1.0, float(average_precision_score(c.positive, c.score))))


def partial_auc_per_disease(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], max_fpr: float = 0.1
) -> list[DiseaseValue]:
    """AUC up to a false-positive rate of `max_fpr`, in (0, 1], standardized: 0.5 without information, 1 if perfect.

    D. K. McClish: Analyzing a portion of the ROC curve. Medical Decision Making 9 (1989). Here the ROC is the line
    through its points (ties count one half, as in the AUC), and `max_fpr` = 1 is the AUC.
    """
    from sklearn.metrics import roc_auc_score

    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must lie in (0, 1], not {max_fpr}")
    return _values(scores, labels, diseases, lambda c: float(roc_auc_score(c.positive, c.score, max_fpr=max_fpr)))


def sensitivity_at_specificity(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], specificity: float = 0.9
) -> list[OperatingPoint]:
    """The threshold with the highest sensitivity among those with at least this specificity.

    Of several, the one with the highest specificity. There is always one: calling no image has a specificity of 1.
    """
    _check_share("specificity", specificity)

    def best(roc: _Roc) -> int:
        # Counts are whole; 1e-9 forgives 0.9 * 10 = 9.000000000000002.
        allowed = roc.true_negatives >= specificity * roc.negatives - 1e-9
        sensitivity = np.where(allowed, roc.true_positives, -1)
        return _first_largest(sensitivity)

    return _points(scores, labels, diseases, best)


def specificity_at_sensitivity(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], sensitivity: float = 0.9
) -> list[OperatingPoint]:
    """The threshold with the highest specificity among those with at least this sensitivity.

    Of several, the one with the highest sensitivity. There is always one: calling every image has a sensitivity of 1.
    """
    _check_share("sensitivity", sensitivity)

    def best(roc: _Roc) -> int:
        allowed = roc.true_positives >= sensitivity * roc.positives - 1e-9
        specificity = np.where(allowed, roc.true_negatives, -1)
        # From the lowest threshold, where the sensitivity is highest.
        return len(specificity) - 1 - _first_largest(specificity[::-1])

    return _points(scores, labels, diseases, best)


def youden_points(scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str]) -> list[OperatingPoint]:
    """The threshold with the largest sensitivity + specificity - 1; of several, the highest threshold.

    Chosen on the images it is judged on, so its sensitivity and specificity are too good.
    """

    def best(roc: _Roc) -> int:
        # Youden's index times n+ n-, in whole numbers, so that equal ones are equal.
        return _first_largest(roc.true_positives * roc.negatives + roc.true_negatives * roc.positives)

    return _points(scores, labels, diseases, best)


def points_at_thresholds(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], thresholds: Sequence[float]
) -> list[OperatingPoint]:
    """What given thresholds `[J]` do, such as those chosen on a validation set."""
    results = []
    for column, threshold in zip(labeled_columns(scores, labels, diseases), thresholds, strict=True):
        if column.reason:
            results.append(_no_point(column))
            continue
        called = column.score >= threshold
        true_positives = int((called & column.positive).sum())
        results.append(_point(column, float(threshold), true_positives, int(called.sum()) - true_positives))
    return results


@dataclass(frozen=True)
class _Roc:
    """Counts at every threshold `[k]`, from infinity downward."""

    thresholds: np.ndarray
    true_positives: np.ndarray
    true_negatives: np.ndarray
    positives: int
    negatives: int


def _values(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], metric: Callable[[Column], float]
) -> list[DiseaseValue]:
    results = []
    for column in labeled_columns(scores, labels, diseases):
        value = None if column.reason else metric(column)
        counts = (column.positives, column.negatives, column.missing)
        results.append(DiseaseValue(column.disease, value, *counts, column.reason))
    return results


def _points(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], best: Callable[[_Roc], int]
) -> list[OperatingPoint]:
    results = []
    for column in labeled_columns(scores, labels, diseases):
        if column.reason:
            results.append(_no_point(column))
            continue
        roc = _roc(column)
        k = best(roc)
        true_positives, false_positives = int(roc.true_positives[k]), roc.negatives - int(roc.true_negatives[k])
        results.append(_point(column, float(roc.thresholds[k]), true_positives, false_positives))
    return results


def _roc(column: Column) -> _Roc:
    order = np.argsort(-column.score, kind="stable")
    score, positive = column.score[order], column.positive[order]
    last_of_run = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)
    true_positives = np.append(0, np.cumsum(positive)[last_of_run])
    false_positives = np.append(0, last_of_run + 1) - true_positives
    thresholds = np.append(math.inf, score[last_of_run])
    negatives = column.negatives
    return _Roc(thresholds, true_positives, negatives - false_positives, column.positives, negatives)


def _first_largest(values: np.ndarray) -> int:
    """Place of the largest value, the first of several: that of the highest threshold."""
    return int(np.argmax(values))


def _point(column: Column, threshold: float, true_positives: int, false_positives: int) -> OperatingPoint:
    true_negatives = column.negatives - false_positives
    false_negatives = column.positives - true_positives
    called, not_called = true_positives + false_positives, true_negatives + false_negatives
    return OperatingPoint(
        column.disease,
        threshold,
        true_positives / column.positives,
        true_negatives / column.negatives,
        true_positives / called if called else None,
        true_negatives / not_called if not_called else None,
        true_positives,
        false_positives,
        true_negatives,
        false_negatives,
        column.missing,
    )


def _no_point(column: Column) -> OperatingPoint:
    missing, reason = column.missing, column.reason
    return OperatingPoint(column.disease, None, None, None, None, None, None, None, None, None, missing, reason)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"the {name} must lie in [0, 1], not {value}")
