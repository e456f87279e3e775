"""Precision-recall, partial AUC and operating points, by hand and against brute force and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation import metrics
from chestfed.results.evaluation.estimates import compute_auc
from chestfed.results.evaluation.metrics import OperatingPoint
from tests.results.evaluation.test_auc import make_column


def at_specificity(scores: list[float] | np.ndarray, labels: list[float] | np.ndarray, share: float) -> OperatingPoint:
    point = metrics.sensitivity_at_specificity(make_column(scores, labels), share)
    assert point is not None
    return point


def at_sensitivity(scores: list[float] | np.ndarray, labels: list[float] | np.ndarray, share: float) -> OperatingPoint:
    point = metrics.specificity_at_sensitivity(make_column(scores, labels), share)
    assert point is not None
    return point


def test_average_precision_by_hand() -> None:
    # From the top: positive, negative, positive. Precision 1 at recall 1/2, and 2/3 at recall 1.
    assert metrics.average_precision(make_column([3, 2, 1], [1, 0, 1])) == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)
    assert make_column([3, 2, 1], [1, 0, 1]).counts == {"positives": 2, "negatives": 1, "missing": 0}
    # One score for all: the share of positives.
    assert metrics.average_precision(make_column([1, 1, 1, 1], [1, 0, 0, 0])) == 1 / 4


def test_partial_auc_is_auc_half_or_one() -> None:
    scores, labels = np.array([4, 3, 2, 1]), np.array([1, 0, 1, 0])
    assert metrics.partial_auc(make_column(scores, labels), 1) == pytest.approx(3 / 4)
    # Up to a rate of 1/2 the ROC is at 1/2: area 1/4, between 1/8 (chance) and 1/2 (perfect), to 1/2 (1 + 1/3).
    assert metrics.partial_auc(make_column(scores, labels), 0.5) == pytest.approx(2 / 3)
    assert metrics.partial_auc(make_column(0 * scores, labels), 0.3) == pytest.approx(1 / 2)
    assert metrics.partial_auc(make_column(labels, labels), 0.3) == pytest.approx(1)
    with pytest.raises(ValueError, match="max_fpr"):
        metrics.partial_auc(make_column(scores, labels), 0)


def test_ties_are_called_together() -> None:
    # At the score 2 stand a positive and two negatives: one cannot have the positive without the negatives.
    scores, labels = [3, 2, 2, 2, 1], [1, 1, 0, 0, 0]
    point = at_specificity(scores, labels, 0.6)
    assert (point.threshold, point.sensitivity, point.specificity) == (3, 1 / 2, 1)
    point = at_specificity(scores, labels, 1 / 3)
    assert (point.threshold, point.sensitivity, point.specificity) == (2, 1, pytest.approx(1 / 3))
    point = at_sensitivity(scores, labels, 0.6)
    assert (point.threshold, point.sensitivity, point.specificity) == (2, 1, pytest.approx(1 / 3))
    point = at_sensitivity(scores, labels, 0.5)
    assert (point.threshold, point.sensitivity, point.specificity) == (3, 1 / 2, 1)


def test_operating_point_counts_and_values() -> None:
    point = metrics.youden(make_column([5, 4, 3, 2, 1, 9], [1, 0, 1, 0, 0, np.nan]))
    assert point == OperatingPoint(3, 1, 2 / 3, 2 / 3, 1, 2, 1, 2, 0)


def test_no_called_image_threshold_infinity() -> None:
    point = at_specificity([2, 1], [0, 1], 0.9)
    assert (point.threshold, point.sensitivity, point.specificity) == (math.inf, 0, 1)
    assert (point.ppv, point.npv) == (None, 1 / 2)


def test_exact_specificity_is_met() -> None:
    point = at_specificity(np.arange(12.0), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0], 8 / 9)
    assert (point.threshold, point.true_negatives, point.sensitivity) == (8, 8, 1)
    # 0.9 * 10 is a little more than 9 in floating point, and 9 of 10 are enough all the same.
    point = at_specificity(np.arange(11.0), [0.0] * 9 + [1, 0], 0.9)
    assert (point.threshold, point.true_negatives) == (9, 9)


def test_one_class_is_null_with_a_reason() -> None:
    for labels, reason in (([1, 1, 1], "no negative image"), ([0, np.nan, 0], "no positive image")):
        column = make_column([0, 0, 0], labels)
        assert (column.reason, column.missing) == (reason, int(np.isnan(labels).sum()))
        numbers = (compute_auc, metrics.average_precision, metrics.partial_auc)
        points = (metrics.sensitivity_at_specificity, metrics.specificity_at_sensitivity, metrics.youden)
        assert {metric(column) for metric in (*numbers, *points)} == {None}


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_and_1_is_refused(share: float) -> None:
    for metric in (metrics.sensitivity_at_specificity, metrics.specificity_at_sensitivity):
        with pytest.raises(ValueError, match="must lie in"):
            metric(make_column([1, 0], [1, 0]), share)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.25, 0.5, 0.8, 0.9, 1.0]),
)
def test_operating_points_best_of_thresholds(rows: list[tuple[int, bool]], share: float) -> None:
    score = np.array([row[0] for row in rows] + [3, 4], float)
    label = np.array([row[1] for row in rows] + [True, False])
    every = []
    for threshold in [*np.unique(score), math.inf]:
        called = score >= threshold
        every.append((called[label].mean(), (~called)[~label].mean(), threshold))

    point = at_specificity(score, label, share)
    best = max((se, sp, t) for se, sp, t in every if sp >= share - 1e-12)
    assert (point.sensitivity, point.specificity, point.threshold) == pytest.approx(best)
    point = at_sensitivity(score, label, share)
    best = max((sp, se) for se, sp, t in every if se >= share - 1e-12)
    assert (point.specificity, point.sensitivity) == pytest.approx(best)
    youden = metrics.youden(make_column(score, label))
    assert youden is not None
    assert youden.sensitivity + youden.specificity == pytest.approx(max(se + sp for se, sp, _ in every))
