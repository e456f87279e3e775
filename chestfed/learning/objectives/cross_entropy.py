"""Binary cross-entropy on logits, with missing labels masked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from chestfed.core.plugins import Options
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec, Population, labeled_mean


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean over diseases of the binary cross-entropy over labeled images; `labeled` as in `labeled_mean`."""

    labeled: Tensor | None = None

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """Loss of `logits` `[n, J]` against `labels` `[n, J]`; `extra` and `dual` are empty.

        A disease without a labeled image in the batch contributes 0.
        """
        target = labels.nan_to_num()
        terms = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return labeled_mean(terms, labels, self.labeled).mean()


def build(options: Options, population: Population) -> CrossEntropy:
    return CrossEntropy(population.own_labeled)


CROSS_ENTROPY = ObjectiveSpec(
    name="cross_entropy",
    text="binary cross-entropy",
    paper="-",
    kind="minimization",
    build=build,
    rule=CrossEntropy,
    draws=False,
)
