"""Compositional AUC: the AUC loss of a network that has taken one step along its cross-entropy gradient.

min over (w, a, b), max over alpha of f(g(w, a, b), alpha) with f the AUC square loss and
g(w, a, b) = (w - rho grad L_CE(w), a, b): Yuan, Guo, Chawla, Yang, "Compositional Training for End-to-End Deep AUC
Maximization", ICLR 2022; federated in Zhang et al., NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field
from torch import Tensor

from chestfed.leaves.compositional.oracle import BlankComposition, NetworkComposition
from chestfed.plugins import AUC, AucOptions, CrossEntropy, Objective, ObjectiveSpec, Oracle, Passes, Population


@dataclass(frozen=True)
class CompositionalAuc(Objective):
    """`outer` is f, `inner` the loss that g steps along, `rho` its step.

    `hvp` "exact" takes the gradient through g with the Hessian of the inner loss; "drop" leaves the Hessian out, as an
    ablation: J'q is then q.
    """

    outer: Objective
    rho: float
    hvp: Literal["exact", "drop"] = "exact"
    inner: CrossEntropy = field(default_factory=CrossEntropy)

    @property
    def extra_size(self) -> int:
        return self.outer.extra_size

    @property
    def dual_size(self) -> int:
        return self.outer.dual_size

    @property
    def gradient_scale(self) -> float:
        return self.outer.gradient_scale

    @property
    def normalized(self) -> bool:
        """Gradient scale of the outer loss."""
        return bool(getattr(self.outer, "normalized", False))

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        """The outer loss f, on logits of the network at g(x)."""
        return self.outer.loss(logits, labels, extra, dual)


class Options(AucOptions):
    """Options of the compositional AUC loss."""

    inner_lr: float = Field(
        0.1,
        ge=0,
        description="step size of the inner step on the cross-entropy [rho]",
        json_schema_extra={"search": [1e-3, 0.3, "log"]},
    )
    hvp: Literal["exact", "drop"] = Field(
        "exact",
        description="exact: with the Hessian-vector product of the inner step; drop: without it, as an ablation",
    )


def build(options: Options, population: Population) -> CompositionalAuc:
    inner = CrossEntropy(population.own_labeled)
    return CompositionalAuc(AUC.build(options, population), options.inner_lr, options.hvp, inner)


def compose(passes: Passes) -> NetworkComposition:
    """The gradients of the network at a client; its batches for g are its further ones, if there are any."""
    return NetworkComposition(
        passes.network,
        passes.objective,
        passes.batches[-1],
        passes.batches[0],
        passes.note,
        autocast=passes.autocast,
        randomness=passes.randomness,
        weight_decay=passes.weight_decay,
    )


COMPOSITIONAL_AUC = ObjectiveSpec(
    name="compositional_auc",
    text="AUC of a network after a step along its cross-entropy",
    paper="Yuan et al., ICLR 2022; Zhang et al., NeurIPS 2023",
    kind="compositional",
    options=Options,
    build=build,
    rule=CompositionalAuc,
    draws=False,
    oracle=Oracle(compose, BlankComposition(), streams=("inner",)),
)
