"""DeLong's variance against the definition, by hand, against published figures, and of a mean over diseases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals import bootstrap
from chestfed.results.evaluation.intervals.delong import auc_covariance, placements
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored


def variance_of_mean(runs: list[np.ndarray], contrast: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    estimate = auc_covariance(runs, labels, contrast[:, None])
    assert estimate is not None
    return float(estimate[0][0]), float(estimate[1][0, 0])


def by_definition(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """AUCs and covariance with every pair looked at, O(n+ n-), as in DeLong et al. (1988), section 2."""
    x, y = scores[positive], scores[~positive]
    psi = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    v10, v01, theta = psi.mean(axis=1), psi.mean(axis=0), psi.mean(axis=(0, 1))
    s10 = (v10 - theta).T @ (v10 - theta) / (len(x) - 1)
    s01 = (v01 - theta).T @ (v01 - theta) / (len(y) - 1)
    return theta, s10 / len(x) + s01 / len(y)


def test_covariance_is_the_definition() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        n = int(rng.integers(4, 60))
        positive = np.append(rng.random(n - 4) < rng.uniform(0.1, 0.9), [True, True, False, False])
        levels = int(rng.integers(2, 50))
        scores = rng.integers(0, levels, (n, 3)) / levels + 0.3 * positive[:, None]
        aucs, covariance = by_definition(scores, positive)
        runs, labels = list(scores.T[:, :, None]), positive[:, None].astype(float)
        # Variances of the three, and of contrasts, determine their covariances.
        for contrast in ([1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [-0.5, -0.5, 1], rng.normal(size=3)):
            estimate = variance_of_mean(runs, np.array(contrast), labels)
            assert estimate == pytest.approx((contrast @ aucs, contrast @ covariance @ contrast), abs=1e-12)


def test_a_small_case_by_hand() -> None:
    # Positives 3 and 1, negatives 2, 1 and 0. Of the pairs, 3 beats all; 1 loses to 2, ties with 1, beats 0.
    scores, labels = np.array([[3], [1], [2], [1], [0.0]]), np.array([[1], [1], [0], [0], [0.0]])
    v10, v01 = placements(scores, labels[:, 0] == 1)
    assert v10[:, 0].tolist() == pytest.approx([1, 1 / 2])
    assert v01[:, 0].tolist() == pytest.approx([1 / 2, 3 / 4, 1])
    # Sample variances over n+ and n-.
    assert variance_of_mean([scores], np.ones(1), labels) == pytest.approx((3 / 4, (1 / 8) / 2 + (1 / 16) / 3))
    interval = auc_estimates(Scored(scores, labels, np.arange(5), ["edema"]), Intervals())[0].interval
    assert interval is not None
    half = 12.7062047 * math.sqrt(1 / 16 + 1 / 48)  # t(0.975, 1): two patients with a positive image
    assert math.log(interval.low / (1 - interval.low)) == pytest.approx(math.log(3) - half / (0.75 * 0.25))
    assert math.log(interval.high / (1 - interval.high)) == pytest.approx(math.log(3) + half / (0.75 * 0.25))


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
def test_published_ratings_are_reproduced(
    negatives: list[int], positives: list[int], auc: float, variance: float | None
) -> None:
    ratings = np.repeat([1.0, 2, 3, 4, 5] * 2, negatives + positives)
    labels = np.repeat([0.0, 1.0], [sum(negatives), sum(positives)])
    estimate = variance_of_mean([ratings[:, None]], np.ones(1), labels[:, None])
    assert estimate[0] == auc
    if variance is not None:
        assert estimate[1] == variance


def test_several_seeds_are_one_contrast() -> None:
    rng = np.random.default_rng(4)
    labels = (rng.random((60, 1)) < 0.4).astype(float)
    seeds = [rng.normal(size=(60, 1)) + k * 0.3 * labels for k in range(5)]
    aucs, covariance = by_definition(np.concatenate(seeds, axis=1), labels[:, 0] == 1)
    contrast = np.array([-1 / 2, -1 / 2, 1 / 3, 1 / 3, 1 / 3])
    estimate = variance_of_mean(seeds, contrast, labels)
    assert estimate == pytest.approx((contrast @ aucs, contrast @ covariance @ contrast))


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


def some_runs(
    seed: int, n: int = 40, diseases: int = 3, missing: float = 0.2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, diseases)) < 0.4).astype(float)
    labels[rng.random((n, diseases)) < missing] = np.nan
    labels[:2], labels[2:4] = 0, 1
    shared = rng.normal(size=(n, 1))
    a, b = (np.round(shared + rng.normal(size=labels.shape) + np.nan_to_num(labels), 1) for _ in range(2))
    return a, b, labels


@pytest.mark.parametrize("seed", range(10))
def test_variance_is_of_loops_over_pairs(seed: int) -> None:
    a, b, labels = some_runs(seed)
    assert variance_of_mean([a, b], np.array([-1.0, 1]), labels) == pytest.approx(in_loops(a, b, labels), rel=1e-9)


def test_repeated_disease_keeps_the_interval() -> None:
    a, b, labels = some_runs(0, diseases=1)
    once, twice = (
        variance_of_mean(
            [np.repeat(model, k, axis=1) for model in (a, b)], np.array([-1.0, 1]), np.repeat(labels, k, axis=1)
        )
        for k in (1, 2)
    )
    assert twice == pytest.approx(once)


def test_error_is_about_that_of_bootstrap() -> None:
    ratios = []
    for seed in range(12):
        a, b, labels = some_runs(seed, n=202, diseases=5, missing=0.1)
        estimate = variance_of_mean([a, b], np.array([-1.0, 1]), labels)
        aucs = bootstrap.jointly_resampled_aucs(np.stack([a, b]), labels, np.arange(202), 600, seed)
        spread = float(bootstrap.mean_over_diseases(aucs[1] - aucs[0]).std(ddof=1))
        ratios.append(math.sqrt(estimate[1]) / spread)
    assert 0.97 < float(np.mean(ratios)) < 1.03
    assert 0.85 < min(ratios) < max(ratios) < 1.15
