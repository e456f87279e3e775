"""A difference over training seeds: the variance of each part, and no more false positives than announced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.joining.planning import find_detectable, find_seeds, find_times, learn
from chestfed.results.evaluation.training_seeds import SeedsTest, compute_power, seeds_test
from tests.results.evaluation.test_delong import by_definition

PREVALENCES = (0.33, 0.21, 0.16, 0.37, 0.32)


def example(seeds: int, n: int = 120) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    labels = (rng.random((n, 3)) < 0.3).astype(float)
    labels[rng.random((n, 3)) < 0.1] = np.nan
    common = rng.standard_normal((n, 3))

    def runs(quality: float) -> list[np.ndarray]:
        return [quality * np.nan_to_num(labels) + common + 0.7 * rng.standard_normal((n, 3)) for _ in range(seeds)]

    return runs(1.0), runs(1.4), labels, np.arange(n)


def test_variance_obuchowski_and_rockettes() -> None:
    a, b, labels, patients = example(4)
    result = seeds_test(a, b, labels, patients)
    r, runs = 4, [*a, *b]

    def auc(scores: np.ndarray, j: int) -> float:
        known = ~np.isnan(labels[:, j])
        return float(roc_auc_score(labels[known, j], scores[known, j]))

    y = np.array([np.mean([auc(scores, j) for j in range(3)]) for scores in runs]).reshape(2, r)
    residual = y - y.mean(axis=1, keepdims=True) - y.mean(axis=0, keepdims=True) + y.mean()
    of_models = (residual**2).sum() / (r - 1)
    together = auc_covariance(runs, labels, np.eye(2 * r), patients)
    assert together is not None
    covariance = together[1]
    same = [covariance[i, j] for i in range(8) for j in range(8) if i // r == j // r and i != j]
    other = [covariance[i, j] for i in range(8) for j in range(8) if i // r != j // r and i % r != j % r]
    variance = 2 / r * (of_models + max(r * (np.mean(same) - np.mean(other)), 0))
    assert result.difference == pytest.approx(y[1].mean() - y[0].mean(), abs=1e-12)
    assert result.error == pytest.approx(math.sqrt(variance), rel=1e-10)
    assert result.seeds_share == pytest.approx(2 / r * of_models / variance, rel=1e-10)


def test_agreeing_seeds_leave_delongs_test() -> None:
    a, b, labels, patients = example(1)
    pair = [a[0][:, :1], b[0][:, :1]]
    result = seeds_test([pair[0]] * 3, [pair[1]] * 3, labels[:, :1], patients)
    known = ~np.isnan(labels[:, 0])
    _, covariance = by_definition(np.concatenate(pair, axis=1)[known], labels[known, 0] == 1)
    error = math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert result.error == pytest.approx(error, rel=1e-10)
    m = int(np.nansum(labels[:, 0]))
    assert result.p == pytest.approx(2 * stats.t.sf(abs(result.difference) / error, m - 1), rel=0.01)


def test_p_and_interval_are_of_one_test() -> None:
    a, b, labels, patients = example(3)
    result = seeds_test(a, b, labels, patients)
    assert result.interval is not None
    assert result.p is not None
    assert (result.p < 0.05) == (result.interval.low > 0 or result.interval.high < 0)
    mirrored = seeds_test(b, a, labels, patients)
    assert mirrored.p == pytest.approx(result.p)
    assert mirrored.interval is not None
    assert (mirrored.interval.low, mirrored.interval.high) == pytest.approx(
        (-result.interval.high, -result.interval.low)
    )


def test_a_model_and_itself_do_not_differ() -> None:
    a, _, labels, patients = example(2)
    result = seeds_test(a, a, labels, patients)
    assert (result.difference, result.p) == (0.0, 1.0)
    assert result.interval == Interval(0.0, 0.0)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3)])
def test_one_seed_or_other_seeds_are_refused(first: int, second: int) -> None:
    a, b, labels, patients = example(3)
    with pytest.raises(ValueError, match="two or more seeds"):
        seeds_test(a[:first], b[:second], labels, patients)


def null_studies(
    studies: int, seeds: int, seeds_differ: float, images_per_patient: int, better: float = 0.0, start: int = 1
) -> Iterator[float]:
    """The p value of each study; model b is better by `better` deviations of a score."""
    for study in range(studies):
        rng = np.random.default_rng([start, study])
        people = 202 // images_per_patient
        patients = np.repeat(np.arange(people), images_per_patient)

        def drawn(together: float, rng: np.random.Generator = rng, people: int = people) -> np.ndarray:
            """Standard normal `[n, J]`; a patient's images share that part of the variance."""
            noise = rng.standard_normal((people * images_per_patient, 5))
            of_patient = np.repeat(rng.standard_normal((people, 5)), images_per_patient, axis=0)
            return together**0.5 * of_patient + (1 - together) ** 0.5 * noise

        together = 0.6 if images_per_patient > 1 else 0.0
        sick = 0.5 * rng.standard_normal((len(patients), 1)) + 0.87 * drawn(together)
        labels = np.stack([sick[:, j] > np.quantile(sick[:, j], 1 - p) for j, p in enumerate(PREVALENCES)], 1) * 1.0
        everybody, of_seeds = drawn(together), [drawn(0) for _ in range(seeds)]
        runs = []
        for extra in (0.0, better):
            of_model = drawn(0)
            runs.append(
                [
                    (1.3 + extra + seeds_differ * rng.standard_normal()) * labels
                    + everybody + 0.5 * of_model + 0.3 * of_seed + 0.6 * drawn(0)
                    for of_seed in of_seeds
                ]
            )  # fmt: skip
        p = seeds_test(runs[0], runs[1], labels, patients).p
        assert p is not None
        yield p


