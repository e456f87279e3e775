"""A difference over splits of the patients: its error part by part, against an independent count."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from chestfed.results.evaluation.comparison import NOT_IN_EVERY_SPLIT, compare
from chestfed.results.evaluation.estimates import auc_estimates, bound_over_runs
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.joining.contributions import Subset, estimate_contributions
from chestfed.results.evaluation.labeled import Rotation, Scored, group_splits, put_beside
from chestfed.results.evaluation.splits import Splits
from chestfed.results.evaluation.training_seeds import seeds_test

REUSE, COMMON = 0.25, 3.0
ROTATION = Rotation(REUSE, COMMON)


def make_runs(splits: int, seeds: int, *, same: bool = False, luck: float = 0.0) -> tuple[list[Scored], list[Scored]]:
    """Scores of two models; each split tests 60 patients of its own, or all the same."""
    rng, runs = np.random.default_rng(7), ([], [])
    for split in range(splits):
        draw = np.random.default_rng(1 if same else split)
        labels = np.repeat([1.0, 0.0], [20, 40])[:, None] * np.ones(2)
        labels[:, 1] = draw.permutation(labels[:, 1])
        of_models, shift = draw.normal(size=(2, *labels.shape)), luck * rng.normal()
        patients = np.arange(60) + (0 if same else 60 * split)
        for _ in range(seeds):
            for run, quality, common in zip(runs, (0.8, 1.1 + shift), of_models, strict=True):
                scores = quality * labels + common + 0.2 * rng.normal(size=labels.shape)
                run.append(Scored(scores, labels, patients, ["a", "b"], None, split, ROTATION))
    return runs


def measure(a: list[Scored], b: list[Scored], splits: int) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the mean AUC `[splits, seeds]`, and the covariance over patients of each split's seeds."""
    seeds, values, within = len(a) // splits, [], []
    for split in range(splits):
        here = slice(split * seeds, (split + 1) * seeds)
        both = [[np.mean([roc_auc_score(run.labels[:, j], run.scores[:, j]) for j in (0, 1)]) for run in runs[here]]
                for runs in (a, b)]  # fmt: skip
        values.append(np.subtract(both[1], both[0]))
        contrast = np.kron(np.array([[-1.0], [1.0]]), np.eye(seeds))
        covariance = auc_covariance([run.scores for run in (*a[here], *b[here])], a[here][0].labels,
                                    contrast, a[here][0].patients)[1]  # fmt: skip
        off = covariance[~np.eye(seeds, dtype=bool)] if seeds > 1 else covariance.ravel()
        within.append(max(off.mean(), 0))
    return np.array(values), np.array(within)


@pytest.mark.parametrize(
    ("splits", "seeds", "luck", "same"),
    [(3, 2, 0.0, False), (5, 1, 0.0, False), (4, 3, 0.8, False), (4, 2, 0.2, True)],
)
def test_error_is_sum_of_three_parts(splits: int, seeds: int, luck: float, same: bool) -> None:
    a, b = make_runs(splits, seeds, luck=luck, same=same)
    values, within = measure(a, b, splits)
    factor, of_seeds = 1 / splits + REUSE, values.var(axis=1, ddof=1).mean() if seeds > 1 else 0.0
    by_patients, shared = factor * within.mean(), 0.0
    if same:  # the covariance over patients of all models together, and what two splits share of it
        factor, contrast = 1 / splits + COMMON, np.kron([[-1.0], [1.0]], np.eye(splits * seeds))
        together = auc_covariance([run.scores for run in (*a, *b)], a[0].labels, contrast, a[0].patients)[1]
        of_seeds_apart = together.reshape(splits, seeds, splits, seeds).mean(axis=(0, 2))
        of_all = of_seeds_apart[~np.eye(seeds, dtype=bool)].mean()
        shared = min((of_all - within.mean() / splits) * splits / (splits - 1), within.mean())
        by_patients = max(of_all, within.mean() / splits)
    beyond = max(values.mean(axis=1).var(ddof=1) - (within.mean() - shared) - of_seeds / seeds, 0)
    variance = by_patients + of_seeds / (splits * seeds) + factor * beyond
    *_, mean = compare(a, b)
    assert mean.difference == pytest.approx(values.mean(), abs=1e-12)
    assert mean.of_seeds == pytest.approx(tuple(values.ravel()), abs=1e-12)
    sides = ([put_beside(parts).scores for parts in zip(*group_splits(run).values(), strict=True)] for run in (a, b))
    whole = put_beside([members[0] for members in group_splits(a).values()])
    test = seeds_test(*sides, whole.labels, whole.patients, splits=Splits(splits, ROTATION))
    assert test.error == pytest.approx(math.sqrt(variance), rel=1e-9)
    assert mean.interval is not None
    assert test.interval is not None
    assert mean.interval.low == test.interval.low
    assert mean.interval.high == test.interval.high or same  # no AUC is above 1
    assert mean.p is not None
    assert luck == 0 or beyond > 0
    assert (mean.p < 0.05) == (mean.interval.low > 0 or mean.interval.high < 0)


