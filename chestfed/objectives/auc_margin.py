"""The min-max form of the AUC square loss, for several diseases at once.

For one disease with positive ratio p, score h and label y (CODASCA paper, eq. 2):

    F = (1-p) (h-a)^2 [y=1] + p (h-b)^2 [y=0]
        + 2 (1+alpha) (p h [y=0] - (1-p) h [y=1]) - p (1-p) alpha^2

averaged over the batch. Minimized over the weights, a and b, maximized over alpha, its value is p(1-p) times
the pairwise square loss E(1 - h+ + h-)^2, less the constant p(1-p): at the saddle point a is the mean score of
the positives, b that of the negatives, alpha = b - a. (LibAUC's AUCM loss is the same problem with alpha
shifted by one and no constant.)

The multi-label loss is the mean of the diseases' losses, so the gradients of a_j, b_j and alpha_j carry 1/J.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.objectives.declaration import ObjectiveSpec, Population


@dataclass(frozen=True)
class AucMargin:
    """AUC square loss with primal variables `extra` = (a_1..a_J, b_1..b_J) and dual variables alpha_1..alpha_J.

    Attributes
    ----------
    positive_ratio
        p, float `[J]`: the same at every client. With one common p the weighted sum of the clients' losses is the
        loss of the pooled data; a p of the client's own, or of the batch, would be another problem. A disease
        with p = 0 or 1 has no pairs: its loss is 0.
    """

    positive_ratio: Tensor

    @property
    def extra_size(self) -> int:
        """A and b: 2J."""
        return 2 * self.dual_size

    @property
    def dual_size(self) -> int:
        """alpha: J."""
        return self.positive_ratio.numel()

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of sigmoid(logits) `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}."""
        return self.loss_of_scores(torch.sigmoid(logits), labels, extra, dual)

    def loss_of_scores(self, scores: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of scores h `[n, J]`, eq. 2 averaged over the labeled images and then over the diseases.

        A batch without positives (or negatives) of a disease is legal; one without any labeled image of a
        disease contributes 0 for it, the alpha term included.
        """
        p = self.positive_ratio.to(scores)
        a, b = extra[: p.numel()], extra[p.numel() :]
        positive, negative = labels == 1, labels == 0
        count = (positive | negative).sum(dim=0)

        on_positives = (1 - p) * ((scores - a) ** 2 - 2 * (1 + dual) * scores)
        on_negatives = p * ((scores - b) ** 2 + 2 * (1 + dual) * scores)
        terms = torch.where(positive, on_positives, torch.where(negative, on_negatives, 0.0))
        per_disease = terms.sum(dim=0) / count.clamp(min=1) - p * (1 - p) * dual**2
        return torch.where(count > 0, per_disease, 0.0).mean()

    def best_dual(self, scores: Tensor, labels: Tensor, dual: Tensor) -> Tensor:
        """The alpha `[J]` that maximizes the loss of these scores; `dual` where nothing is labeled or p is 0 or 1.

        The derivative of eq. 2 by alpha is zero at mean(p h [y=0] - (1-p) h [y=1]) / (p(1-p)): with a share p of
        positives among the labels, the mean score of the negatives less that of the positives.
        """
        p = self.positive_ratio.to(scores)
        positive, negative = labels == 1, labels == 0
        count = (positive | negative).sum(dim=0)
        terms = torch.where(negative, p * scores, torch.where(positive, (p - 1) * scores, 0.0))
        known = (count > 0) & (p > 0) & (p < 1)
        best = terms.sum(dim=0) / (count.clamp(min=1) * torch.where(known, p * (1 - p), 1.0))
        return torch.where(known, best, dual)


class Options(plugins.Options):
    """Options of the AUC loss."""

    positive_ratio: Literal["common", "client"] = Field(
        "common",
        description="p: one for all clients, which makes the weighted losses that of the pooled data; or each client's "
        "own, another problem, as an ablation",
    )


def build(options: Options, population: Population) -> AucMargin:
    """The loss of one client."""
    return AucMargin(population.positive_ratio if options.positive_ratio == "common" else population.own_ratio)


AUC = ObjectiveSpec(
    name="auc",
    text="min-max AUC square loss",
    paper="Yuan et al., ICML 2021, eq. 2",
    kind="min-max",
    options=Options,
    build=build,
    rule=AucMargin,
)
