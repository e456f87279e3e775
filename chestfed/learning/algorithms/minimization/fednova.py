"""FedNova: clients that make different numbers of steps send their mean direction, and the server sums them anew.

Wang, Liu, Liang, Joshi, Poor: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020, Algorithm 1 and eq. 6 to 8 for plain SGD, whose a_k is a vector of tau_k ones: FedAvg's mean would weigh a
client by its steps, and minimize another objective. With equal steps it is FedAvg up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from chestfed.core.plugins import Options
from chestfed.learning.abilities import ANY_ROUND
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, Stateless, mean_of


@dataclass(frozen=True)
class Update:
    """The mean change per step (x - y_k) / tau_k, and tau_k `[1]`."""

    primal: Tensor
    steps: Tensor


@dataclass(frozen=True)
class FedNova(LocalStepAlgorithm[Point, Point, Stateless]):
    """`window` is tau_k at a client."""

    window: int
    local_lr: float

    def client_step(self, local: Point, message: Point, client: Stateless, gradients: Gradients) -> None:
        """A step of gradient descent."""
        w = local.primal
        w -= self.local_lr * gradients(w, message.dual)[0]

    def client_final(self, local: Point, message: Point, client: Stateless) -> tuple[Update, Stateless]:  # type: ignore[override]
        """The normalized change (eq. 7)."""
        change = (message.primal - local.primal) / self.window
        return Update(change, torch.full_like(change[:1], self.window)), client

    def server_round(self, server: Point, updates: Sequence[Update], weights: Sequence[float]) -> Point:  # type: ignore[override]
        """X - tau_eff sum_k p_k d_k, with tau_eff = sum_k p_k tau_k (eq. 8)."""
        mean = mean_of(updates, weights)
        return Point(server.primal - mean.steps * mean.primal, server.dual)


def build(options: Options, setting: Setting) -> FedNova:
    """The rule of one stage."""
    return FedNova(setting.window, setting.local_lr)


FEDNOVA = AlgorithmSpec(
    name="fednova",
    title="FedNova",
    paper="Wang et al., NeurIPS 2020",
    where="Algorithm 1; eq. 6 to 8",
    takes=("minimization", "server-weighted"),
    sends="d + 1",
    sent="the mean change per step, and the number of steps",
    exact="window 1",
    build=build,
    rule=FedNova,
    can=ANY_ROUND,
)
