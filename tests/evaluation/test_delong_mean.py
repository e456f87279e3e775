"""DeLong's variance of the mean over diseases: in loops, for one disease, and beside the bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals.delong import delong_difference_per_disease, delong_per_disease
from chestfed.evaluation.intervals.delong_mean import delong_difference_of_mean, delong_mean_interval, variance_of_mean
from chestfed.evaluation.intervals.interval import Bounds


def in_loops(a: np.ndarray, b: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Mean over diseases of AUC(b) - AUC(a), and its variance, every pair looked at, one image after the other."""
    n, diseases = labels.shape
    wins = lambda x, y: 1.0 if x > y else 0.5 if x == y else 0.0  # noqa: E731
    effect, difference = [[0.0] * diseases for _ in range(n)], 0.0
    for j in range(diseases):
        positives = [i for i in range(n) if labels[i, j] == 1]
        negatives = [i for i in range(n) if labels[i, j] == 0]
        value = {}
        for i in positives:
            value[i] = sum(wins(b[i, j], b[k, j]) - wins(a[i, j], a[k, j]) for k in negatives) / len(negatives)
        for k in negatives:
            value[k] = sum(wins(b[i, j], b[k, j]) - wins(a[i, j], a[k, j]) for i in positives) / len(positives)
        auc = sum(value[i] for i in positives) / len(positives)
        difference += auc / diseases
        for rows in (positives, negatives):
            for i in rows:
                effect[i][j] = (value[i] - auc) / math.sqrt(len(rows) * (len(rows) - 1))
    variance = 0.0
    for j in range(diseases):
        for k in range(diseases):
            variance += sum(effect[i][j] * effect[i][k] for i in range(n)) / diseases**2
    return difference, variance


def some(seed: int, n: int = 40, diseases: int = 3, missing: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, diseases)) < 0.4).astype(float)
    labels[rng.random((n, diseases)) < missing] = np.nan
    labels[:2], labels[2:4] = 0, 1
    shared = rng.normal(size=(n, 1))
    a, b = (np.round(shared + rng.normal(size=labels.shape) + np.nan_to_num(labels), 1) for _ in range(2))
    return a, b, labels


@pytest.mark.parametrize("seed", range(10))
def test_the_variance_is_that_of_loops_over_all_pairs_with_ties_and_missing_labels(seed: int) -> None:
    a, b, labels = some(seed)
    found = delong_difference_of_mean([a], [b], labels)
    difference, variance = in_loops(a, b, labels)
    assert found.difference == pytest.approx(difference, abs=1e-12)
    assert found.variance == pytest.approx(variance, rel=1e-9)
    assert found.z == pytest.approx(difference / math.sqrt(variance))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_the_mean_over_one_disease_is_that_disease(seed: int, seeds: int) -> None:
    a, b, labels = some(seed, diseases=1)
    runs_b = [b + k * a for k in range(seeds)]
    (one,) = delong_difference_per_disease([a], runs_b, labels, ["edema"])
    mean = delong_difference_of_mean([a], runs_b, labels)
    assert mean.difference == pytest.approx(one.difference, abs=1e-12)
    assert mean.variance == pytest.approx(one.variance, rel=1e-9, abs=1e-18)
    assert mean.p == pytest.approx(one.p, rel=1e-9)
    (alone,) = delong_per_disease(a, labels, ["edema"])
    between = delong_mean_interval(a, labels).interval
    assert (between is None) == (alone.logit is None)
    if between is not None and alone.logit is not None:
        assert (between.low, between.high) == (pytest.approx(alone.logit.low), pytest.approx(alone.logit.high))


def test_a_disease_that_stands_there_twice_does_not_make_the_mean_surer() -> None:
    a, b, labels = some(0, diseases=1)
    once, twice = (
        delong_difference_of_mean([np.repeat(a, k, axis=1)], [np.repeat(b, k, axis=1)], np.repeat(labels, k, axis=1))
        for k in (1, 2)
    )
    assert twice.variance == pytest.approx(once.variance)


def test_what_is_undefined_is_null_with_a_reason() -> None:
    a, b, labels = some(1)
    labels[:, 2] = 0
    two = delong_difference_of_mean([a[:, :2]], [b[:, :2]], labels[:, :2])
    assert delong_difference_of_mean([a], [b], labels) == two  # a disease of one class does not count
    labels[5, 2] = 1
    one = delong_difference_of_mean([a], [b], labels)
    assert (one.variance, one.p, one.reason) == (None, None, "one image of a class, in a disease: no variance")
    assert one.difference is not None
    assert delong_mean_interval(a, labels) == Bounds(None, "one image of a class, in a disease: no variance")
    labels[:] = np.nan
    nothing = delong_difference_of_mean([a], [b], labels)
    assert (nothing.difference, nothing.p, nothing.reason) == (None, None, "no disease has an AUC")
    assert delong_mean_interval(a, labels) == Bounds(None)
    a, _, labels = some(1)
    same = delong_difference_of_mean([a], [np.exp(a)], labels)
    assert (same.difference, same.z, same.p) == (0, 0, 1)
    perfect = np.nan_to_num(labels)
    assert delong_mean_interval(perfect, labels) == Bounds(None, "the logit of a mean AUC of 1")


def test_its_standard_error_is_about_that_of_the_joint_bootstrap() -> None:
    ratios = []
    for seed in range(12):
        a, b, labels = some(seed, n=202, diseases=5, missing=0.1)
        found = variance_of_mean([a, b], np.array([-1.0, 1]), labels)
        assert found is not None
        aucs = bootstrap.jointly_resampled_aucs(np.stack([a, b]), labels, np.arange(202), 600, seed)
        spread = float(bootstrap.mean_over_diseases(aucs[1] - aucs[0]).std(ddof=1))
        ratios.append(math.sqrt(found[1]) / spread)
    assert 0.97 < float(np.mean(ratios)) < 1.03
    assert 0.85 < min(ratios) < max(ratios) < 1.15
