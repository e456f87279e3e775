"""A small problem with known gradients, and what is written down about an optimizer on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.libauc_parts.losses import chestfed_loss
from chestfed.learning.objectives.auc_margin import AucMargin


@dataclass(frozen=True)
class Fact:
    """One line of the table of observations: what was looked at, what came out, and whether it is as described."""

    part: str
    what: str
    observed: str
    as_described: bool


@dataclass(frozen=True)
class Problem:
    """A linear model with a sigmoid on 200 rows of 4 columns, float64, a third positive and not separable."""

    rows: Tensor
    labels: Tensor

    @property
    def p(self) -> Tensor:
        return self.labels.mean(dim=0)

    def scores(self, weights: Tensor) -> Tensor:
        return torch.sigmoid(self.rows @ weights)[:, None]

    def auc(self, weights: Tensor, a: Tensor, b: Tensor, alpha: Tensor) -> Tensor:
        """The AUC loss in LibAUC's variables."""
        return chestfed_loss(self.p)(self.scores(weights), self.labels, a, b, alpha)

    def cross_entropy(self, weights: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy(self.scores(weights), self.labels)

    def gradients(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of `AucMargin` by v = (w, a, b) and by chestfed's alpha."""
        v, alpha = primal.clone().requires_grad_(), dual.clone().requires_grad_()
        loss = AucMargin(self.p).loss_of_scores(self.scores(v[:-2]), self.labels, v[-2:], alpha)
        by_v, by_alpha = torch.autograd.grad(loss, [v, alpha])
        return by_v, by_alpha


def problem() -> Problem:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(200, generator=generator, dtype=torch.float64)
    direction = torch.tensor([1.0, -0.5, 0.5, 0.0], dtype=torch.float64)
    labels = (rows @ direction + 2 * noise > 1).double()[:, None]
    return Problem(rows, labels)


def start() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """w, a, b and LibAUC's alpha at the start."""
    values = ([0.3, 0.2, -0.1, 0.4], [0.1], [0.2], [0.6])
    w, a, b, alpha = (torch.tensor(value, dtype=torch.float64) for value in values)
    return w, a, b, alpha


def gradient(function: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
    weights = weights.detach().clone().requires_grad_()
    return torch.autograd.grad(function(weights), weights)[0]


def distance(left: Tensor, right: Tensor) -> float:
    """The largest absolute difference."""
    return float((left - right).detach().abs().max())
