"""AUC and its bootstrap against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation import bootstrap
from chestfed.evaluation.auc import auc_per_disease, mean_auc


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


def test_each_resample_equals_the_brute_force_auc_of_the_drawn_patients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    score = rng.integers(0, 8, 30).astype(float)
    label = (rng.random(30) < 0.4).astype(float)
    patient = rng.integers(0, 12, 30)
    drawn: list[np.ndarray] = []

    class Recorder:
        def __init__(self, inner: np.random.Generator) -> None:
            self.inner = inner

        def multinomial(self, *args: object, **kwargs: object) -> np.ndarray:
            counts = self.inner.multinomial(*args, **kwargs)
            drawn.append(counts)
            return counts

    original = bootstrap.numpy_stream
    monkeypatch.setattr(bootstrap, "numpy_stream", lambda *name: Recorder(original(*name)))
    aucs = bootstrap.resampled_aucs(score[:, None], label[:, None], patient, 20, seed=1)[:, 0]

    names = np.unique(patient)
    with_positive = [name for name in names if label[patient == name].any()]
    without = [name for name in names if name not in with_positive]
    for r in range(20):
        count = dict(zip(with_positive, drawn[0][r], strict=True)) | dict(zip(without, drawn[1][r], strict=True))
        weight = np.array([count[name] for name in patient], float)
        assert aucs[r] == pytest.approx(brute_force(score, label, weight), abs=1e-12)


def test_resamples_are_the_same_for_two_models_and_whatever_the_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    labels, patients = (rng.random((50, 2)) < 0.3).astype(float), rng.integers(0, 30, 50)
    scores = rng.random((50, 2)) + labels
    first = bootstrap.resampled_aucs(scores, labels, patients, 40, seed=3)
    monkeypatch.setattr(bootstrap, "_CHUNK", 500)
    np.testing.assert_array_equal(bootstrap.resampled_aucs(scores, labels, patients, 40, seed=3), first)
    # A monotone change of the scores changes no AUC, in no resample.
    np.testing.assert_allclose(bootstrap.resampled_aucs(np.exp(scores), labels, patients, 40, seed=3), first)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    truth, hits = 0.7602499, 0  # P(N(1,1) > N(0,1)) = Phi(1/sqrt 2)
    for trial in range(120):
        label = np.repeat([0.0, 1.0], [60, 40])
        score = rng.normal(size=100) + label
        aucs = bootstrap.resampled_aucs(score[:, None], label[:, None], np.arange(100), 300, seed=trial)
        found = bootstrap.interval(aucs[:, 0])
        assert found is not None
        hits += found.low <= truth <= found.high
    assert 0.88 <= hits / 120 <= 0.99


def test_a_paired_difference_of_equal_models_is_zero_and_of_a_better_model_positive() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random((80, 2)) < 0.4).astype(float)
    weak, strong = rng.normal(size=(80, 2)) + 0.5 * labels, rng.normal(size=(80, 2)) + 3 * labels
    patients = np.arange(80)
    difference, intervals, mean, mean_interval = bootstrap.paired_difference([weak], [weak], labels, patients)
    assert not difference.any()
    assert mean == 0
    assert mean_interval == bootstrap.Interval(0, 0)
    difference, intervals, mean, mean_interval = bootstrap.paired_difference([weak], [strong], labels, patients)
    assert mean > 0
    assert mean_interval is not None
    assert mean_interval.low > 0
    assert all(part is not None and part.low < d < part.high for part, d in zip(intervals, difference, strict=True))
