"""Power of a test set: the formula against simulated binormal scores, and the source paper's test set."""

from __future__ import annotations

import csv
from importlib import resources

import numpy as np
import pytest
from scipy import special

from chestfed.results.evaluation.power import POWER, detectable_difference, difference_error


def simulated_differences(
    positives: int, negatives: int, aucs: tuple[float, float], correlation: float, studies: int
) -> np.ndarray:
    """Differences of the AUCs of two models with binormal scores, float64 `[studies]`."""
    rng = np.random.default_rng(7)
    covariance = [[1, correlation], [correlation, 1]]
    scores = rng.multivariate_normal([0, 0], covariance, (studies, positives + negatives))
    scores[:, :positives] += np.sqrt(2) * special.ndtri(aucs)
    ranks = scores.argsort(axis=1).argsort(axis=1) + 1
    sums = ranks[:, :positives].sum(axis=1) - positives * (positives + 1) / 2
    each = sums / (positives * negatives)
    return each[:, 1] - each[:, 0]


def compute_normal_power(difference: float, error: float) -> float:
    """Probability that the two-sided test at 5% sees a true difference with this standard error."""
    ratio, critical = difference / error, special.ndtri(0.975)
    return float(special.ndtr(ratio - critical) + special.ndtr(-ratio - critical))


@pytest.mark.parametrize(
    ("positives", "negatives", "auc", "correlation"), [(60, 142, 0.85, 0.8), (30, 500, 0.7, 0.5), (100, 100, 0.95, 0.9)]
)
def test_error_equals_the_simulated_one(positives: int, negatives: int, auc: float, correlation: float) -> None:
    spread = simulated_differences(positives, negatives, (auc, auc), correlation, 4000).std(ddof=1)
    error = difference_error([(positives, negatives)], auc, correlation)
    assert error == pytest.approx(spread, rel=0.06)


def test_detectable_difference_has_the_power() -> None:
    error = difference_error([(60, 142)], 0.8, 0.8)
    assert error is not None
    effect = detectable_difference(error, 1e6)
    differences = simulated_differences(60, 142, (0.8 - effect / 2, 0.8 + effect / 2), 0.8, 4000)
    critical = -special.ndtri(0.025) * error
    assert np.mean(np.abs(differences) > critical) == pytest.approx(POWER, abs=0.04)
    assert compute_normal_power(effect, error) == pytest.approx(POWER, abs=1e-4)


@pytest.mark.parametrize("freedom", [2, 9.5, 144])
def test_detectable_of_few_patients_is_by_t(freedom: float) -> None:
    """The power of the t test at this difference, by simulation."""
    rng = np.random.default_rng(1)
    t = rng.normal(detectable_difference(1.0, freedom), size=200_000)
    t /= np.sqrt(rng.chisquare(freedom, len(t)) / freedom)
    assert (t > special.stdtrit(freedom, 0.975)).mean() == pytest.approx(POWER, abs=0.005)


def test_published_gain_is_below_detectable() -> None:
    """Table 4 of the CODASCA paper: .9353 with one hospital, .9376 with five."""
    name = "paper/table4_chexpert_densenet121.csv"
    with resources.files("chestfed.results.tables").joinpath(name).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    diseases = ("cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion")
    gains = [float(rows[-1][name]) - float(rows[0][name]) for name in diseases]
    counts = [(positives, 202 - positives) for positives in (66, 42, 32, 75, 64)]
    errors = [
        np.hypot.reduce(
            [difference_error([count], float(rows[0][name]), r) for name, count in zip(diseases, counts, strict=True)]
        )
        / len(diseases)
        for r in (0.8, 0.95)
    ]
    assert [round(compute_normal_power(float(np.mean(gains)), error), 2) for error in errors] == [0.07, 0.13]


def test_one_class_no_error_ranges_checked() -> None:
    assert difference_error([(0, 10), (5, 0)]) is None
    assert difference_error([(0, 10), (5, 5)]) == difference_error([(5, 5)])
    for auc, correlation in ((1.0, 0.5), (0.8, 1.5)):
        with pytest.raises(ValueError, match="auc"):
            difference_error([(5, 5)], auc, correlation)
