"""Calibration on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation.calibration import Bin, calibration_per_disease, reliability_per_disease

EDEMA = ["edema"]


def column(*values: float) -> np.ndarray:
    return np.array(values, float)[:, None]


def test_four_images_in_two_bins_by_hand() -> None:
    scores, labels = column(0.1, 0.3, 0.6, 1.0), column(0, 1, 1, 1)
    for binning in ("equal-width", "equal-mass"):
        (curve,) = reliability_per_disease(scores, labels, EDEMA, 2, binning)  # type: ignore[arg-type]
        assert curve.bins == (Bin(pytest.approx(0.2), 0.5, 2), Bin(pytest.approx(0.8), 1, 2))
    (found,) = calibration_per_disease(scores, labels, EDEMA, 2)
    assert found.ece_equal_width == found.ece_equal_mass == pytest.approx((0.3 + 0.2) / 2)
    assert found.brier == pytest.approx((0.01 + 0.49 + 0.16 + 0) / 4)
    assert found.reliability == pytest.approx((0.09 + 0.04) / 2)
    assert found.resolution == pytest.approx((0.25**2 + 0.25**2) / 2)
    assert found.uncertainty == pytest.approx(0.75 * 0.25)
    # Variance (0.01 + 0.04) / 2 less twice the covariance (0.1 * 0.5) / 2.
    assert found.within_bins == pytest.approx(0.025 - 0.05)
    assert (found.positives, found.negatives, found.missing, found.reason) == (3, 1, 0, "")


def test_equal_width_bins_include_their_upper_end_and_the_first_one_0() -> None:
    (curve,) = reliability_per_disease(column(0, 0.5, 0.51, 1), column(0, 0, 1, 1), EDEMA, 2, "equal-width")
    assert [bin.count for bin in curve.bins] == [2, 2]
    (curve,) = reliability_per_disease(column(0.9, 0.95), column(0, 1), EDEMA, 10, "equal-width")
    assert [bin.count for bin in curve.bins] == [1, 1]
    (curve,) = reliability_per_disease(column(0.91, 0.95), column(0, 1), EDEMA, 10, "equal-width")
    assert [bin.count for bin in curve.bins] == [2]  # empty bins are left out


def test_equal_mass_bins_keep_equal_scores_together() -> None:
    scores = column(0.1, 0.2, 0.2, 0.2, 0.2, 0.9)
    (curve,) = reliability_per_disease(scores, column(0, 0, 1, 0, 1, 1), EDEMA, 3)
    assert curve.bins == (
        Bin(pytest.approx(0.9 / 5), pytest.approx(2 / 5), 5),
        Bin(pytest.approx(0.9), 1, 1),
    )


def test_scores_that_are_the_rates_are_calibrated() -> None:
    scores = np.repeat([0.25, 0.5], [4, 2])[:, None]
    (found,) = calibration_per_disease(scores, column(1, 0, 0, 0, 1, 0), EDEMA)
    assert (found.ece_equal_width, found.ece_equal_mass, found.reliability) == (0, 0, 0)
    assert found.within_bins == 0


def test_no_label_is_null_with_a_reason_and_one_class_is_judged() -> None:
    labels = np.array([[np.nan, 0], [np.nan, 0.0]])
    scores = np.full((2, 2), 0.2)
    none, one = calibration_per_disease(scores, labels, ["edema", "atelectasis"])
    assert (none.brier, none.ece_equal_width, none.missing, none.reason) == (None, None, 2, "no labeled image")
    assert one.brier == pytest.approx(0.04)
    assert one.ece_equal_mass == pytest.approx(0.2)
    assert [curve.reason for curve in reliability_per_disease(scores, labels, ["edema", "atelectasis"])] == [
        "no labeled image",
        "",
    ]


def test_a_score_that_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match=r"edema contain 1\.5"):
        calibration_per_disease(column(1.5, 0), column(1, 0), EDEMA)
    calibration_per_disease(column(1.5, 0, 1), column(np.nan, 0, 1), EDEMA)
    with pytest.raises(ValueError, match="at least one bin"):
        calibration_per_disease(column(1, 0), column(1, 0), EDEMA, bins=0)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_the_parts_of_the_brier_score_add_up_and_the_order_of_the_images_is_nothing(
    rows: list[tuple[int, bool]], bins: int, random: np.random.RandomState
) -> None:
    scores = np.array([row[0] for row in rows], float)[:, None] / 12
    labels = np.array([row[1] for row in rows], float)[:, None]
    (found,) = calibration_per_disease(scores, labels, EDEMA, bins)
    assert found.brier is not None
    assert found.brier == pytest.approx(
        found.reliability - found.resolution + found.uncertainty + found.within_bins,  # type: ignore[operator]
        abs=1e-12,
    )
    assert found.ece_equal_mass is not None
    assert found.reliability is not None
    assert found.ece_equal_mass**2 <= found.reliability + 1e-12  # Jensen
    order = list(range(len(rows)))
    random.shuffle(order)
    (curve,) = reliability_per_disease(scores[order], labels[order], EDEMA, bins)
    (original,) = reliability_per_disease(scores, labels, EDEMA, bins)
    assert [bin.count for bin in curve.bins] == [bin.count for bin in original.bins]
    assert sum(bin.count for bin in curve.bins) == len(rows)
