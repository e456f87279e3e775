"""AUCs over the pairs of images of one group, and their intervals, against pairs counted one by one."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from chestfed.results.evaluation.estimates import auc_estimates, auc_per_disease
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.summary import WITHIN, summarize

NAMES = ("edema", "effusion")
VIEWS = np.array(["ap", "pa", "lateral", None], dtype=object)


def make_images(rng: np.random.Generator, patients: int, *, tied: bool = False) -> tuple[Scored, np.ndarray]:
    """Patients with one to three images each, of one or several views: the view raises prevalence and score."""
    patient = np.repeat(np.arange(patients), rng.integers(1, 4, patients))
    code = rng.integers(0, 3, len(patient))
    sick = rng.random((patients, 2)) < 0.6
    labels = (sick[patient] & (rng.random((len(patient), 2)) < np.array([0.3, 0.6, 0.9])[code, None])).astype(float)
    scores = rng.normal(size=(patients, 1))[patient] + rng.normal(size=labels.shape) + labels + 1.5 * code[:, None]
    return Scored(np.round(scores) if tied else scores, labels, patient, NAMES), VIEWS[code]


def count_pairs(scored: Scored, views: np.ndarray, j: int) -> tuple[float, float]:
    """AUC within views, and its variance from each patient's part of the linearized ratio; all pairs looked at."""
    labels, scores, patients = scored.labels[:, j], scored.scores[:, j], scored.patients
    alike = [
        (p, n)
        for p in np.flatnonzero(labels == 1)
        for n in np.flatnonzero(labels == 0)
        if views[p] is not None and views[p] == views[n]
    ]
    wins = [1.0 if scores[p] > scores[n] else 0.5 if scores[p] == scores[n] else 0.0 for p, n in alike]
    auc = sum(wins) / len(alike)
    parts: list[dict[int, float]] = [{}, {}]
    for pair, win in zip(alike, wins, strict=True):
        for of_class, image in zip(parts, pair, strict=True):
            owner = patients[image]
            of_class[owner] = of_class.get(owner, 0.0) + (win - auc) / len(alike)
    sizes = [len(of_class) for of_class in parts]
    everybody = parts[0].keys() | parts[1].keys()
    factors = [size / (size - 1) for size in sizes]
    variance = sum(f * sum(v**2 for v in of_class.values()) for f, of_class in zip(factors, parts, strict=True))
    both = sum(parts[0].get(owner, 0.0) * parts[1].get(owner, 0.0) for owner in everybody)
    return auc, variance + 2 * len(everybody) / (len(everybody) - 1) * both


@pytest.mark.parametrize("tied", [False, True])
def test_pairs_within_are_the_counted_ones(tied: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        scored, views = make_images(rng, 25, tied=tied)
        views[rng.random(len(views)) < 0.1] = None
        paired = scored.pair_within(views)
        for j, (name, auc) in enumerate(auc_per_disease(paired).items()):
            expected = count_pairs(scored, views, j)
            one = paired.labels[:, [j]]
            estimate = auc_covariance(
                [paired.scores[:, [j]]], one, np.ones((1, 1)), paired.patients, strata=paired.strata
            )
            assert estimate is not None
            assert auc == pytest.approx(expected[0], abs=1e-12), name
            assert (estimate[0][0], estimate[1][0, 0]) == pytest.approx(expected, abs=1e-12)


def test_one_group_is_the_plain_auc() -> None:
    scored, _ = make_images(np.random.default_rng(2), 40)
    paired = scored.pair_within(np.full(len(scored.labels), "pa"))
    for plain, within in zip(auc_estimates(scored, Intervals()), auc_estimates(paired, Intervals()), strict=True):
        assert within.value == pytest.approx(plain.value, abs=1e-12)
        assert within.interval == pytest.approx(plain.interval, abs=1e-9)


def test_hospitals_have_pairs_of_their_own() -> None:
    scored, views = make_images(np.random.default_rng(3), 80)
    hospitals = np.where(scored.patients < 50, "a", "b")
    pooled = Scored(scored.scores, scored.labels, scored.patients, NAMES, hospitals).pair_within(views)
    each = [count_pairs(scored.where(hospitals == name), views[hospitals == name], 0) for name in ("a", "b")]
    estimate = auc_estimates(pooled, Intervals())[0]
    assert estimate.value == pytest.approx(np.mean([auc for auc, _ in each]), abs=1e-12)
    covariance = auc_covariance(
        [pooled.scores[:, :1]], pooled.labels[:, :1], np.ones((1, 1)), pooled.patients, hospitals, pooled.strata
    )
    assert covariance is not None
    assert covariance[1][0, 0] == pytest.approx(sum(variance for _, variance in each) / 4, abs=1e-12)


@pytest.mark.slow
def test_standard_error_is_that_of_repeats() -> None:
    """Patients with images in several strata, strata of random sizes: the spread over new patients is the estimated."""
    rng = np.random.default_rng(4)
    values, variances = [], []
    for _ in range(400):
        scored, views = make_images(rng, 60)
        paired = scored.pair_within(views)
        weights = np.ones((1, 1))
        estimate = auc_covariance([paired.scores], paired.labels, weights, paired.patients, strata=paired.strata)
        assert estimate is not None
        values.append(estimate[0][0])
        variances.append(estimate[1][0, 0])
    assert math.sqrt(np.mean(variances)) == pytest.approx(np.std(values), rel=0.1)  # 2 sd of the spread are 7%


def test_recognized_view_is_no_diagnosis() -> None:
    """A score of the view alone has an AUC over all pairs, and 0.5 within views."""
    scored, views = make_images(np.random.default_rng(5), 300)
    codes = pd.factorize(views, sort=True)[0].astype(float)
    alone = Scored(np.stack([codes, codes], axis=1), scored.labels, scored.patients, NAMES)
    table = summarize(alone, "frontal-image", Intervals(), {"view": views}, probabilities=False).subgroups
    within = table[table["group"] == WITHIN].set_index("disease")
    assert (within["auc"] == 0.5).all()
    plain = auc_per_disease(alone)
    assert within["auc_all_pairs"].to_dict() == pytest.approx(
        {**plain, "mean": np.mean([auc or 0.0 for auc in plain.values()])}
    )
    assert max(abs((auc or 0.5) - 0.5) for auc in plain.values()) > 0.1
    assert table.loc[table["group"] != WITHIN, "auc_all_pairs"].isna().all()


def test_group_of_one_class_is_in_no_pair() -> None:
    labels = np.array([[1.0], [0], [1], [1], [0]])
    scored = Scored(np.arange(5.0)[:, None], labels, np.arange(5), ["edema"])
    paired = scored.pair_within(["pa", "pa", "ap", "ap", None])
    assert np.isnan(paired.labels[2:]).all()
    assert auc_per_disease(paired) == {"edema": 0.0}
    nowhere = auc_estimates(scored.pair_within(["a", "b", "c", "d", "e"]), Intervals())
    assert (nowhere[0].value, nowhere[0].reason) == (None, "no group has images of both classes")
