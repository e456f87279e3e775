"""FedDecorr: features that are not correlated. Shi, Liang, Zhang, Tan, Bai, ICLR 2023, eq. 6, beside cross-entropy."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from chestfed.plugins import CrossEntropy, ObjectiveSpec, Options


class DecorrOptions(Options):
    beta: float = Field(0.1, ge=0, description="weight of the correlations [beta]; 0 is cross-entropy")


@dataclass(frozen=True)
class FedDecorr:
    plain: Any
    beta: float
    extra_size: int = 0
    dual_size: int = 0
    models: tuple = ()  # no other model is run

    def loss(self, logits, labels, extra, dual):
        return self.plain.loss(logits, labels, extra, dual)

    def seen_loss(self, logits, labels, extra, dual, seen):
        z = seen.features
        z = (z - z.mean(dim=0)) / (z.var(dim=0, unbiased=False) + 1e-8).sqrt()
        correlations = z.T @ z / len(z)
        return self.loss(logits, labels, extra, dual) + self.beta * correlations.square().mean()


FEDDECORR = ObjectiveSpec(
    name="feddecorr",
    text="cross-entropy with decorrelated features",
    paper="Shi et al., ICLR 2023",
    kind="minimization",
    options=DecorrOptions,
    build=lambda options, population: FedDecorr(CrossEntropy(population.own_labeled), options.beta),
    rule=FedDecorr,
    draws=False,
)
