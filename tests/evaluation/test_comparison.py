"""Paired comparison of two models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation.auc import auc_per_disease, mean_auc
from chestfed.evaluation.comparison import Run, compare, holm, holm_over_comparisons
from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals import degrees_of_freedom as freedom
from chestfed.evaluation.intervals.delong import delong_difference_per_disease
from chestfed.evaluation.intervals.delong_mean import delong_difference_of_mean

NAMES = ["edema", "atelectasis"]


def runs(seed: int = 1, gain: float = 3) -> tuple[Run, Run]:
    rng = np.random.default_rng(seed)
    labels = (rng.random((80, 2)) < 0.4).astype(float)
    weak, strong = rng.normal(size=(80, 2)) + 0.5 * labels, rng.normal(size=(80, 2)) + gain * labels
    patients = rng.integers(0, 60, 80)
    return Run([weak], labels, patients), Run([strong], labels, patients)


def test_equal_models_differ_by_nothing() -> None:
    weak, _ = runs()
    found = compare(weak, weak, NAMES, 200)
    for difference in found.diseases:
        assert (difference.difference, difference.interval) == (0, bootstrap.Interval(0, 0))
        assert difference.p == difference.p_holm == difference.delong_p == difference.delong_p_holm == 1
    assert (found.mean.difference, found.mean.interval) == (0, bootstrap.Interval(0, 0))
    assert found.mean.p == found.mean.p_holm == found.mean.delong_p == found.mean.delong_p_holm == 1


def test_a_better_model_is_better() -> None:
    weak, strong = runs()
    found = compare(weak, strong, NAMES, 500)
    for difference in found.diseases:
        assert difference.interval is not None
        assert 0 < difference.interval.low < difference.difference < difference.interval.high  # type: ignore[operator]
        assert difference.p is not None
        assert difference.p < 0.02
        assert difference.z is not None
        assert difference.z > 2
    assert [d.p_holm for d in found.diseases] == holm([d.p for d in found.diseases])
    assert found.mean.interval is not None
    assert found.mean.interval.low > 0
    a, b = (mean_auc(auc_per_disease(run.scores[0], run.labels, NAMES)) for run in (weak, strong))
    assert (found.mean.mean_a, found.mean.mean_b) == (pytest.approx(a), pytest.approx(b))


def test_the_draws_are_those_of_each_model_alone_averaged_over_its_seeds() -> None:
    weak, strong = runs()
    rng = np.random.default_rng(9)
    a = Run([weak.scores[0], rng.normal(size=(80, 2))], weak.labels, weak.patients)
    found = compare(a, strong, NAMES, 100, seed=4)

    alone = [bootstrap.resampled_aucs(s, a.labels, a.patients, 100, 4) for s in (*a.scores, *strong.scores)]
    resampled = alone[2] - (alone[0] + alone[1]) / 2
    joint = [bootstrap.jointly_resampled_aucs(s, a.labels, a.patients, 100, 4) for s in (*a.scores, *strong.scores)]
    of_mean = (joint[2] - (joint[0] + joint[1]) / 2).mean(axis=1)
    delong = delong_difference_per_disease(a.scores, strong.scores, a.labels, NAMES)
    for j, difference in enumerate(found.diseases):
        units = int(freedom.units_per_disease(a.labels, a.patients)[j])
        assert difference.difference is not None
        expected = bootstrap.difference_interval(difference.difference, resampled[:, j], units)
        assert (difference.interval, difference.p) == expected
        assert (difference.z, difference.delong_p) == (delong[j].z, delong[j].p)
    assert found.mean.difference is not None
    units_of_mean = freedom.units_of_mean(a.labels, a.patients)
    expected = bootstrap.difference_interval(found.mean.difference, of_mean, units_of_mean)
    assert (found.mean.interval, found.mean.p) == expected
    delong_mean = delong_difference_of_mean(a.scores, strong.scores, a.labels)
    assert (found.mean.z, found.mean.delong_p) == (delong_mean.z, delong_mean.p)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.5, 1.0]))
def test_swapping_the_models_flips_the_sign_and_keeps_the_p_values(seed: int, gain: float) -> None:
    a, b = runs(seed, gain)
    one, other = compare(a, b, NAMES, 60), compare(b, a, NAMES, 60)
    assert one.mean.difference == pytest.approx(-other.mean.difference)  # type: ignore[operator]
    assert one.mean.p == pytest.approx(other.mean.p)
    assert one.mean.delong_p == pytest.approx(other.mean.delong_p)
    for x, y in zip(one.diseases, other.diseases, strict=True):
        assert x.difference == pytest.approx(-y.difference)  # type: ignore[operator]
        assert (x.p, x.p_holm) == (pytest.approx(y.p), pytest.approx(y.p_holm))
        assert x.delong_p == pytest.approx(y.delong_p)
        assert x.interval is not None
        assert y.interval is not None
        assert x.interval.low == pytest.approx(-y.interval.high)


def test_other_labels_or_patients_are_refused() -> None:
    a, b = runs()
    labels = b.labels.copy()
    labels[3, 1] = np.nan
    with pytest.raises(ValueError, match="differ in 1 labels, first in row 3, disease 1"):
        compare(a, Run(b.scores, labels, b.patients), NAMES)
    patients = b.patients.copy()
    patients[5] = -1
    with pytest.raises(ValueError, match="patients of 1 rows, first of row 5"):
        compare(a, Run(b.scores, b.labels, patients), NAMES)
    with pytest.raises(ValueError, match="shape of their labels"):
        compare(a, Run([b.scores[0][:-1]], b.labels[:-1], b.patients[:-1]), NAMES)
    with pytest.raises(ValueError, match="differ in length"):
        compare(a, Run(b.scores, b.labels, b.patients[:-1]), NAMES)
    with pytest.raises(ValueError, match="without scores"):
        compare(a, Run([], b.labels, b.patients), NAMES)


def test_labels_missing_in_both_are_equal_and_a_disease_of_one_class_is_null_and_not_counted() -> None:
    a, b = runs()
    a.labels[:, 1] = 0
    a.labels[:5] = np.nan
    found = compare(a, Run(b.scores, a.labels.copy(), b.patients), NAMES, 50)
    edema, atelectasis = found.diseases
    assert (atelectasis.difference, atelectasis.interval, atelectasis.p, atelectasis.p_holm) == (None,) * 4
    assert atelectasis.reason == "no positive image"
    assert edema.missing == 5
    assert edema.p_holm == edema.p
    assert found.mean.difference == pytest.approx(edema.difference)
    a.labels[:] = np.nan
    nothing = compare(a, Run(b.scores, a.labels, b.patients), NAMES, 50).mean
    assert (nothing.difference, nothing.p, nothing.delong_p) == (None, None, None)


def test_one_positive_patient_with_several_images_has_a_difference_but_no_interval() -> None:
    a, b = runs()
    labels = np.zeros((80, 2))
    labels[:30] = 1
    patients = np.append(np.zeros(30, int), np.arange(50))
    found = compare(Run(a.scores, labels, patients), Run(b.scores, labels, patients), NAMES, 50)
    for difference in found.diseases:
        assert difference.difference is not None
        assert (difference.interval, difference.p, difference.p_holm) == (None, None, None)
        assert difference.reason == "one patient with an image of a class: no interval"


def test_models_that_differ_by_the_same_in_every_resample_have_neither_interval_nor_p_value() -> None:
    labels = np.repeat([[0.0, 0.0], [1.0, 1.0]], 10, axis=0)
    best, worst = Run([labels], labels, np.arange(20)), Run([-labels], labels, np.arange(20))
    found = compare(worst, best, NAMES, 50)
    for one in (*found.diseases, found.mean):
        assert (one.difference, one.interval, one.p, one.p_holm, one.delong_p) == (1, None, None, None, None)
        assert one.reason == "no variance in these data: no interval"


def family(positives: int, better: float) -> tuple[Run, Run]:
    """202 images, five diseases: AUCs of 0.55 in both models, but the second finds the first disease by `better`."""
    rng = np.random.default_rng(3)
    labels = np.zeros((202, 5))
    for j in range(5):
        labels[rng.permutation(202)[:positives], j] = 1
    weak = rng.normal(size=labels.shape) + 0.18 * labels
    other = weak + 0.3 * rng.normal(size=labels.shape)
    other[:, 0] += better * labels[:, 0]
    return Run([weak], labels, np.arange(202)), Run([other], labels, np.arange(202))


def test_a_huge_effect_with_32_positive_images_survives_the_correction_for_20_comparisons() -> None:
    a, b = family(32, 6)
    names = [f"disease {j}" for j in range(5)]
    found = holm_over_comparisons([compare(a, one, names) for one in (b, a, a, a)])
    better, *others = [one for comparison in found for one in comparison.diseases]
    assert better.auc_b == pytest.approx(1, abs=0.01)
    assert better.p_holm is not None
    assert better.p_holm < 0.001
    assert better.delong_p_holm is not None
    assert better.delong_p_holm < 0.001
    assert all(one.p_holm is not None and one.p_holm > 0.05 for one in others)


def test_the_verdict_does_not_depend_on_the_seed_of_the_bootstrap() -> None:
    a, b = family(32, 1.5)
    names = [f"disease {j}" for j in range(5)]
    verdicts = set()
    for seed in range(6):
        comparison = compare(a, b, names, 2000, seed)
        found = holm_over_comparisons([comparison, *[compare(a, a, names, 200, seed)] * 3])
        verdicts.add(tuple(one.p_holm is not None and one.p_holm < 0.05 for one in found[0].diseases))
    assert verdicts == {(True, False, False, False, False)}


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


def test_several_comparisons_are_corrected_together() -> None:
    weak, strong = runs()
    first, second = compare(weak, strong, NAMES, 500), compare(weak, weak, NAMES, 500)
    together = holm_over_comparisons([first, second])
    p = sorted(d.p for d in first.diseases if d.p is not None)
    assert sorted(d.p_holm for d in together[0].diseases) == [
        pytest.approx(4 * p[0]),
        pytest.approx(max(4 * p[0], 3 * p[1])),
    ]  # type: ignore[type-var]
    assert [d.p_holm for d in together[1].diseases] == [1, 1]
    for mean in (first.mean, second.mean):  # alone there is nothing to correct
        assert (mean.p, mean.delong_p) == (mean.p_holm, mean.delong_p_holm)
    means = [comparison.mean for comparison in together]
    assert [mean.p_holm for mean in means] == holm([first.mean.p, second.mean.p])  # among themselves
    assert [mean.delong_p_holm for mean in means] == holm([first.mean.delong_p, second.mean.delong_p])
    assert [(m.p, m.difference, m.interval) for m in means] == [
        (m.p, m.difference, m.interval) for m in (first.mean, second.mean)
    ]
