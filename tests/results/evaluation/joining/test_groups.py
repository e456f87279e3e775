"""The worst group and the gap to the best, with intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from chestfed.results.evaluation.joining.groups import find_gap, find_gaps
from chestfed.results.evaluation.labeled import Column


def make_column(n: int = 400, seed: int = 0) -> tuple[Column, np.ndarray]:
    """Scores that are worth something in the first half of the rows alone; two images per patient."""
    rng = np.random.default_rng(seed)
    positive, first = rng.random(n) < 0.4, np.arange(n) < n // 2
    score = rng.standard_normal(n) + 2 * positive * first
    return Column("edema", np.round(score, 1), positive, np.repeat(np.arange(n // 2), 2), 0), first


def test_gap_is_of_the_worst_and_best() -> None:
    column, first = make_column()
    gap = find_gap(column, {"a": first, "b": ~first, "all": np.ones(len(first), bool)})
    assert gap is not None
    assert (gap.worst, gap.best) == ("b", "a")
    assert gap.worst_auc == pytest.approx(roc_auc_score(column.positive[~first], column.score[~first]))
    assert gap.gap == pytest.approx(gap.best_auc - gap.worst_auc)
    assert 0.2 < gap.gap_interval.low < gap.gap < gap.gap_interval.high < 0.6


def test_equal_groups_have_a_gap_around_0() -> None:
    column, _ = make_column(seed=1)
    even = np.arange(len(column.score)) % 4 < 2  # whole patients
    gap = find_gap(column, {"a": even, "b": ~even})
    assert gap is not None
    assert gap.gap_interval.low < 0 < gap.gap_interval.high


def test_small_groups_do_not_count() -> None:
    column, first = make_column()
    few = np.arange(len(first)) < 6
    gap = find_gap(column, {"a": first, "b": ~first, "few": few})
    assert gap is not None
    assert "few" not in (gap.worst, gap.best)
    assert find_gap(column, {"a": first, "few": few}) is None


def test_diseases_together_have_the_same_gaps() -> None:
    column, first = make_column()
    even, part = np.arange(len(first)) % 2 == 0, np.arange(len(first)) >= 40
    other = replace(column, score=column.score[::-1].copy())
    fewer = column.take(part)
    groups = {"a": first, "b": ~first, "c": even}
    diseases = [(column, groups), (fewer, {name: rows[part] for name, rows in groups.items()}), (other, groups)]
    diseases.insert(1, (column, {"a": first}))
    assert find_gaps(diseases) == [find_gap(*disease) for disease in diseases]
