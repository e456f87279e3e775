"""Precision-recall, partial AUC and operating points, by hand and against brute force and scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation import metrics
from chestfed.evaluation.metrics import OperatingPoint

EDEMA = ["edema"]


def column(*values: float) -> np.ndarray:
    return np.array(values, float)[:, None]


def test_average_precision_by_hand() -> None:
    # From the top: positive, negative, positive. Precision 1 at recall 1/2, and 2/3 at recall 1.
    (found,) = metrics.average_precision_per_disease(column(3, 2, 1), column(1, 0, 1), EDEMA)
    assert found.value == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)
    assert (found.positives, found.negatives, found.missing) == (2, 1, 0)
    # One score for all: the share of positives.
    (flat,) = metrics.average_precision_per_disease(column(1, 1, 1, 1), column(1, 0, 0, 0), EDEMA)
    assert flat.value == 1 / 4


def test_the_partial_auc_is_the_auc_at_1_half_without_information_and_1_if_perfect() -> None:
    scores, labels = column(4, 3, 2, 1), column(1, 0, 1, 0)
    assert metrics.partial_auc_per_disease(scores, labels, EDEMA, 1)[0].value == pytest.approx(3 / 4)
    # Up to a rate of 1/2 the ROC is at 1/2: area 1/4, between 1/8 (chance) and 1/2 (perfect), to 1/2 (1 + 1/3).
    assert metrics.partial_auc_per_disease(scores, labels, EDEMA, 0.5)[0].value == pytest.approx(2 / 3)
    assert metrics.partial_auc_per_disease(0 * scores, labels, EDEMA, 0.3)[0].value == pytest.approx(1 / 2)
    assert metrics.partial_auc_per_disease(labels, labels, EDEMA, 0.3)[0].value == pytest.approx(1)
    with pytest.raises(ValueError, match="max_fpr"):
        metrics.partial_auc_per_disease(scores, labels, EDEMA, 0)


def test_images_of_the_same_score_are_called_together() -> None:
    # At the score 2 stand a positive and two negatives: one cannot have the positive without the negatives.
    scores, labels = column(3, 2, 2, 2, 1), column(1, 1, 0, 0, 0)
    (found,) = metrics.sensitivity_at_specificity(scores, labels, EDEMA, 0.6)
    assert (found.threshold, found.sensitivity, found.specificity) == (3, 1 / 2, 1)
    (found,) = metrics.sensitivity_at_specificity(scores, labels, EDEMA, 1 / 3)
    assert (found.threshold, found.sensitivity, found.specificity) == (2, 1, pytest.approx(1 / 3))
    (found,) = metrics.specificity_at_sensitivity(scores, labels, EDEMA, 0.6)
    assert (found.threshold, found.sensitivity, found.specificity) == (2, 1, pytest.approx(1 / 3))
    (found,) = metrics.specificity_at_sensitivity(scores, labels, EDEMA, 0.5)
    assert (found.threshold, found.sensitivity, found.specificity) == (3, 1 / 2, 1)


def test_an_operating_point_has_its_counts_and_predictive_values() -> None:
    scores, labels = column(5, 4, 3, 2, 1, 9), column(1, 0, 1, 0, 0, np.nan)
    (found,) = metrics.youden_points(scores, labels, EDEMA)
    assert found == OperatingPoint("edema", 3, 1, 2 / 3, 2 / 3, 1, 2, 1, 2, 0, missing=1)
    # The same threshold on other images.
    (other,) = metrics.points_at_thresholds(column(3, 2, 1), column(0, 1, 0), EDEMA, [found.threshold or 0])
    assert other == OperatingPoint("edema", 3, 0, 1 / 2, 0, 1 / 2, 0, 1, 1, 1, missing=0)


def test_where_no_image_may_be_called_the_threshold_is_infinite() -> None:
    (found,) = metrics.sensitivity_at_specificity(column(2, 1), column(0, 1), EDEMA, 0.9)
    assert (found.threshold, found.sensitivity, found.specificity) == (math.inf, 0, 1)
    assert (found.ppv, found.npv) == (None, 1 / 2)


def test_a_specificity_that_is_met_exactly_is_met() -> None:
    scores, labels = np.arange(12.0)[:, None], column(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0)
    (found,) = metrics.sensitivity_at_specificity(scores, labels, EDEMA, 8 / 9)
    assert (found.threshold, found.true_negatives, found.sensitivity) == (8, 8, 1)
    # 0.9 * 10 is a little more than 9 in floating point, and 9 of 10 are enough all the same.
    labels = np.array([0.0] * 9 + [1, 0])[:, None]
    (found,) = metrics.sensitivity_at_specificity(np.arange(11.0)[:, None], labels, EDEMA, 0.9)
    assert (found.threshold, found.true_negatives) == (9, 9)


ALL: list[Callable] = [
    metrics.average_precision_per_disease,
    metrics.partial_auc_per_disease,
    metrics.sensitivity_at_specificity,
    metrics.specificity_at_sensitivity,
    metrics.youden_points,
    lambda scores, labels, diseases: metrics.points_at_thresholds(scores, labels, diseases, [0.5, 0.5]),
]


@pytest.mark.parametrize("metric", ALL)
def test_one_class_only_is_null_with_a_reason(metric: Callable) -> None:
    labels = np.array([[1, 0], [1, np.nan], [1, 0.0]])
    found = metric(np.zeros((3, 2)), labels, ["edema", "atelectasis"])
    assert [result.reason for result in found] == ["no negative image", "no positive image"]
    assert [result.missing for result in found] == [0, 1]
    for result in found:
        assert getattr(result, "value", None) is None
        assert getattr(result, "sensitivity", None) is None


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_and_1_is_refused(share: float) -> None:
    for metric in (metrics.sensitivity_at_specificity, metrics.specificity_at_sensitivity):
        with pytest.raises(ValueError, match="must lie in"):
            metric(column(1, 0), column(1, 0), EDEMA, share)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.25, 0.5, 0.8, 0.9, 1.0]),
)
def test_operating_points_are_the_best_of_all_thresholds(rows: list[tuple[int, bool]], share: float) -> None:
    score = np.array([row[0] for row in rows] + [3, 4], float)
    label = np.array([row[1] for row in rows] + [True, False])
    every = []
    for threshold in [*np.unique(score), math.inf]:
        called = score >= threshold
        every.append((called[label].mean(), (~called)[~label].mean(), threshold))
    arguments = (score[:, None], label[:, None].astype(float), EDEMA)

    (found,) = metrics.sensitivity_at_specificity(*arguments, share)
    best = max((se, sp, t) for se, sp, t in every if sp >= share - 1e-12)
    assert (found.sensitivity, found.specificity, found.threshold) == pytest.approx(best)
    (found,) = metrics.specificity_at_sensitivity(*arguments, share)
    best = max((sp, se) for se, sp, t in every if se >= share - 1e-12)
    assert (found.specificity, found.sensitivity) == pytest.approx(best)
    (found,) = metrics.youden_points(*arguments)
    assert found.sensitivity is not None
    assert found.specificity is not None
    assert found.sensitivity + found.specificity == pytest.approx(max(se + sp for se, sp, _ in every))
