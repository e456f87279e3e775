"""AUC against brute force and scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.estimates import auc_estimates, auc_per_disease, compute_auc, mean_of
from chestfed.results.evaluation.intervals.delong import placements
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Column, Scored


def scored(scores: np.ndarray, labels: np.ndarray, patients: np.ndarray | None = None, *diseases: str) -> Scored:
    """Of one disease, edema, unless others are named, and one patient per image."""
    return Scored(scores, labels, np.arange(len(labels)) if patients is None else patients, diseases or ["edema"])


def make_column(score: Sequence[float] | np.ndarray, label: Sequence[float] | np.ndarray) -> Column:
    """Edema alone."""
    values = (np.array(part, float).reshape(-1, 1) for part in (score, label))
    (column,) = scored(*values).columns()
    return column


def brute_force(score: np.ndarray, label: np.ndarray, weight: np.ndarray | None = None) -> float:
    weight = np.ones(len(score)) if weight is None else weight
    wins = pairs = 0.0
    for i in np.flatnonzero(label == 1):
        for j in np.flatnonzero(label == 0):
            pairs += weight[i] * weight[j]
            wins += weight[i] * weight[j] * ((score[i] > score[j]) + 0.5 * (score[i] == score[j]))
    return wins / pairs


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.0, 1.0, np.nan])), min_size=2, max_size=40))
def test_auc_counts_ties_half_skips_missing(
    rows: list[tuple[int, float]],
) -> None:
    score, label = np.array([r[0] for r in rows], float), np.array([r[1] for r in rows])
    column = make_column(score, label)
    auc = compute_auc(column)
    assert column.missing == int(np.isnan(label).sum())
    if column.positives and column.negatives:
        assert auc == pytest.approx(brute_force(score, label), abs=1e-12)
    else:
        assert auc is None
        assert column.reason in ("no labeled image", "no positive image", "no negative image")


def test_mean_is_over_testable_diseases() -> None:
    scores = np.repeat([[0.1, 0.5], [0.9, 0.5], [0.4, 0.1]], 10, axis=0)  # ten patients of a class, to count
    labels = np.repeat([[0, 0], [1, 0], [0, 0.0]], 10, axis=0)
    data = scored(scores, labels, None, "edema", "consolidation")
    assert auc_per_disease(data) == {"edema": 1, "consolidation": None}
    *_, mean = auc_estimates(data, Intervals(resamples=0))
    assert (mean.disease, mean.value) == ("mean", 1)
    assert mean_of([None]) is None


def test_a_score_that_is_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="edema contain NaN"):
        make_column([np.nan, 1], [0, 1])


def test_a_label_that_is_no_label_is_refused() -> None:
    with pytest.raises(ValueError, match="labels of edema contain -1"):
        make_column([0, 0], [-1, 1])


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit 2 diseases"):
        auc_per_disease(scored(np.zeros((2, 1)), np.zeros((2, 1)), None, "edema", "hernia"))
    with pytest.raises(ValueError, match="3 patients do not fit 2 images"):
        auc_per_disease(scored(np.zeros((2, 1)), np.zeros((2, 1)), np.arange(3)))


def test_auc_is_scikit_learns_with_ties() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(11)
    for _ in range(200):
        n = int(rng.integers(4, 80))
        label = np.append(rng.integers(0, 2, n), [0, 1]).astype(float)
        score = rng.integers(0, rng.integers(2, 40), n + 2) / 7
        ranked, _ = placements(score[:, None], label == 1)
        expected = roc_auc_score(label, score)
        assert compute_auc(make_column(score, label)) == pytest.approx(expected, abs=1e-12)
        assert ranked.mean() == pytest.approx(expected, abs=1e-12)
