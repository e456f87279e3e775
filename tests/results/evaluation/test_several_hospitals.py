"""Where images of several hospitals are scored, an AUC is the mean of the hospitals' own."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from chestfed.results.evaluation.comparison import compare
from chestfed.results.evaluation.estimates import (
    auc_estimates,
    auc_per_disease,
    average_roc,
    compute_auc,
    compute_mean,
)
from chestfed.results.evaluation.intervals import MethodName, bootstrap
from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.intervals.methods import AT_A_HOSPITAL, Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.training_seeds import seeds_test

NAMES = ("edema", "atelectasis")
SIZES = {"north": 60, "south": 40, "west": 30}


def example(seed: int = 0, effect: float = 1.0, shift: float = 3.0) -> Scored:
    """Three hospitals, two images per patient; prevalence and scores rise with the hospital by `shift`."""
    rng, parts = np.random.default_rng(seed), []
    for number, images in enumerate(SIZES.values()):
        labels = (rng.random((images, 2)) < 0.3 + 0.15 * number).astype(float)
        labels[:2], labels[2:4] = 0, 1
        scores = effect * labels + rng.normal(size=(images, 2)) + shift * number
        parts.append((scores, labels, 1000 * number + np.arange(images) // 2))
    scores, labels, patients = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Scored(scores, labels, patients, NAMES, np.repeat([*SIZES], [*SIZES.values()]))


def at(scored: Scored, hospital: str) -> Scored:
    """The images of one hospital, as a test set of its own."""
    assert scored.hospitals is not None
    return replace(scored.where(scored.hospitals == hospital), hospitals=None)


def test_auc_is_the_mean_of_the_hospitals() -> None:
    scored = example(effect=0.0)
    each = [at(scored, name) for name in SIZES]
    aucs = np.array([roc_auc_score(hospital.labels, hospital.scores, average=None) for hospital in each])
    *diseases, mean = auc_estimates(scored, Intervals(resamples=0))
    assert [disease.value for disease in diseases] == pytest.approx(aucs.mean(axis=0))
    assert mean.value == pytest.approx(aucs.mean())
    assert list(auc_per_disease(scored).values()) == pytest.approx(aucs.mean(axis=0))
    pooled = auc_per_disease(replace(scored, hospitals=None))
    assert min(pooled.values()) > mean.value + 0.05  # which knows the hospital, and nothing of the disease


def test_one_class_hospital_left_out_counted() -> None:
    scored = example()
    west = scored.hospitals == "west"
    labels = scored.labels.copy()
    labels[west, 0] = 1
    edema, atelectasis, mean = auc_estimates(replace(scored, labels=labels), Intervals("obuchowski"))
    assert edema.value == pytest.approx(
        np.mean([auc_per_disease(at(scored, name))["edema"] for name in ("north", "south")])
    )
    assert [(estimate.hospitals, estimate.left_out) for estimate in (edema, atelectasis, mean)] == [
        (2, 1),
        (3, 0),
        (3, 0),
    ]
    alone = scored.where(west)
    nothing = replace(alone, labels=np.where([[True, False]], np.nan, alone.labels))
    assert auc_estimates(nothing, Intervals("obuchowski"))[0].hospitals == 0


def test_no_hospital_of_both_classes_is_null() -> None:
    labels = np.array([[1.0], [1], [0], [0]])
    scored = Scored(labels, labels, np.arange(4), ["edema"], np.array(["a", "a", "b", "b"]))
    (edema, mean) = auc_estimates(scored, Intervals())
    assert (edema.value, mean.value, edema.reason) == (None, None, "no hospital has images of both classes")


def test_variance_is_the_hospitals_sum() -> None:
    scored = example()
    given = ([scored.scores[:, :1]], scored.labels[:, :1], np.ones((1, 1)), scored.patients)
    together = auc_covariance(*given, scored.hospitals)
    each = [at(scored, name) for name in SIZES]
    alone = [
        auc_covariance([hospital.scores[:, :1]], hospital.labels[:, :1], np.ones((1, 1)), hospital.patients)
        for hospital in each
    ]
    assert together is not None
    assert together[1].item() == pytest.approx(sum(estimate[1].item() for estimate in alone if estimate) / 9)
    resampled = bootstrap.resampled_aucs(*_arrays(scored), 4000, 0, scored.hospitals)
    jointly = bootstrap.jointly_resampled_aucs(*_arrays(scored), 4000, 0, scored.hospitals)
    for values in (resampled[:, 0], jointly[:, 0]):
        assert np.nanvar(values) == pytest.approx(together[1].item(), rel=0.2)


def test_bootstrap_draws_within_hospitals() -> None:
    scored, hospitals = example(), np.array([*SIZES])
    drawn = bootstrap.jointly_resampled_aucs(*_arrays(scored), 50, 0, scored.hospitals)
    only_one = np.where(scored.hospitals == "north", scored.scores.T, 0.0).T  # ties elsewhere: 0.5 in every resample
    north = bootstrap.jointly_resampled_aucs(only_one, *_arrays(scored)[1:], 50, 0, scored.hospitals)
    sample = at(scored, "north")
    spread = bootstrap.jointly_resampled_aucs(*_arrays(sample), 4000, 0)[:, 0].std()
    many = bootstrap.jointly_resampled_aucs(only_one, *_arrays(scored)[1:], 4000, 0, scored.hospitals)
    assert np.nanstd(many[:, 0]) == pytest.approx(spread / len(hospitals), rel=0.1)
    assert drawn.shape == north.shape == (50, 2)
    with pytest.raises(ValueError, match="two hospitals"):
        bootstrap.jointly_resampled_aucs(*_arrays(scored)[:2], np.zeros(130), 5, 0, scored.hospitals)


@pytest.mark.parametrize("name", get_args(MethodName))
def test_every_method_has_intervals_and_p(name: MethodName) -> None:
    scored = example()
    how = Intervals(name, 400)
    for estimate in auc_estimates(scored, how):
        assert estimate.interval is not None
        assert estimate.interval.low < estimate.value < estimate.interval.high  # type: ignore[operator]
    worse = replace(scored, scores=np.random.default_rng(8).normal(size=scored.scores.shape))
    for difference in compare([worse], [scored], 400, interval=name):
        assert difference.interval is not None
        assert difference.interval.low > 0
        assert difference.p is not None
        assert difference.p < 0.05


def test_one_hospital_is_as_without_its_name() -> None:
    scored = example()
    alone = scored.where(scored.hospitals == "north")
    named, plain = (auc_estimates(data, Intervals()) for data in (alone, replace(alone, hospitals=None)))
    assert [(estimate.value, estimate.interval) for estimate in named] == [
        (estimate.value, estimate.interval) for estimate in plain
    ]


@pytest.mark.slow
def test_intervals_hold_truth_in_95_percent() -> None:
    truth, held = 0.7602, []  # of a difference of one standard deviation, at every hospital
    for seed in range(150):
        mean = auc_estimates(example(seed), Intervals("obuchowski"))[-1]
        assert mean.interval is not None
        held.append(mean.interval.low < truth < mean.interval.high)
    assert 0.9 < np.mean(held) < 0.99


def test_units_count_every_hospital() -> None:
    scored = example()
    columns = range(scored.labels.shape[1])
    units = [count_effective_patients(scored.labels[:, [j]], scored.patients, scored.hospitals) for j in columns]
    for j in columns:
        parts = (at(scored, name) for name in SIZES)
        alone = [count_effective_patients(part.labels[:, [j]], part.patients) for part in parts]
        assert min(alone) < units[j] <= sum(alone)
    assert count_effective_patients(scored.labels, scored.patients, scored.hospitals) > min(units)
    labels = scored.labels.copy()
    labels[:, 0] = np.where(np.arange(130) == 70, 1, labels[:, 0] * (np.arange(130) < 60))
    edema, *_ = auc_estimates(replace(scored, labels=labels), Intervals())
    assert (edema.hospitals, edema.few_at) == (1, (("south", 1, 20), ("west", 0, 15)))
    labels[:60, 0] = np.arange(60) == 20  # at no hospital are there ten
    edema, *_ = auc_estimates(replace(scored, labels=labels), Intervals())
    assert (edema.interval, edema.reason, edema.in_mean) == (None, AT_A_HOSPITAL, False)


def test_seeds_test_adds_covariances() -> None:
    scored, rng = example(), np.random.default_rng(4)
    a, b = ([scored.scores + rng.normal(size=scored.scores.shape) for _ in range(3)] for _ in range(2))
    runs = [[replace(scored, scores=scores) for scores in model] for model in (a, b)]
    expected = seeds_test(a, b, scored.labels, scored.patients, scored.hospitals)
    mean = compare(*runs)[-1]
    assert (mean.interval, mean.p) == (expected.interval, expected.p)
    hospitals = [
        seeds_test(
            [scores[rows] for scores in a], [scores[rows] for scores in b], scored.labels[rows], scored.patients[rows]
        )
        for rows in (scored.hospitals == name for name in SIZES)
    ]
    assert expected.difference == pytest.approx(np.mean([hospital.difference for hospital in hospitals]))
    assert expected.error is not None
    assert expected.seeds_share is not None
    ours = expected.error**2 * (1 - expected.seeds_share)
    theirs = sum(hospital.error**2 * (1 - hospital.seeds_share) for hospital in hospitals) / 9  # type: ignore[operator]
    assert ours == pytest.approx(theirs, rel=0.2)


def test_runs_of_other_hospitals_are_refused() -> None:
    scored = example()
    for hospitals in (None, np.roll(scored.hospitals, 2)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="hospitals"):
            compare([scored], [replace(scored, hospitals=hospitals)])


def test_area_under_mean_curve_is_the_auc() -> None:
    scored = replace(example(), scores=np.round(example().scores))  # ties, so slanted parts
    for column in scored.columns():
        x, y = average_roc(column)
        assert np.trapezoid(y, x) == pytest.approx(compute_auc(column))
        assert (np.diff(x) >= 0).all()
        assert (np.diff(y) >= -1e-12).all()


def _arrays(scored: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return scored.scores, scored.labels, scored.patients


def test_few_patients_of_a_hospital_stay_out_of_the_mean() -> None:
    """The hospitals that the mean is over, and those that it names as left out, are all of them."""
    scored, rng = example(), np.random.default_rng(2)
    labels = scored.labels.copy()
    south, west = (np.flatnonzero(scored.hospitals == name) for name in ("south", "west"))
    labels[west, 0], labels[:, 1] = np.arange(30) < 4, 0  # two patients with an edema at one hospital
    labels[[*south[:10], *west[:14]], 1] = 1  # five and seven with an atelectasis
    few = replace(scored, labels=labels)
    edema, atelectasis, mean = auc_estimates(few, Intervals())
    north_south = [auc_per_disease(at(few, name))["edema"] for name in ("north", "south")]
    assert edema.value == mean.value == pytest.approx(np.mean(north_south))
    assert (edema.few_at, edema.hospitals, edema.left_out) == ((("west", 2, 13),), 2, 1)
    assert (atelectasis.in_mean, [name for name, *_ in atelectasis.few_at]) == (False, list(SIZES))
    assert compute_mean(few, auc_per_disease(few)) == mean.value
    without = replace(few, labels=np.where((scored.hospitals == "west")[:, None] & [[True, False]], np.nan, labels))
    assert mean.interval == auc_estimates(without, Intervals())[-1].interval
    other = replace(few, scores=rng.normal(size=labels.shape))
    difference = compare([few], [other])[-1].difference
    assert difference == pytest.approx(auc_estimates(other, Intervals())[-1].value - mean.value)  # type: ignore[operator]