@pytest.mark.slow
def test_null_studies_are_rarely_rejected() -> None:
    p_values = np.array(list(null_studies(studies=100, seeds=2, seeds_differ=0.1, images_per_patient=1)))
    assert (p_values < 0.05).mean() <= 0.08


@pytest.mark.campaign
@pytest.mark.parametrize(("seeds", "differ", "images"), [*product((2, 3, 5, 10), (0.0, 0.1, 0.4), (1, 4))])
def test_false_positives_are_as_announced(
    seeds: int, differ: float, images: int, save_figures: Callable[[str, Any], None]
) -> None:
    """400 simulated studies without a difference, and as many with one."""
    shares = [
        float(np.mean([p < 0.05 for p in null_studies(400, seeds, differ, images, better)])) for better in (0.0, 0.3)
    ]
    save_figures(f"seeds, {seeds} {differ} {images}", shares)
    assert shares[0] <= 0.06
    assert shares[1] > shares[0]


@pytest.mark.slow_but("2-0.2", "3-0.0")
@pytest.mark.parametrize(("seeds", "by_patients"), [(2, 0.2), (3, 0.0), (3, 2.0), (5, 0.2)])
def test_power_is_that_of_simulated_studies(seeds: int, by_patients: float) -> None:
    """Scores such that the AUC's two parts are known are not needed: the test sees its two variances and d."""
    rng, truth, hits, freedom, trials = np.random.default_rng(seeds), 2.0, 0, 30, 600
    for _ in range(trials):
        of_seeds = rng.chisquare(seeds - 1) / (seeds - 1) / seeds
        of_patients = by_patients * rng.chisquare(freedom) / freedom
        parts = math.sqrt(of_seeds), math.sqrt(of_patients)
        differences = rng.normal(truth, math.sqrt(1 / seeds + by_patients))
        # Behrens and Fisher: the sum of two scaled Student variables.
        drawn = parts[0] * rng.standard_t(seeds - 1, 4000) + parts[1] * rng.standard_t(freedom, 4000)
        hits += float((np.abs(drawn) > abs(differences)).mean()) < 0.05
    assert compute_power(1.0, by_patients, freedom, seeds)(truth) == pytest.approx(hits / trials, abs=0.055)


def test_power_without_patients_students_t() -> None:
    for seeds, difference in ((3, 3.0), (5, 1.5), (9, 1.0)):
        shift, limit = difference * math.sqrt(seeds), stats.t.ppf(0.975, seeds - 1)
        expected = 1 - stats.nct.cdf(limit, seeds - 1, shift) + stats.nct.cdf(-limit, seeds - 1, shift)
        assert compute_power(1.0, 0.0, 30, seeds)(difference) == pytest.approx(expected, abs=0.02)


def test_needed_seeds_have_the_power() -> None:
    pilot = learn(SeedsTest(0.05, (0.0, 0.1), error=0.05, seeds_share=0.98, freedom=40), ())
    of_one, patients, needed = 0.05**2 * 0.98 * 2, 0.05**2 * 0.02, find_seeds(pilot, 0.05)
    assert needed is not None
    assert compute_power(of_one, patients, 40, needed)(0.05) >= 0.8
    assert compute_power(of_one, patients, 40, needed - 1)(0.05) < 0.8
    assert compute_power(of_one, patients, 40, 2)(find_detectable(pilot, 2)) == pytest.approx(0.8)


def test_patients_show_what_no_seeds_do() -> None:
    pilot = learn(SeedsTest(0.05, (0.0, 0.1), error=0.05, seeds_share=0.5, freedom=40), ())
    assert find_seeds(pilot, 0.05) is None
    times = find_times(pilot, 0.05, 20)
    assert times is not None
    assert times > 1
