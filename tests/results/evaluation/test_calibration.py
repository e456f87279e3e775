"""Calibration on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.calibration import Bin, Calibration, calibration, reliability
from tests.results.evaluation.test_auc import make_column


def judged(scores: list[float] | np.ndarray, labels: list[float] | np.ndarray, bins: int = 15) -> Calibration:
    result = calibration(make_column(scores, labels), bins)
    assert result is not None
    return result


def test_four_images_in_two_bins_by_hand() -> None:
    scores, labels = [0.1, 0.3, 0.6, 1.0], [0, 1, 1, 1]
    curve = reliability(make_column(scores, labels), 2)
    assert curve == [Bin(pytest.approx(0.2), 0.5, 2), Bin(pytest.approx(0.8), 1, 2)]
    result = judged(scores, labels, 2)
    assert result.ece == pytest.approx((0.3 + 0.2) / 2)
    assert result.brier == pytest.approx((0.01 + 0.49 + 0.16 + 0) / 4)
    assert result.reliability == pytest.approx((0.09 + 0.04) / 2)
    assert result.resolution == pytest.approx((0.25**2 + 0.25**2) / 2)
    assert result.uncertainty == pytest.approx(0.75 * 0.25)
    # Variance (0.01 + 0.04) / 2 less twice the covariance (0.1 * 0.5) / 2.
    assert result.within_bins == pytest.approx(0.025 - 0.05)


def test_equal_mass_bins_keep_ties_together() -> None:
    curve = reliability(make_column([0.1, 0.2, 0.2, 0.2, 0.2, 0.9], [0, 0, 1, 0, 1, 1]), 3)
    assert curve == [Bin(pytest.approx(0.9 / 5), pytest.approx(2 / 5), 5), Bin(pytest.approx(0.9), 1, 1)]


def test_scores_equal_to_rates_calibrated() -> None:
    result = judged(np.repeat([0.25, 0.5], [4, 2]), [1, 0, 0, 0, 1, 0])
    assert (result.ece, result.reliability) == (0, 0)
    assert result.within_bins == 0


def test_no_label_nothing_one_class_judged() -> None:
    none = make_column([0.2, 0.2], [np.nan, np.nan])
    assert (calibration(none), reliability(none)) == (None, [])
    result = judged([0.2, 0.2], [0, 0])
    assert result.brier == pytest.approx(0.04)
    assert result.ece == pytest.approx(0.2)
    assert len(reliability(make_column([0.2, 0.2], [0, 0]))) == 1


def test_score_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"edema contain 1\.5"):
        judged([1.5, 0], [1, 0])
    with pytest.raises(ValueError, match=r"edema contain 1\.5"):
        reliability(make_column([1.5, 0], [1, 0]))
    judged([1.5, 0, 1], [np.nan, 0, 1])
    with pytest.raises(ValueError, match="at least one bin"):
        judged([1, 0], [1, 0], bins=0)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_brier_parts_add_up_in_any_order(
    rows: list[tuple[int, bool]], bins: int, random: np.random.RandomState
) -> None:
    scores = np.array([row[0] for row in rows], float) / 12
    labels = np.array([row[1] for row in rows], float)
    result = judged(scores, labels, bins)
    parts = result.reliability - result.resolution + result.uncertainty + result.within_bins
    assert result.brier == pytest.approx(parts, abs=1e-12)
    assert result.ece**2 <= result.reliability + 1e-12  # Jensen
    order = list(range(len(rows)))
    random.shuffle(order)
    curve, original = (reliability(make_column(scores[n], labels[n]), bins) for n in (order, range(len(rows))))
    assert [bin.count for bin in curve] == [bin.count for bin in original]
    assert sum(bin.count for bin in curve) == len(rows)
