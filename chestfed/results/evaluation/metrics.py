"""Numbers of one disease beside the AUC: precision-recall, the ROC at low false-positive rates, operating points.

Each takes a `Column` and returns None if its images are of one class (`Column.reason` says which).

An image is called positive if its score is at least the threshold. So the thresholds that make a difference are the
scores themselves, and one above all of them, written as infinity, under which no image is called. Images of the same
score are called together: between two such points of the ROC nothing can be achieved, and nothing is interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.results.evaluation.labeled import Column

#: Fixed share of the operating points, and end of the partial AUC.
SHARE: Final = 0.9
MAX_FPR: Final = 0.1


@dataclass(frozen=True)
class OperatingPoint:
    """Effect of a threshold on one disease's images."""

    threshold: float  #: images with this score or more are called positive; infinity if none is
    sensitivity: float
    specificity: float
    #: ppv, npv: share of true ones among the called, and among the not called, in this test set: they depend on its
    #: prevalence. None where no image is called (or not called).
    ppv: float | None
    npv: float | None
    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int


def average_precision(column: Column) -> float | None:
    """AUPRC as average precision: the sum over thresholds of precision times gain in recall, without interpolation.

    A score without information comes to the share of positives, n+ / (n+ + n-), not to one half.
    """
    from sklearn.metrics import average_precision_score

    return None if column.reason else min(1.0, float(average_precision_score(column.positive, column.score)))


def partial_auc(column: Column, max_fpr: float = MAX_FPR) -> float | None:
    """AUC up to a false-positive rate of `max_fpr`, in (0, 1], standardized: 0.5 without information, 1 if perfect.

    D. K. McClish: Analyzing a portion of the ROC curve. Medical Decision Making 9 (1989). Here the ROC is the line
    through its points (ties count one half, as in the AUC), and `max_fpr` = 1 is the AUC.
    """
    from sklearn.metrics import roc_auc_score

    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must lie in (0, 1], not {max_fpr}")
    return None if column.reason else float(roc_auc_score(column.positive, column.score, max_fpr=max_fpr))


def sensitivity_at_specificity(column: Column, specificity: float = SHARE) -> OperatingPoint | None:
    """The threshold with the highest sensitivity among those with at least this specificity.

    Of several, the one with the highest specificity. There is always one: calling no image has a specificity of 1.
    """
    _check_share("specificity", specificity)
    if column.reason:
        return None
    thresholds, true, false = _roc(column)
    # Counts are whole; 1e-9 forgives 0.9 * 10 = 9.000000000000002.
    allowed = column.negatives - false >= specificity * column.negatives - 1e-9
    best = int(np.argmax(np.where(allowed, true, -1)))  # the first of several: that of the highest threshold
    return _point(column, thresholds[best], true[best], false[best])


def specificity_at_sensitivity(column: Column, sensitivity: float = SHARE) -> OperatingPoint | None:
    """The threshold with the highest specificity among those with at least this sensitivity.

    Of several, the one with the highest sensitivity. There is always one: calling every image has a sensitivity of 1.
    """
    _check_share("sensitivity", sensitivity)
    if column.reason:
        return None
    thresholds, true, false = _roc(column)
    specificity = np.where(true >= sensitivity * column.positives - 1e-9, column.negatives - false, -1)
    best = len(true) - 1 - int(np.argmax(specificity[::-1]))  # from the lowest threshold, where sensitivity is highest
    return _point(column, thresholds[best], true[best], false[best])


def youden(column: Column) -> OperatingPoint | None:
    """The threshold with the largest sensitivity + specificity - 1; of several, the highest threshold.

    Chosen on the images it is judged on, so its sensitivity and specificity are too good.
    """
    if column.reason:
        return None
    thresholds, true, false = _roc(column)
    # Youden's index times n+ n-, in whole numbers, so that equal ones are equal.
    best = int(np.argmax(true * column.negatives - false * column.positives))
    return _point(column, thresholds[best], true[best], false[best])


def _roc(column: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds from infinity downward, and the true and false positives at each, `[k]`."""
    from sklearn.metrics import roc_curve

    false, true, thresholds = roc_curve(column.positive, column.score, drop_intermediate=False)
    counts = (np.rint(rates * n).astype(int) for rates, n in ((true, column.positives), (false, column.negatives)))
    return (thresholds, *counts)


def _point(column: Column, threshold: float, true: int, false: int) -> OperatingPoint:
    true_positives, false_positives = int(true), int(false)
    true_negatives, false_negatives = column.negatives - false_positives, column.positives - true_positives
    called, not_called = true_positives + false_positives, true_negatives + false_negatives
    return OperatingPoint(
        threshold=float(threshold),
        sensitivity=true_positives / column.positives,
        specificity=true_negatives / column.negatives,
        ppv=true_positives / called if called else None,
        npv=true_negatives / not_called if not_called else None,
        true_positives=true_positives,
        false_positives=false_positives,
        true_negatives=true_negatives,
        false_negatives=false_negatives,
    )


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"the {name} must lie in [0, 1], not {value}")