def test_same_patients_are_not_counted_twice() -> None:
    a, b = make_runs(4, 2, same=True)
    over = compare(a, b)[-1].interval
    once = seeds_test([run.scores for run in a], [run.scores for run in b], a[0].labels, a[0].patients).interval
    assert over is not None
    assert once is not None
    assert (over.high - over.low) > 0.9 * (once.high - once.low)
    apart = [replace(run, patients=run.patients + 60 * run.split, rotation=Rotation()) for run in a]
    narrow = compare(
        apart, [replace(run, patients=one.patients, rotation=Rotation()) for run, one in zip(b, apart, strict=True)]
    )
    assert narrow[-1].interval is not None
    assert (narrow[-1].interval.high - narrow[-1].interval.low) < 0.8 * (over.high - over.low)


def test_reuse_of_test_patients_widens() -> None:
    a, b = make_runs(5, 2)
    without = compare(*([replace(run, rotation=Rotation()) for run in runs] for runs in (a, b)))[-1].interval
    corrected = compare(a, b)[-1].interval
    assert without is not None
    assert corrected is not None
    assert (corrected.high - corrected.low) / (without.high - without.low) == pytest.approx(1.5, abs=0.1)


def test_disease_counts_if_it_does_everywhere() -> None:
    a, b = make_runs(3, 1)
    labels = a[1].labels.copy()
    labels[labels[:, 1] == 1, 1] = 0
    poor = [[replace(run, labels=labels) if run.split == 1 else run for run in runs] for runs in (a, b)]
    first, second, mean = compare(*poor)
    assert (second.interval, second.reason, second.in_mean) == (None, NOT_IN_EVERY_SPLIT, False)
    assert mean.interval is not None
    assert mean.difference == first.difference


def test_splits_need_the_same_seeds() -> None:
    a, b = make_runs(3, 2)
    with pytest.raises(ValueError, match="different numbers"):
        compare(a[:-1], b[:-1])
    with pytest.raises(ValueError, match="splits"):
        compare(a[:4], b[2:])


def test_interval_of_auc_over_splits() -> None:
    a, _ = make_runs(5, 2)
    values = [float(np.mean([roc_auc_score(run.labels[:, j], run.scores[:, j]) for run in a])) for j in (0, 1)]
    first, *others = bound_over_runs(a, [*values, float(np.mean(values))])
    for interval, value in zip((first, *others), (*values, np.mean(values)), strict=True):
        assert interval is not None
        assert interval.low < value < interval.high
    alone = auc_estimates(a[0], Intervals())[0].interval
    assert alone is not None
    assert first is not None
    assert first.high - first.low < alone.high - alone.low


def test_contribution_over_splits_is_difference() -> None:
    """Of one partner all three measures are the difference of the two models."""
    a, b = make_runs(3, 2)
    models = [[put_beside(parts).scores for parts in zip(*group_splits(run).values(), strict=True)] for run in (a, b)]
    whole = put_beside([members[0] for members in group_splits(a).values()])
    scores = dict(zip((Subset(), Subset({"partner"})), models, strict=True))
    given = whole.labels, whole.patients
    (each,), total = estimate_contributions(scores, ["partner"], *given, splits=Splits(3, ROTATION))
    mean = compare(a, b)[-1]
    for test in (each.shapley, each.added_first, each.removed_last, total):
        assert (test.difference, test.p) == pytest.approx((mean.difference, mean.p))
        assert test.interval == mean.interval
