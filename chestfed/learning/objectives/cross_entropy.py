"""Binary cross-entropy on logits, with missing labels masked; weighted, focal or logit-adjusted for rare diseases.

With p the share of positives of a disease among the training labels of all clients, z a logit, y its label, and l the
cross-entropy, the term of one label is

    w_y (1 - q)^gamma l(z + tau log(p / (1 - p)), y)

where w_1 = 1 / (2p) and w_0 = 1 / (2 (1 - p)) with `weights: balanced`, so that both classes weigh one half and the
mean weight is 1, else w = 1; q is the probability that the adjusted logit gives the label (focal loss: Lin et al., ICCV
2017, eq. 4); and tau adjusts logits in training, not in scoring (Menon et al., Long-Tail Learning via Logit Adjustment,
ICLR 2021, eq. 10, for two classes). p is one number for all clients: the weighted sum of the clients' losses is then
that of the pooled data. A disease with p = 0 or 1 has neither weights nor an adjustment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from chestfed.core.config import AddedLater
from chestfed.core.plugins import Options
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec, Population, labeled_mean


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean over diseases of the binary cross-entropy over labeled images; `labeled` as in `labeled_mean`.

    Attributes
    ----------
    class_weights
        w_0 and w_1, float `[2, J]`.
    shifts
        What is added to logits in training, float `[J]`.
    gamma
        Exponent of the focal loss; 0: none.
    """

    labeled: Tensor | None = None
    class_weights: Tensor | None = None
    shifts: Tensor | None = None
    gamma: float = 0.0

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of `logits` `[n, J]` against `labels` `[n, J]`; `extra` and `dual` are empty.

        A disease without a labeled image in the batch contributes 0.
        """
        target = labels.nan_to_num()
        if self.shifts is not None:
            logits = logits + self.shifts.to(logits)
        terms = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        if self.gamma:
            others = torch.where(target == 1, -logits, logits)  # the log odds of the wrong label
            terms = torch.exp(self.gamma * functional.logsigmoid(others)) * terms
        if self.class_weights is not None:
            negative, positive = self.class_weights.to(terms)
            terms = torch.where(target == 1, positive, negative) * terms
        return labeled_mean(terms, labels, self.labeled).mean()


class CrossEntropyOptions(Options):
    """Remedies for rare diseases."""

    weights: Annotated[Literal["equal", "balanced"], AddedLater()] = Field(
        "equal",
        description="balanced: positives and negatives of a disease weigh one half each, by their shares among the "
        "training labels of all clients; equal: every label weighs the same",
    )
    gamma: Annotated[float, AddedLater()] = Field(
        0.0,
        ge=0,
        le=10,
        description="exponent of the focal loss, which lets labels that are already predicted count less; 0: none",
    )
    logit_adjustment: Annotated[float, AddedLater()] = Field(
        0.0,
        ge=0,
        le=10,
        description="what the log odds of a disease's share of positives are multiplied by, before they are added to "
        "its logits in training; 1: the posterior of balanced classes is learned; 0: none",
    )


def build(options: CrossEntropyOptions, population: Population) -> CrossEntropy:
    p = population.positive_ratio
    known = (p > 0) & (p < 1)
    halves = torch.where(known, p, 0.5)
    weights = 0.5 / torch.stack([1 - halves, halves]) if options.weights == "balanced" else None
    shifts = options.logit_adjustment * torch.logit(halves) if options.logit_adjustment else None
    return CrossEntropy(population.own_labeled, weights, shifts, options.gamma)


CROSS_ENTROPY = ObjectiveSpec(
    name="cross_entropy",
    text="binary cross-entropy",
    paper="-",
    kind="minimization",
    options=CrossEntropyOptions,
    build=build,
    rule=CrossEntropy,
    draws=False,
    by_class=True,
)
