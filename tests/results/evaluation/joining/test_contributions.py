"""What partners contribute: every definition by brute force, and the sum of the values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.joining.contributions import (
    Subset,
    estimate_contributions,
    list_subsets,
    sample_orders,
    weigh_subsets,
)
from chestfed.results.evaluation.training_seeds import seeds_test

PARTNERS = ("a", "b", "c")


def made_scores(partners: tuple[str, ...] = PARTNERS, seeds: int = 3, n: int = 80) -> tuple:
    """Scores of every set of partners, whose quality is its own, with labels and patients."""
    rng = np.random.default_rng(len(partners))
    labels = (rng.random((n, 2)) < 0.4).astype(float)
    common = rng.standard_normal((n, 2))
    scores = {
        subset: [rng.random() * labels + common + 0.5 * rng.standard_normal((n, 2)) for _ in range(seeds)]
        for subset in list_subsets(partners)
    }
    return scores, labels, np.arange(n)


def mean_auc(runs: list[np.ndarray], labels: np.ndarray) -> float:
    """Mean over seeds and diseases, by counting pairs."""
    aucs = []
    for scores in runs:
        for j in range(labels.shape[1]):
            pos, neg = scores[labels[:, j] == 1, j], scores[labels[:, j] == 0, j]
            aucs.append(np.mean(pos[:, None] > neg[None, :]))
    return float(np.mean(aucs))


def test_values_are_means_over_all_orders() -> None:
    scores, labels, patients = made_scores()
    value = {subset: mean_auc(runs, labels) for subset, runs in scores.items()}
    contributions, _ = estimate_contributions(scores, PARTNERS, labels, patients)
    for contribution in contributions:
        gains = []
        for order in itertools.permutations(PARTNERS):
            before = Subset(order[: order.index(contribution.partner)])
            gains.append(value[before | {contribution.partner}] - value[before])
        assert contribution.shapley.difference == pytest.approx(np.mean(gains), abs=1e-12)
        alone, without = Subset((contribution.partner,)), Subset(PARTNERS) - {contribution.partner}
        assert contribution.added_first.difference == pytest.approx(value[alone] - value[Subset()], abs=1e-12)
        assert contribution.removed_last.difference == pytest.approx(
            value[Subset(PARTNERS)] - value[without], abs=1e-12
        )


@pytest.mark.slow
@given(count=st.integers(1, 5), pairs=st.integers(2, 4), seed=st.integers(0, 99), every=st.booleans())
def test_values_sum_to_the_total_gain(count: int, pairs: int, seed: int, every: bool) -> None:
    partners = tuple("abcde"[:count])
    scores, labels, patients = made_scores(partners, seeds=2, n=40)
    orders = None if every else sample_orders(partners, pairs, seed)
    contributions, total = estimate_contributions(scores, partners, labels, patients, orders=orders)
    values = sum(contribution.shapley.difference for contribution in contributions)
    assert values == pytest.approx(total.difference, abs=1e-12)
    for s, of_seed in enumerate(total.of_seeds):
        assert sum(c.shapley.of_seeds[s] for c in contributions) == pytest.approx(of_seed, abs=1e-12)


def test_total_gain_is_the_paired_test() -> None:
    scores, labels, patients = made_scores()
    _, total = estimate_contributions(scores, PARTNERS, labels, patients)
    test = seeds_test(scores[Subset()], scores[Subset(PARTNERS)], labels, patients)
    assert (total.difference, total.error, total.p) == pytest.approx((test.difference, test.error, test.p), rel=1e-9)


def test_idle_partner_has_value_zero() -> None:
    scores, labels, patients = made_scores(("a", "b"))
    same = {subset | extra: runs for subset, runs in scores.items() for extra in (Subset(), Subset("c"))}
    contributions, _ = estimate_contributions(same, PARTNERS, labels, patients)
    assert contributions[2].shapley.difference == pytest.approx(0, abs=1e-12)
    assert contributions[2].shapley.p == 1


def test_sampled_orders_have_an_error() -> None:
    partners = tuple("abcd")
    scores, labels, patients = made_scores(partners)
    exact, _ = estimate_contributions(scores, partners, labels, patients)
    sampled, _ = estimate_contributions(scores, partners, labels, patients, orders=sample_orders(partners, 3, 0))
    few, many = sampled[0].shapley, exact[0].shapley
    assert few.error
    assert many.error
    assert few.error > many.error
    assert abs(few.difference - many.difference) < 4 * few.error


def test_subsets_are_those_the_answers_need() -> None:
    assert len(list_subsets("abcde")) == 32
    orders = sample_orders(tuple("abcdefgh"), 2, 0)
    subsets = list_subsets("abcdefgh", orders)
    needed = {subset for name in "abcdefgh" for subset in weigh_subsets(name, "abcdefgh", orders)}
    assert needed <= set(subsets)
    assert len(subsets) <= 2 + 2 * 8 + 4 * 7
    assert math.isclose(sum(weigh_subsets("a", "abcd").values()), 0, abs_tol=1e-12)


def test_missing_sets_are_named() -> None:
    scores, labels, patients = made_scores()
    del scores[Subset("ab")]
    with pytest.raises(ValueError, match="a, b"):
        estimate_contributions(scores, PARTNERS, labels, patients)
    with pytest.raises(ValueError, match="two or more pairs"):
        sample_orders(PARTNERS, 1, 0)
