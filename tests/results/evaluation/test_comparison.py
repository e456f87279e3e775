"""Paired comparison of two models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.comparison import compare, holm
from chestfed.results.evaluation.estimates import auc_per_disease, mean_of
from chestfed.results.evaluation.intervals import bootstrap
from chestfed.results.evaluation.intervals.interval import Interval, quantile_interval
from chestfed.results.evaluation.labeled import NO_DISEASE_COUNTS, Scored

NAMES = ["edema", "atelectasis"]


def runs(seed: int = 1, gain: float = 3) -> tuple[Scored, Scored]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((80, 2)) < 0.4).astype(float)
    weak, strong = rng.normal(size=(80, 2)) + 0.5 * labels, rng.normal(size=(80, 2)) + gain * labels
    patients = rng.integers(0, 60, 80)
    return Scored(weak, labels, patients, NAMES), Scored(strong, labels, patients, NAMES)


def test_equal_models_differ_by_nothing() -> None:
    weak, _ = runs()
    for difference in compare([weak], [weak], 200):
        assert (difference.difference, difference.interval) == (0, Interval(0, 0))
        assert difference.p == 1


def test_a_better_model_is_better() -> None:
    weak, strong = runs()
    *differences, mean = compare([weak], [strong], 500)
    for difference in differences:
        assert difference.interval is not None
        assert 0 < difference.interval.low < difference.difference < difference.interval.high  # type: ignore[operator]
        assert difference.p is not None
        assert difference.p < 0.02
    assert mean.interval is not None
    assert mean.interval.low > 0
    a, b = (mean_of(auc_per_disease(run).values()) for run in (weak, strong))
    assert (mean.disease, mean.auc_reference, mean.auc_model) == ("mean", pytest.approx(a), pytest.approx(b))


def test_intervals_end_at_one_of_two_seeds() -> None:
    """They end at -1 and 1, not where the AUC of the reference, an estimate itself, would leave no room."""
    labels = np.repeat([0.0, 1.0], 10)[:, None]
    scores = labels + np.random.default_rng(0).normal(size=(4, 20, 1))
    a, b = ([Scored(run, labels, np.arange(20), ["edema"]) for run in part] for part in (scores[:2], scores[2:]))
    mean = compare(a, b)[-1]  # of two seeds, which leave nearly everything open
    assert mean.interval is not None
    assert mean.auc_reference is not None
    assert mean.interval.low == -1
    assert 1 - mean.auc_reference < mean.interval.high < 1


def test_draws_are_each_models_over_seeds() -> None:
    weak, strong = runs()
    rng = np.random.default_rng(9)
    labels, patients = weak.labels, weak.patients
    other = replace(weak, scores=rng.normal(size=(80, 2)))
    *differences, mean = compare([weak, other], [strong], 100, seed=4, interval="percentile")

    arrays = [(model.scores, labels, patients, 100, 4) for model in (weak, other, strong)]
    alone = [bootstrap.resampled_aucs(*given) for given in arrays]
    resampled = alone[2] - (alone[0] + alone[1]) / 2
    joint = [bootstrap.jointly_resampled_aucs(*given) for given in arrays]
    of_mean = (joint[2] - (joint[0] + joint[1]) / 2).mean(axis=1)
    for j, difference in enumerate(differences):
        expected = quantile_interval(resampled[:, j])
        assert (difference.interval, difference.p) == expected
    assert (mean.interval, mean.p) == quantile_interval(of_mean)


@given(st.integers(0, 1000), st.sampled_from([0.5, 1.0]))
def test_swapping_models_flips_sign_keeps_p(seed: int, gain: float) -> None:
    a, b = runs(seed, gain)
    for x, y in zip(compare([a], [b]), compare([b], [a]), strict=True):
        assert x.difference == pytest.approx(-y.difference)  # type: ignore[operator]
        assert x.p == pytest.approx(y.p)
        assert x.interval is not None
        assert y.interval is not None
        assert x.interval.low == pytest.approx(-y.interval.high)


def test_other_labels_or_patients_refused() -> None:
    a, b = runs()
    labels = b.labels.copy()
    labels[3, 1] = np.nan
    patients = b.patients.copy()
    patients[5] = -1
    for other, message in (
        (replace(b, labels=labels), "differ in 1 labels, first in row 3, disease 1"),
        (replace(b, patients=patients), "patients of 1 rows, first of row 5"),
        (b.where(np.arange(80) > 0), "shape of their labels"),
        (replace(b, patients=patients[:-1]), "differ in length"),
        (replace(b, diseases=["edema", "hernia"]), "differ in their diseases"),
    ):
        for mine in ([a], [a, a]):
            with pytest.raises(ValueError, match=message):
                compare(mine, [other])
        with pytest.raises(ValueError, match=message):  # seeds of one model too
            compare([a, other], [a])
    with pytest.raises(ValueError, match="without scores"):
        compare([a], [])


def test_one_class_is_null_and_not_counted() -> None:
    a, b = runs()
    a.labels[:, 1] = 0
    a.labels[:5] = np.nan
    edema, atelectasis, mean = compare([a], [replace(b, labels=a.labels.copy())], 50)
    assert (atelectasis.difference, atelectasis.interval, atelectasis.p) == (None,) * 3
    assert atelectasis.reason == "no positive image"
    assert edema.missing == 5
    assert mean.difference == pytest.approx(edema.difference)
    a.labels[:] = np.nan
    nothing = compare([a], [replace(b, labels=a.labels)], 50)[-1]
    assert (nothing.difference, nothing.p) == (None, None)


def test_one_positive_patient_no_interval() -> None:
    a, b = runs()
    labels = np.zeros((80, 2))
    labels[:30] = 1
    patients = np.append(np.zeros(30, int), np.arange(50))
    *differences, mean = compare(*([replace(run, labels=labels, patients=patients)] for run in (a, b)), 50)
    assert (mean.difference, mean.reason) == (None, NO_DISEASE_COUNTS)
    for difference in differences:
        assert difference.difference is not None
        assert (difference.interval, difference.p) == (None, None)
        assert difference.reason == "one patient with an image of a class: no interval"


def test_constant_difference_has_no_interval() -> None:
    labels = np.repeat([[0.0, 0.0], [1.0, 1.0]], 10, axis=0)
    best, worst = (Scored(scores, labels, np.arange(20), NAMES) for scores in (labels, -labels))
    for difference in compare([worst], [best], 50):
        assert (difference.difference, difference.interval, difference.p) == (1, None, None)
        assert difference.reason == "no variance in these data: no interval"


def family(positives: int, better: float) -> tuple[list[Scored], list[Scored]]:
    """202 images, five diseases: AUCs of 0.55 in both models, but the second finds the first disease by `better`."""
    rng = np.random.default_rng(3)
    labels = np.zeros((202, 5))
    for j in range(5):
        labels[rng.permutation(202)[:positives], j] = 1
    weak = rng.normal(size=labels.shape) + 0.18 * labels
    other = weak + 0.3 * rng.normal(size=labels.shape)
    other[:, 0] += better * labels[:, 0]
    names = [f"disease {j}" for j in range(5)]
    return [Scored(weak, labels, np.arange(202), names)], [Scored(other, labels, np.arange(202), names)]


def test_huge_effect_survives_the_correction() -> None:
    a, b = family(32, 6)
    first, *others = [difference for models in (b, a, a, a) for difference in compare(a, models)[:-1]]
    assert first.auc_model == pytest.approx(1, abs=0.01)
    better, *rest = holm([difference.p for difference in (first, *others)])
    assert better is not None
    assert better < 0.001
    assert all(p is not None and p > 0.05 for p in rest)


def test_holm_leaves_out_what_is_not_known() -> None:
    first, known, none = holm([float("nan"), 0.01, None])
    assert np.isnan(first or 0.0)
    assert (known, none) == (0.01, None)


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1 is 0.04, 0.06, 0.06, 0.04; the last may not be below the third.
    assert holm([0.04, None, 0.01, 0.03, 0.02]) == [
        pytest.approx(0.06),
        None,
        pytest.approx(0.04),
        pytest.approx(0.06),
        pytest.approx(0.06),
    ]
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []
