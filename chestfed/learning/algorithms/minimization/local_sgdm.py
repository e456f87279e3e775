"""LocalSGDM: momentum SGD with local steps; the model and the momentum are averaged. With beta = 0 it is FedAvg.

Yu, Jin, Yang: "On the Linear Speedup Analysis of Communication Efficient Momentum SGD for Distributed Non-Convex
Optimization", ICML 2019; a baseline of Zhang et al., NeurIPS 2023. A minimization: it has no step for dual variables.

The papers have no stages: with `stages` above 1 each starts without momentum. `stages: 1` is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.learning.abilities import AVERAGING
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, Stateless, descend_


@dataclass(frozen=True)
class State:
    """w, the momentum u, 2d numbers each way, and the dual variables, which are the server's: none go up."""

    primal: Tensor
    momentum: Tensor
    dual: Tensor


@dataclass(frozen=True)
class LocalSgdm(LocalStepAlgorithm[State, State, Stateless]):
    """`window` steps u = beta u + g, w = w - lr u, between two averages of w and u."""

    window: int
    local_lr: float
    beta: float = 0.9

    def start_stage(self, point: Point) -> State:
        """Start without momentum."""
        return State(point.primal, torch.zeros_like(point.primal), point.dual)

    def client_step(self, local: State, message: State, client: Stateless, gradients: Gradients) -> None:
        """U = beta u + g, then w = w - lr u."""
        w, u = local.primal, local.momentum
        u.mul_(self.beta).add_(gradients(w, message.dual)[0])
        descend_(w, self.local_lr, u)


class Options(plugins.Options):
    """Options of LocalSGDM."""

    momentum: float = Field(
        0.9, ge=0, lt=1, description="momentum [beta]", json_schema_extra={"search": [0.5, 0.99, "linear"]}
    )


def build(options: Options, setting: Setting) -> LocalSgdm:
    """The rule of one stage."""
    return LocalSgdm(window=setting.window, local_lr=setting.local_lr, beta=options.momentum)


LOCAL_SGDM = AlgorithmSpec(
    name="local_sgdm",
    title="LocalSGDM",
    paper="Yu, Jin, Yang, ICML 2019",
    where="Algorithm 1",
    sends="2d",
    sent="w and the momentum",
    exact="window 1",
    options=Options,
    build=build,
    rule=LocalSgdm,
    can=AVERAGING,
)
