"""AUC against brute force and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation.auc import auc_per_disease, mean_auc
from chestfed.evaluation.intervals.delong import auc_covariance


def brute_force(score: np.ndarray, label: np.ndarray, weight: np.ndarray | None = None) -> float:
    weight = np.ones(len(score)) if weight is None else weight
    wins = pairs = 0.0
    for i in np.flatnonzero(label == 1):
        for j in np.flatnonzero(label == 0):
            pairs += weight[i] * weight[j]
            wins += weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j]))
    return wins / pairs


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.0, 1.0, np.nan])), min_size=2, max_size=40))
def test_auc_counts_pairs_with_ties_as_one_half_and_skips_missing_labels(
    rows: list[tuple[int, float]],
) -> None:
    score, label = np.array([r[0] for r in rows], float), np.array([r[1] for r in rows])
    (result,) = auc_per_disease(score[:, None], label[:, None], ["edema"])
    assert result.missing == int(np.isnan(label).sum())
    if result.positives and result.negatives:
        assert result.auc == pytest.approx(brute_force(score, label), abs=1e-12)
    else:
        assert result.auc is None
        assert result.reason in ("no positive image", "no negative image")


def test_the_mean_is_over_the_diseases_that_have_both_classes() -> None:
    scores = np.array([[0.1, 0.5], [0.9, 0.5], [0.4, 0.1]])
    labels = np.array([[0, 0], [1, 0], [0, 0.0]])
    results = auc_per_disease(scores, labels, ["edema", "consolidation"])
    assert mean_auc(results) == 1.0
    assert mean_auc(results[1:]) is None


def test_a_score_that_is_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="edema contain NaN"):
        auc_per_disease(np.array([[np.nan], [1.0]]), np.array([[0.0], [1.0]]), ["edema"])


def test_a_label_that_is_no_label_is_refused() -> None:
    with pytest.raises(ValueError, match="labels of edema contain -1"):
        auc_per_disease(np.zeros((2, 1)), np.array([[-1.0], [1.0]]), ["edema"])


def test_the_auc_is_scikit_learns_on_a_thousand_random_cases_with_ties() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(11)
    for _ in range(1000):
        n = int(rng.integers(4, 80))
        label = np.append(rng.integers(0, 2, n), [0, 1]).astype(float)
        score = rng.integers(0, rng.integers(2, 40), n + 2) / 7
        (ours,) = auc_per_disease(score[:, None], label[:, None], ["edema"])
        ranked, _ = auc_covariance(score[:, None], label == 1)
        expected = roc_auc_score(label, score)
        assert ours.auc == pytest.approx(expected, abs=1e-12)
        assert ranked[0] == pytest.approx(expected, abs=1e-12)
