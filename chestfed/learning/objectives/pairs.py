"""Losses of pairs with a moving average per positive: one-way partial AUC (SOPA-s) and average precision (SOAP).

A positive i is compared with the other images of its batch by L_ij = max(0, margin - (h_i - h_j))^2 on sigmoid scores.
Its inner mean is a nonlinear function's argument, so that the mean over a batch is biased; each training row therefore
has a moving average u_i at its client, kept between rounds and saved with them. An average starts with its first batch.
Pairs are those of one client.

SOPA-s: Zhu, Li, Wang, Wu, Yang, "When AUC meets DRO", ICML 2022, Algorithm 2, eq. 7: the mean over positives of
lambda log mean_j exp(L_ij / lambda) over negatives, so that negatives with large scores count more: the AUC at small
false positive rates. SOAP: Qi, Luo, Xu, Ji, Yang, "Stochastic Optimization of Areas Under Precision-Recall Curves with
Provable Convergence", NeurIPS 2021, Algorithm 1: minus the mean over positives of u1_i / u2_i, with u1 the mean of
L_ij over positives j and u2 over all.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec, Population


@dataclass(frozen=True)
class Pairs(Objective):
    """Common part of both losses; `rate` is the share of a new batch in a moving average."""

    diseases: int
    margin: float
    rate: float

    memory_size = 0

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """The loss of the batch's own means, `logits` and `labels` `[n, J]`; a disease without a pair contributes 0."""
        means, usable = self._means(self._hinges(logits), labels)
        terms = torch.where(usable, self._outer(means), 0.0)
        return (terms.sum(dim=0) / usable.sum(dim=0).clamp(min=1)).mean()

    def sampled_loss(
        self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss with the rows' moving averages `[n, memory_size]`, 0 where there is none yet; and the new ones.

        Its gradient is that of the outer function at the moving averages times that of the batch's means.
        """
        means, usable = self._means(self._hinges(logits), labels)
        old, new = memory.view(len(labels), -1, self.diseases), means.detach().movedim(0, 1)
        moved = torch.where(usable[:, None], move_average(old, new, self.rate), old)
        at = torch.where(usable[:, None], moved, 1.0).movedim(1, 0).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self._outer(at).sum(), at)
        terms = torch.where(usable, (slope * means).sum(dim=0), 0.0)
        surrogate = (terms.sum(dim=0) / usable.sum(dim=0).clamp(min=1)).mean()
        value = self.loss(logits.detach(), labels, extra, dual)
        return value + surrogate - surrogate.detach(), moved.reshape(memory.shape)

    def _hinges(self, logits: Tensor) -> Tensor:
        """L_ij `[n, n, J]`."""
        scores = torch.sigmoid(logits)
        return (self.margin - scores[:, None] + scores[None]).clamp(min=0).square()

    @abstractmethod
    def _means(self, hinges: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The inner means of each row `[m, n, J]`, 1 where they are not used, and whether they are `[n, J]`."""

    @abstractmethod
    def _outer(self, means: Tensor) -> Tensor:
        """The outer function of inner means `[m, n, J]`, `[n, J]`."""


def move_average(old: Tensor, new: Tensor, rate: float) -> Tensor:
    """The moving averages of rows after a batch; one that is 0 begins with it."""
    return torch.where(old == 0, new, (1 - rate) * old + rate * new)


@dataclass(frozen=True)
class PartialAuc(Pairs):
    """One-way partial AUC: `spread` is lambda; small: only the negatives with the largest scores count."""

    spread: float = 1.0

    @property
    def memory_size(self) -> int:  # type: ignore[override]
        """U: J."""
        return self.diseases

    def _means(self, hinges: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        negative = labels == 0
        usable = (labels == 1) & negative.any(dim=0)
        count = negative.sum(dim=0).clamp(min=1)
        means = torch.where(negative[None], torch.exp(hinges / self.spread), 0.0).sum(dim=1) / count
        return torch.where(usable, means, 1.0)[None], usable

    def _outer(self, means: Tensor) -> Tensor:
        return self.spread * torch.log(means[0])


@dataclass(frozen=True)
class AveragePrecision(Pairs):
    """Average precision."""

    @property
    def memory_size(self) -> int:  # type: ignore[override]
        """u1 and u2: 2J."""
        return 2 * self.diseases

    def _means(self, hinges: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        positive, known = labels == 1, ~torch.isnan(labels)
        usable = positive & (labels == 0).any(dim=0)
        count = known.sum(dim=0).clamp(min=1)
        parts = [torch.where(part[None], hinges, 0.0).sum(dim=1) / count for part in (positive, known)]
        return torch.where(usable, torch.stack(parts), 1.0), usable

    def _outer(self, means: Tensor) -> Tensor:
        return -means[0] / means[1]


class Options(plugins.Options):
    """Options of both."""

    margin: float = Field(1.0, gt=0, le=2, description="difference of scores from which a pair costs nothing")
    rate: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of a new batch in the moving average of a row; 1: the batch alone",
        json_schema_extra={"search": [0.1, 1.0, "linear"]},
    )


class PartialOptions(Options):
    """Options of SOPA-s."""

    spread: float = Field(
        1.0,
        ge=0.05,
        description="how much negatives with large scores count: the smaller, the more [lambda]",
        json_schema_extra={"search": [0.1, 10.0, "log"]},
    )


def build_partial(options: PartialOptions, population: Population) -> PartialAuc:
    return PartialAuc(population.diseases, options.margin, options.rate, options.spread)


def build_precision(options: Options, population: Population) -> AveragePrecision:
    return AveragePrecision(population.diseases, options.margin, options.rate)


SOPA_S = ObjectiveSpec(
    name="sopa_s",
    text="one-way partial AUC, with moving averages per row",
    paper="Zhu et al., ICML 2022, Algorithm 2",
    kind="minimization",
    options=PartialOptions,
    build=build_partial,
    rule=PartialAuc,
    draws=False,
    by_class=True,
)

SOAP = ObjectiveSpec(
    name="soap",
    text="average precision, with moving averages per row",
    paper="Qi et al., NeurIPS 2021, Algorithm 1",
    kind="minimization",
    options=Options,
    build=build_precision,
    rule=AveragePrecision,
    draws=False,
)
