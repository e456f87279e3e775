"""Losses of pairs across clients: a client's images against a pool of scores that all clients sent the round before.

A pair of a positive and a negative costs L = max(0, margin - (h+ - h-))^2 on sigmoid scores. A client has the gradient
by its own image's score alone, once as the positive of a pair and once as the negative; the other score is a number of
the pool. Guo, Jin, Luo, Yang: "FeDXL: Provable Federated Learning for Deep X-Risk Optimization", ICML 2023, section 3.

`pool_auc` is the mean over all pairs (linear f). `pool_partial_auc` is the one-way partial AUC (f = lambda log) of
`sopa_s`, with pairs across clients: each positive row has a moving average u of mean_j exp(L_ij / lambda) at its
client, and the pool has the u of its positives, so that a negative's gradient can be taken.

Departure: the paper draws positives and negatives apart and counts every client alike. Here a batch has both, as for
all objectives, and terms are divided by the common shares p and 1 - p: the weighted sum of the clients' losses is that
of the pooled pairs, as it is for the `auc` objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed import plugins
from chestfed.plugins import Can, Objective, ObjectiveSpec, Population, labeled_mean, move_average


@dataclass(frozen=True)
class PoolAuc(Objective):
    """Pairs with a pool of `capacity` scores per class and disease.

    `positive_ratio` is the common p, float `[J]`; `labeled` as in `labeled_mean`. The pool is
    shared: `[2, 1 + m, capacity, J]` of positives and negatives, scores and what is remembered of their rows. A score
    is above 0; where it is 0, the pool has none.
    """

    positive_ratio: Tensor
    capacity: int
    margin: float = 1.0
    labeled: Tensor | None = None

    @property
    def shared_shape(self) -> tuple[int, int, int, int]:
        """Shape of the pool."""
        return (2, 1, self.capacity, len(self.positive_ratio))

    def loss(  # type: ignore[override]  # of an objective with a `shared_shape`
        self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, shared: Tensor
    ) -> Tensor:
        """Loss of `logits` `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}; `shared` is the pool.

        Without scores of the other class in the pool an image's term is 0.
        """
        scores, (positives, negatives) = torch.sigmoid(logits), shared.view(self.shared_shape)
        of_positive = mean_present(self._cost(scores[:, None] - negatives[0]), negatives[0])
        of_negative = mean_present(self._cost(positives[0] - scores[:, None]), positives[0])
        return self._mean(of_positive, of_negative, labels)

    def _cost(self, gaps: Tensor) -> Tensor:
        """L of pairs, from h+ - h-."""
        return (self.margin - gaps).clamp(min=0).square()

    def _mean(self, of_positive: Tensor, of_negative: Tensor, labels: Tensor) -> Tensor:
        """The mean of each image's term `[n, J]`, as a positive or as a negative."""
        p = self.positive_ratio.to(of_positive)
        terms = torch.where(
            labels == 1, of_positive / torch.where(p > 0, p, 1.0), of_negative / (1 - p).clamp(min=1e-9)
        )
        return labeled_mean(torch.where((p > 0) & (p < 1), terms, 0.0), labels, self.labeled).mean()


@dataclass(frozen=True)
class PoolPartialAuc(PoolAuc):
    """One-way partial AUC over the pool; `spread` and `rate` as in `PartialAuc`."""

    spread: float = 1.0
    rate: float = 0.5

    @property
    def shared_shape(self) -> tuple[int, int, int, int]:
        """Shape of the pool: scores and u."""
        return (2, 2, self.capacity, len(self.positive_ratio))

    @property
    def memory_size(self) -> int:
        """U: J."""
        return len(self.positive_ratio)

    def loss(  # type: ignore[override]
        self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, shared: Tensor
    ) -> Tensor:
        """The loss with the batch's own means in the place of u."""
        inner, of_negative, usable = self._parts(logits, labels, shared)
        return self._mean(torch.where(usable, self.spread * inner.log(), 0.0), of_negative, labels)

    def sampled_loss(
        self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, memory: Tensor, shared: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss with the positives' u `[n, J]`, 0 where there is none yet; and the new ones."""
        inner, of_negative, usable = self._parts(logits, labels, shared)
        u = torch.where(usable, move_average(memory, inner.detach(), self.rate), memory)
        of_positive = torch.where(usable, self.spread * inner / torch.where(usable, u, 1.0), 0.0)
        surrogate = self._mean(of_positive, of_negative, labels)
        value = self.loss(logits.detach(), labels, extra, dual, shared)
        return value + surrogate - surrogate.detach(), u

    def _parts(self, logits: Tensor, labels: Tensor, shared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The positives' inner means, the negatives' terms, and which positives have a mean, each `[n, J]`."""
        scores, (positives, negatives) = torch.sigmoid(logits), shared.view(self.shared_shape)
        inner = mean_present(torch.exp(self._cost(scores[:, None] - negatives[0]) / self.spread), negatives[0])
        u = torch.where(positives[1] > 0, positives[1], 1.0)
        pulls = torch.exp(self._cost(positives[0] - scores[:, None]) / self.spread) * (self.spread / u)
        usable = (labels == 1) & (negatives[0] != 0).any(dim=0)
        return torch.where(usable, inner, 1.0), mean_present(pulls, positives[0] * (positives[1] > 0)), usable


def mean_present(costs: Tensor, pool: Tensor) -> Tensor:
    """The mean of `costs` `[n, P, J]` over the scores that a pool `[P, J]` has, `[n, J]`; 0 without any."""
    present = pool != 0
    return torch.where(present, costs, 0.0).sum(dim=1) / present.sum(dim=0).clamp(min=1)


class Options(plugins.Options):
    """Options of pairs with a pool."""

    pool: int = Field(128, ge=1, le=4096, description="scores per class and disease in the pool, and of each client")
    margin: float = Field(1.0, gt=0, le=2, description="difference of scores from which a pair costs nothing")


class PartialOptions(Options):
    """Options of the partial AUC with a pool."""

    rate: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of a new batch in the moving average of a row; 1: the batch alone",
        json_schema_extra={"search": [0.1, 1.0, "linear"]},
    )
    spread: float = Field(
        1.0,
        ge=0.05,
        description="how much negatives with large scores count: the smaller, the more [lambda]",
        json_schema_extra={"search": [0.1, 10.0, "log"]},
    )


def build(options: Options, population: Population) -> PoolAuc:
    return PoolAuc(population.positive_ratio, options.pool, options.margin, population.own_labeled)


def build_partial(options: PartialOptions, population: Population) -> PoolPartialAuc:
    about = (population.positive_ratio, options.pool, options.margin, population.own_labeled)
    return PoolPartialAuc(*about, spread=options.spread, rate=options.rate)


POOL_AUC = ObjectiveSpec(
    name="pool_auc",
    text="AUC over pairs of all clients, with a pool of scores",
    paper="Guo et al., ICML 2023, linear f",
    kind="score pool",
    options=Options,
    build=build,
    rule=PoolAuc,
    draws=False,
    by_class=True,
    lacks=frozenset({Can.MEAN_POINT}),
)

POOL_PARTIAL_AUC = ObjectiveSpec(
    name="pool_partial_auc",
    text="one-way partial AUC over pairs of all clients, with a pool of scores",
    paper="Guo et al., ICML 2023, f = lambda log",
    kind="score pool",
    options=PartialOptions,
    build=build_partial,
    rule=PoolPartialAuc,
    draws=False,
    by_class=True,
    lacks=frozenset({Can.MEAN_POINT}),
)
