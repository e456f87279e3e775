"""DeLong's variance against the definition, by hand and against published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation.intervals.delong import (
    auc_covariance,
    delong_difference_per_disease,
    delong_per_disease,
    placements,
)


def by_definition(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """AUCs and covariance with every pair looked at, O(n+ n-), as in DeLong et al. (1988), section 2."""
    x, y = scores[positive], scores[~positive]
    psi = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    v10, v01, theta = psi.mean(axis=1), psi.mean(axis=0), psi.mean(axis=(0, 1))
    s10 = (v10 - theta).T @ (v10 - theta) / (len(x) - 1)
    s01 = (v01 - theta).T @ (v01 - theta) / (len(y) - 1)
    return theta, s10 / len(x) + s01 / len(y)


def test_the_covariance_is_that_of_the_definition_on_hundreds_of_random_cases_with_ties() -> None:
    rng = np.random.default_rng(3)
    for _ in range(400):
        n = int(rng.integers(4, 60))
        positive = np.append(rng.random(n - 4) < rng.uniform(0.1, 0.9), [True, True, False, False])
        levels = int(rng.integers(2, 50))
        scores = rng.integers(0, levels, (n, 3)) / levels + 0.3 * positive[:, None]
        aucs, covariance = auc_covariance(scores, positive)
        expected_aucs, expected = by_definition(scores, positive)
        np.testing.assert_allclose(aucs, expected_aucs, atol=1e-12)
        np.testing.assert_allclose(covariance, expected, atol=1e-12)


def test_a_small_case_by_hand() -> None:
    # Positives 3 and 1, negatives 2, 1 and 0. Of the pairs, 3 beats all; 1 loses to 2, ties with 1, beats 0.
    scores, labels = np.array([[3], [1], [2], [1], [0.0]]), np.array([[1], [1], [0], [0], [0.0]])
    v10, v01 = placements(scores, labels[:, 0] == 1)
    assert v10[:, 0].tolist() == pytest.approx([1, 1 / 2])
    assert v01[:, 0].tolist() == pytest.approx([1 / 2, 3 / 4, 1])
    (found,) = delong_per_disease(scores, labels, ["edema"])
    assert found.auc == pytest.approx(3 / 4)
    assert found.variance == pytest.approx((1 / 8) / 2 + (1 / 16) / 3)  # sample variances over n+ and n-
    assert found.normal is not None
    assert found.logit is not None
    half = 1.9599640 * math.sqrt(1 / 16 + 1 / 48)
    assert (found.normal.low, found.normal.high) == (pytest.approx(0.75 - half), 1)
    assert math.log(found.logit.low / (1 - found.logit.low)) == pytest.approx(math.log(3) - half / (0.75 * 0.25))
    assert math.log(found.logit.high / (1 - found.logit.high)) == pytest.approx(math.log(3) + half / (0.75 * 0.25))


@pytest.mark.parametrize(
    ("negatives", "positives", "auc", "variance"),
    [
        # Hanley and McNeil (1982), CT ratings 1 to 5: area 0.893.
        ([33, 6, 6, 11, 2], [3, 2, 2, 11, 33], pytest.approx(0.893, abs=5e-4), None),
        # WFNS grades 1 to 5 by outcome, Turck et al. (2010); the variance is the one that the tests of the R package
        # pROC (Robin et al. 2011) expect for these patients.
        (
            [37, 20, 3, 8, 4],
            [2, 12, 1, 8, 18],
            pytest.approx(0.823678861788618, abs=1e-12),
            pytest.approx(0.00146991470882363, rel=1e-10),
        ),
    ],
)
def test_published_ratings_give_the_published_figures(
    negatives: list[int], positives: list[int], auc: float, variance: float | None
) -> None:
    ratings = np.repeat([1.0, 2, 3, 4, 5] * 2, negatives + positives)
    labels = np.repeat([0.0, 1.0], [sum(negatives), sum(positives)])
    (found,) = delong_per_disease(ratings[:, None], labels[:, None], ["edema"])
    assert found.auc == auc
    if variance is not None:
        assert found.variance == variance


def test_what_is_undefined_is_null_with_a_reason() -> None:
    labels = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [0, np.nan, 0.0]])
    scores = np.array([[1, 1, 4], [2, 2, 3], [0, 3, 2], [0, 4, 1.0]])
    one, none, perfect = delong_per_disease(scores, labels, ["edema", "atelectasis", "cardiomegaly"])
    assert one.auc == pytest.approx(2 / 3)
    assert (one.variance, one.normal, one.reason) == (None, None, "one positive image: no variance")
    assert (none.auc, none.missing, none.reason) == (None, 1, "no positive image")
    assert (perfect.auc, perfect.variance, perfect.logit, perfect.reason) == (1, 0, None, "the logit of an AUC of 1")
    differences = delong_difference_per_disease([scores], [-scores], labels, ["edema", "atelectasis", "cardiomegaly"])
    assert [(d.p, d.reason) for d in differences] == [
        (None, "one positive image: no variance"),
        (None, "no positive image"),
        (None, "no variance in these data"),
    ]
    with pytest.raises(ValueError, match="a positive and a negative"):
        auc_covariance(scores, np.ones(4, bool))


def cases() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rows = st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([0.0, 1.0, 1.0, np.nan]))
    return st.lists(rows, min_size=2, max_size=40).map(
        lambda found: tuple(np.array([row[k] for row in found], float)[:, None] for k in range(3))  # type: ignore[return-value]
    )


@settings(max_examples=100, deadline=None)
@given(cases())
def test_swapping_the_models_flips_the_sign_and_nothing_else(case: tuple[np.ndarray, ...]) -> None:
    a, b, labels = case
    (one,) = delong_difference_per_disease([a], [b], labels, ["edema"])
    (other,) = delong_difference_per_disease([b], [a], labels, ["edema"])
    assert one.reason == other.reason
    if one.z is not None and other.z is not None and one.interval and other.interval:
        assert one.difference == -other.difference  # type: ignore[operator]
        assert one.z == pytest.approx(-other.z)
        assert one.p == pytest.approx(other.p)
        assert one.interval.low == pytest.approx(-other.interval.high)


@settings(max_examples=100, deadline=None)
@given(cases(), st.sampled_from([np.exp, np.cbrt, lambda x: 3 * x - 7]))
def test_a_monotone_change_of_the_scores_changes_nothing(case: tuple[np.ndarray, ...], change: np.ufunc) -> None:
    a, b, labels = case
    assert delong_per_disease(change(a), labels, ["edema"]) == delong_per_disease(a, labels, ["edema"])
    changed = delong_difference_per_disease([change(a)], [b], labels, ["edema"])
    assert changed == delong_difference_per_disease([a], [b], labels, ["edema"])


def test_equal_rankings_differ_by_nothing() -> None:
    rng = np.random.default_rng(0)
    labels, scores = (rng.random((50, 1)) < 0.4).astype(float), rng.normal(size=(50, 1))
    (found,) = delong_difference_per_disease([scores], [np.exp(scores)], labels, ["edema"])
    assert (found.difference, found.variance, found.z, found.p) == (0, 0, 0, 1)


def test_several_seeds_are_one_contrast_of_all_their_aucs() -> None:
    rng = np.random.default_rng(4)
    labels = (rng.random((60, 1)) < 0.4).astype(float)
    seeds = [rng.normal(size=(60, 1)) + k * 0.3 * labels for k in range(5)]
    (found,) = delong_difference_per_disease(seeds[:2], seeds[2:], labels, ["edema"])
    aucs, covariance = by_definition(np.concatenate(seeds, axis=1), labels[:, 0] == 1)
    contrast = np.array([-1 / 2, -1 / 2, 1 / 3, 1 / 3, 1 / 3])
    assert found.difference == pytest.approx(contrast @ aucs)
    assert found.variance == pytest.approx(contrast @ covariance @ contrast)
