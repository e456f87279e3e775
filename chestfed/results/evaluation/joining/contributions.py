"""Contribution of each partner hospital to the AUC at a target hospital.

Training with the target and a set S of partners gives a model with the AUC v(S) at the target. Three answers, of which
each is a weighted sum of such AUCs:

- *Shapley value*: the mean over all orders of joining of v(S and i) - v(S), S being the partners before i. The values
  of all partners sum to v(all) - v(none), the total gain. L. S. Shapley: A value for n-person games. Contributions to
  the Theory of Games II, Annals of Mathematics Studies 28 (1953) 307-317;
- *added first*: v(i) - v(none);
- *removed last*: v(all) - v(all but i).

With many partners the orders are a sample, each with its reverse (antithetic: R. Mitchell, J. Cooper, E. Frank, G.
Holmes: Sampling permutations for Shapley value estimation. JMLR 23 (2022) 1-46). The sum of the values is still the
total gain, since it is that of every order.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.splits import ONE_SPLIT, Splits
from chestfed.results.evaluation.training_seeds import SeedsTest, estimate_contrast

#: Up to so many partners every order counts: 2^5 = 32 studies.
MOST_EXACT: Final = 5

Subset = frozenset[str]


@dataclass(frozen=True)
class Contribution:
    """Contribution of one partner to the mean AUC at the target, over test patients, training seeds and splits."""

    partner: str
    shapley: SeedsTest  #: its error includes that of a sample of orders
    added_first: SeedsTest
    removed_last: SeedsTest


def sample_orders(partners: Sequence[str], pairs: int, seed: int) -> list[tuple[str, ...]]:
    """Orders of joining, drawn at random, each followed by its reverse: `2 pairs` of them.

    Raises `ValueError` if there are fewer than two pairs, from which no error can be estimated.
    """
    if pairs < 2:
        raise ValueError(f"a sample needs two or more pairs of orders, not {pairs}")
    draw = numpy_stream(seed, "orders of joining")
    orders = [tuple(partners[place] for place in draw.permutation(len(partners))) for _ in range(pairs)]
    return [order for first in orders for order in (first, first[::-1])]


def list_subsets(partners: Sequence[str], orders: Sequence[Sequence[str]] | None = None) -> list[Subset]:
    """The sets of partners to train with, smallest first: all, or with `orders` those that the answers need."""
    if orders is not None and (not orders or any(set(order) != set(partners) for order in orders)):
        raise ValueError("an order of joining names every partner, and there is one at least")
    if orders is None:
        return [
            frozenset(subset) for size in range(len(partners) + 1) for subset in itertools.combinations(partners, size)
        ]
    full = frozenset(partners)
    subsets = {frozenset(order[:size]) for order in orders for size in range(len(partners) + 1)}
    subsets |= {frozenset((partner,)) for partner in partners} | {full - {partner} for partner in partners}
    places = {partner: place for place, partner in enumerate(partners)}
    return sorted(subsets, key=lambda subset: (len(subset), sorted(places[partner] for partner in subset)))


def weigh_subsets(
    partner: str, partners: Sequence[str], orders: Iterable[Sequence[str]] | None = None
) -> dict[Subset, float]:
    """The weight of each v(S) in the Shapley value of a partner: the mean over `orders`, or over all of them.

    With n partners and all orders, v(S and i) counts |S|! (n - |S| - 1)! / n!, and v(S) as much with a minus.
    """
    weights: defaultdict[Subset, float] = defaultdict(float)
    if orders is None:
        n, others = len(partners), [name for name in partners if name != partner]
        for before in list_subsets(others):
            share = math.factorial(len(before)) * math.factorial(n - len(before) - 1) / math.factorial(n)
            weights[before | {partner}] += share
            weights[before] -= share
        return dict(weights)
    orders = list(orders)
    for order in orders:
        before = frozenset(order[: order.index(partner)])
        weights[before | {partner}] += 1 / len(orders)
        weights[before] -= 1 / len(orders)
    return dict(weights)


def estimate_contributions(
    scores: Mapping[Subset, Sequence[np.ndarray]],
    partners: Sequence[str],
    labels: np.ndarray,
    patients: np.ndarray,
    hospitals: np.ndarray | None = None,
    orders: Sequence[Sequence[str]] | None = None,
    splits: Splits = ONE_SPLIT,
) -> tuple[list[Contribution], SeedsTest]:
    """The contribution of each partner, and the total gain v(all) - v(none).

    `scores` are those of the target's test images `[n, J]` after training with each set of partners, one array per
    training seed, the same seeds for every set (`list_subsets` says which sets). Labels are `[n, J]` in {0, 1, NaN},
    patients and hospitals `[n]`. `orders` are the sampled ones (`sample_orders`); None: every order counts. With
    `splits` the columns are those of every split of the patients, side by side (`labeled.put_beside`).

    Raises `ValueError` if a set is missing, and as `estimate_contrast`.
    """
    missing = [subset for subset in list_subsets(partners, orders) if subset not in scores]
    if missing:
        names = "; ".join(", ".join(sorted(subset)) or "no partner" for subset in missing)
        raise ValueError(f"no scores of the target with {names}")

    def estimate(weights: Mapping[Subset, float], sampling: tuple[float, float] | None = None) -> SeedsTest:
        counting = {subset: weight for subset, weight in weights.items() if weight}
        models = [scores[subset] for subset in counting]
        return estimate_contrast(models, list(counting.values()), labels, patients, hospitals, sampling, splits)

    empty, full = Subset(), Subset(partners)
    contributions = []
    for partner in partners:
        first, last = {Subset((partner,)): 1.0, empty: -1.0}, {full: 1.0, full - {partner}: -1.0}
        sampling = None
        if orders is not None:  # a pair of orders is one draw
            pairs = zip(orders[::2], orders[1::2], strict=True)
            draws = [estimate(weigh_subsets(partner, partners, pair)).difference for pair in pairs]
            sampling = (float(np.var(draws, ddof=1)) / len(draws), len(draws) - 1)
        value = estimate(weigh_subsets(partner, partners, orders), sampling)
        contributions.append(Contribution(partner, value, estimate(first), estimate(last)))
    return contributions, estimate({full: 1.0, empty: -1.0})
