"""The bootstrap of the AUC: what it draws, what it computes from the draw, and its intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.intervals import bootstrap
from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients
from chestfed.results.evaluation.intervals.interval import (
    Interval,
    clopper_lower,
    logit_interval,
    quantile_interval,
)
from tests.results.evaluation.test_auc import brute_force


class Recorder:
    """A generator that keeps what it drew."""

    def __init__(self, inner: np.random.Generator, drawn: list[np.ndarray]) -> None:
        self.inner, self.drawn = inner, drawn

    def multinomial(self, *args: object, **kwargs: object) -> np.ndarray:
        counts = self.inner.multinomial(*args, **kwargs)
        self.drawn.append(counts)
        return counts


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    draws: list[np.ndarray] = []
    original = bootstrap.numpy_stream
    monkeypatch.setattr(bootstrap, "numpy_stream", lambda *name: Recorder(original(*name), draws))
    return draws


def test_resample_is_brute_force_auc(drawn: list[np.ndarray]) -> None:
    rng = np.random.default_rng(5)
    score = rng.integers(0, 8, 30).astype(float)
    label = (rng.random(30) < 0.4).astype(float)
    patient = rng.integers(0, 12, 30)
    aucs = bootstrap.resampled_aucs(score[:, None], label[:, None], patient, 20, seed=1)[:, 0]

    names = np.unique(patient)
    with_positive = [name for name in names if label[patient == name].any()]
    without = [name for name in names if name not in with_positive]
    for r in range(20):
        count = dict(zip(with_positive, drawn[0][r], strict=True)) | dict(zip(without, drawn[1][r], strict=True))
        weight = np.array([count[name] for name in patient], float)
        assert aucs[r] == pytest.approx(brute_force(score, label, weight), abs=1e-12)


def test_joint_resample_shares_patients(drawn: list[np.ndarray]) -> None:
    rng = np.random.default_rng(6)
    scores = rng.integers(0, 8, (40, 3)).astype(float)
    labels = np.where(rng.random((40, 3)) < 0.1, np.nan, (rng.random((40, 3)) < 0.4).astype(float))
    labels[:, 2] = 0
    patient = rng.integers(0, 15, 40)
    aucs = bootstrap.jointly_resampled_aucs(scores, labels, patient, 20, seed=1)
    (counts,) = drawn
    names = np.unique(patient)
    assert np.isnan(aucs[:, 2]).all()
    for r in range(20):
        weight = counts[r][np.searchsorted(names, patient)].astype(float)
        for j in range(2):
            known = ~np.isnan(labels[:, j])
            expected = brute_force(scores[known, j], labels[known, j], weight[known])
            assert aucs[r, j] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(bootstrap.mean_over_diseases(aucs), aucs[:, :2].mean(axis=1))


def test_resamples_those_of_published_tables() -> None:
    rng = np.random.default_rng(7)
    labels = (rng.random((60, 2)) < 0.3).astype(float)
    labels[rng.random((60, 2)) < 0.1] = np.nan
    scores = np.round(rng.normal(size=(60, 2)) + np.nan_to_num(labels), 1)
    aucs = bootstrap.resampled_aucs(scores, labels, rng.integers(0, 45, 60), 6, seed=0)
    assert aucs.tolist() == [
        [0.6309523809523809, 0.931390977443609],
        [0.6132404181184669, 0.685064935064935],
        [0.6557486631016043, 0.7710622710622711],
        [0.5501930501930502, 0.7673745173745173],
        [0.6766666666666666, 0.8688394276629571],
        [0.6939935064935064, 0.7451612903225806],
    ]


def test_resamples_of_many_images_unchanged() -> None:
    """3000 images and 2000 resamples are drawn in two parts, of 1333 and 667."""
    rng = np.random.default_rng(7)
    rng.random((60, 2)), rng.random((60, 2)), rng.normal(size=(60, 2)), rng.integers(0, 45, 60)
    labels = (rng.random((3000, 1)) < 0.1).astype(float)
    scores = np.round(rng.normal(size=(3000, 1)) + labels, 2)
    aucs = bootstrap.resampled_aucs(scores, labels, rng.integers(0, 1500, 3000), 2000, seed=0)
    assert aucs[[0, 1, 1332, 1333, 1999], 0].tolist() == [
        0.7839032782782783,
        0.7731987826171307,
        0.7583987585579178,
        0.7569486798550839,
        0.7637279782035893,
    ]


def test_resamples_do_not_depend_on_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    labels, patients = (rng.random((50, 2)) < 0.3).astype(float), rng.integers(0, 30, 50)
    scores = rng.random((50, 2)) + 0.3 * labels
    for resample in (bootstrap.resampled_aucs, bootstrap.jointly_resampled_aucs):
        first = resample(scores, labels, patients, 40, seed=3)
        assert (first.std(axis=0) > 0.01).all()
        with monkeypatch.context() as patch:
            patch.setattr(bootstrap, "_BLOCK_WEIGHTS", 500)
            np.testing.assert_array_equal(resample(scores, labels, patients, 40, seed=3), first)
        # A monotone change of the scores changes no AUC, in no resample.
        np.testing.assert_array_equal(resample(np.exp(scores), labels, patients, 40, seed=3), first)


@given(st.integers(0, 10_000), st.permutations(range(25)))
def test_single_images_are_image_bootstrap(seed: int, names: list[int]) -> None:
    rng = np.random.default_rng(seed)
    label = np.append(rng.random(23) < 0.4, [True, False])
    score = rng.integers(0, 9, 25).astype(float)
    order = np.argsort(names)
    aucs = bootstrap.resampled_aucs(
        score[order, None], label[order, None].astype(float), np.array(names)[order], 5, seed
    )
    # By hand: draw images within the classes, in the order of the patients' names.
    stream = bootstrap.numpy_stream(seed, "bootstrap", 0)
    weight = np.empty((5, 25))
    for stratum in (np.flatnonzero(label[order]), np.flatnonzero(~label[order])):
        weight[:, stratum] = stream.multinomial(len(stratum), np.full(len(stratum), 1 / len(stratum)), size=5)
    expected = [brute_force(score[order], label[order].astype(float), row) for row in weight]
    np.testing.assert_allclose(aucs[:, 0], expected, atol=1e-12)


def test_nan_score_with_a_label_is_refused() -> None:
    labels, patients = np.array([[0.0], [1.0], [np.nan]]), np.arange(3)
    bootstrap.resampled_aucs(np.array([[1.0], [2.0], [np.nan]]), labels, patients, 3, seed=0)
    for resample in (bootstrap.resampled_aucs, bootstrap.jointly_resampled_aucs):
        with pytest.raises(ValueError, match="NaN"):
            resample(np.array([[np.nan], [2.0], [1.0]]), labels, patients, 3, seed=0)


def test_units_are_patients_of_rarer_class() -> None:
    labels = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0], [np.nan, 1, 0], [0, 1, 0.0]])
    patients = np.array(["a", "a", "a", "b", "c"])
    assert [count_effective_patients(labels[:, [j]], patients) for j in range(3)] == [1, 1, 0]
    assert count_effective_patients(labels, patients) == 1  # each of the first two diseases has one
    assert count_effective_patients(labels[:, 2:], patients) == 0


def test_mean_has_no_more_units_than_disease() -> None:
    labels = np.zeros((40, 5))
    labels[:15] = 1  # the same patients five times
    assert count_effective_patients(labels, np.arange(40)) == 15
    assert count_effective_patients(labels[:, :1], np.arange(40)) == 15


def test_rare_disease_leaves_mean_few_units() -> None:
    labels = np.zeros((40, 2))
    labels[:20, 0] = labels[20:23, 1] = 1  # 23 patients with either
    # v = 1/20 + 1/20 and 1/3 + 1/37: (v1 + v2)^2 / (v1^2 / 19 + v2^2 / 2) = 3.2378
    assert count_effective_patients(labels, np.arange(40)) == pytest.approx(1 + 3.2378, abs=1e-4)
    labels[21:23, 1] = 0
    assert count_effective_patients(labels, np.arange(40)) == 1  # one positive patient: no interval of the mean


def test_interval_with_a_rare_disease_holds() -> None:
    """Three of 100 patients have the second disease."""
    rng = np.random.default_rng(0)
    truth, covered, patients = 0.7602499, 0, np.arange(100)
    labels = np.zeros((100, 2))
    labels[:40, 0] = labels[40:43, 1] = 1
    units = count_effective_patients(labels, patients)
    for trial in range(150):
        scores = rng.normal(size=(100, 2)) + labels
        values = bootstrap.mean_over_diseases(
            bootstrap.jointly_resampled_aucs(scores, labels, patients, 200, seed=trial)
        )
        mean = float(np.mean([brute_force_fast(scores[:, j], labels[:, j]) for j in (0, 1)]))
        interval = logit_interval(mean, values, units)
        assert interval is not None
        covered += interval.low <= truth <= interval.high
    assert covered / 150 >= 0.9  # 0.83 with 43 units


def test_auc_interval_is_the_logit_formula() -> None:
    values = np.array([0.7, 0.8, np.nan, 0.9])
    interval = logit_interval(0.8, values, units=5)
    assert interval is not None
    half = 2.7764451 * 0.1 * math.sqrt(5 / 4) / (0.8 * 0.2)  # t(0.975, 4)
    assert math.log(interval.high / (1 - interval.high)) == pytest.approx(math.log(4) + half)
    assert math.log(interval.low / (1 - interval.low)) == pytest.approx(math.log(4) - half)


def test_auc_of_one_no_interval_of_one_point() -> None:
    interval = logit_interval(1.0, np.ones(9), units=5)
    assert interval == Interval(clopper_lower(5, 0.95), 1)  # the exact binomial one of 5 of 5
    assert interval.low < 0.5
    assert logit_interval(0.5, np.full(9, 0.5), units=5) is None  # nothing varies: these data do not show how much
    assert logit_interval(0.8, np.array([0.7, 0.8]), units=1) is None
    assert logit_interval(0.8, np.array([0.7, np.nan]), units=5) is None
    assert quantile_interval(np.array([0.7, np.nan])) is None


def test_mean_without_a_class_has_no_point() -> None:
    labels = np.array([[1, 0], [0, 0], [0, 0], [1, 0], [0, 1]], float)  # only patient 1 has the second disease
    scores = np.array([[0.1, 0.2], [0.3, 0.1], [0.2, 0.4], [0.9, 0.8], [0.1, 0.9]])
    patients = np.array([0, 0, 0, 0, 1])
    values = bootstrap.mean_over_diseases(bootstrap.jointly_resampled_aucs(scores, labels, patients, 200, 0))
    mean = float(np.nanmean(values))
    assert 0 < mean < 1
    assert np.isnan(values).any()
    assert logit_interval(mean, values, units=2) is None


def test_percentile_interval_is_of_quantiles() -> None:
    values = np.linspace(0, 1, 10_001)
    estimate = quantile_interval(values)
    assert estimate is not None
    assert estimate[0] == Interval(pytest.approx(0.025), pytest.approx(0.975))


def brute_force_fast(score: np.ndarray, label: np.ndarray) -> float:
    """AUC of scores without ties."""
    return float((score[label == 1][:, None] > score[label == 0]).mean())
