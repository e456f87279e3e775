"""Binary cross-entropy on logits, with missing labels masked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from chestfed.core.plugins import Options
from chestfed.objectives.declaration import Objective, ObjectiveSpec, Population


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean over diseases of the binary cross-entropy over the labeled images of the batch."""

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of `logits` `[n, J]` against `labels` `[n, J]`; `extra` and `dual` are empty.

        A disease without a labeled image in the batch contributes 0.
        """
        known = ~torch.isnan(labels)
        target = torch.where(known, labels, 0.0)
        terms = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        count = known.sum(dim=0).clamp(min=1)
        return (torch.where(known, terms, 0.0).sum(dim=0) / count).mean()


def build(options: Options, population: Population) -> CrossEntropy:
    """The loss, the same at every client."""
    return CrossEntropy()


CROSS_ENTROPY = ObjectiveSpec(
    name="cross_entropy",
    text="binary cross-entropy",
    paper="-",
    kind="minimization",
    build=build,
    rule=CrossEntropy,
)
