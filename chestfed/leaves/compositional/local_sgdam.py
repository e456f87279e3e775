"""LocalSGDAM: descent ascent with momentum and local steps, for a min-max problem without an inner function.

Zhang, Zhang, Yang, Souvenir, Gao: "Federated Compositional Deep AUC Maximization", NeurIPS 2023, a baseline there: its
Algorithm 1 with the identity as inner function. In the paper's symbols: `local_lr` = gamma_x eta, `dual_lr` =
gamma_y eta, `primal_rate` = beta_x eta, `dual_rate` = beta_y eta. The paper has no stages: with `stages` above 1 the
moving averages start anew at each, as at the beginning. `stages: 1` is the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.plugins import (
    AlgorithmSpec,
    Can,
    Gradients,
    LocalStepAlgorithm,
    MinMaxOptions,
    Point,
    Setting,
    mean_of,
)


@dataclass(frozen=True)
class State:
    """x and y, and the moving averages u and v of their gradients: 2(d + 3J) numbers each way."""

    primal: Tensor
    dual: Tensor
    primal_momentum: Tensor
    dual_momentum: Tensor


@dataclass(frozen=True)
class Client:
    """The number of finished rounds: in the first, the client starts its averages with its own estimates."""

    rounds: Tensor


@dataclass(frozen=True)
class LocalSgdam(LocalStepAlgorithm[State, State, Client]):
    """`window` steps between two averages of everything."""

    window: int
    local_lr: float
    dual_lr: float | Tensor
    primal_rate: float = 0.1
    dual_rate: float = 0.1

    def start_stage(self, point: Point) -> State:
        """Start at the point; the averages are the clients' to begin."""
        return State(point.primal, point.dual, torch.zeros_like(point.primal), torch.zeros_like(point.dual))

    def start_client(self, point: Point) -> Client:
        """No round yet."""
        return Client(torch.zeros((), dtype=torch.int64))

    def client_init(self, message: State, client: Client, gradients: Gradients) -> State:
        """The server's averages; in the first round the client's own gradients."""
        local = super().client_init(message, client, gradients)
        if client.rounds == 0:
            grad_x, grad_y = gradients(local.primal, local.dual)
            local.primal_momentum.copy_(grad_x)
            local.dual_momentum.copy_(grad_y)
        return local

    def client_step(self, local: State, message: State, client: Client, gradients: Gradients) -> None:
        """A step along the averages, which are then refreshed with the gradients at the new point."""
        x, y, u, v = local.primal, local.dual, local.primal_momentum, local.dual_momentum
        x -= self.local_lr * u
        y += self.dual_lr * v
        grad_x, grad_y = gradients(x, y)
        u.mul_(1 - self.primal_rate).add_(self.primal_rate * grad_x)
        v.mul_(1 - self.dual_rate).add_(self.dual_rate * grad_y)

    def client_final(self, local: State, message: State, client: Client) -> tuple[State, Client]:
        """Everything, the dual variables too."""
        return local, Client(client.rounds + 1)

    def server_round(self, server: State, updates: Sequence[State], weights: Sequence[float]) -> State:
        """Average points and gradient averages."""
        return mean_of(updates, weights)


class Options(MinMaxOptions):
    """Options of LocalSGDAM."""

    momentum_rate: float = Field(
        0.1,
        gt=0,
        le=1,
        description="rate of the gradient averages [beta eta]",
        json_schema_extra={"search": [0.03, 0.9, "log"]},
    )


def build(options: Options, setting: Setting) -> LocalSgdam:
    """The rule of one stage."""
    rate = options.momentum_rate
    dual_lr = options.dual_step_size(setting)
    return LocalSgdam(setting.window, setting.local_lr, dual_lr, primal_rate=rate, dual_rate=rate)


LOCAL_SGDAM = AlgorithmSpec(
    name="local_sgdam",
    title="LocalSGDAM",
    family="compositional",
    paper="Zhang et al., NeurIPS 2023",
    where="baseline: Algorithm 1 without g",
    takes=("min-max",),
    objective="auc",
    sends="2(d + 3J)",
    sent="x, y and two gradient averages",
    exact="window 1",
    options=Options,
    build=build,
    rule=LocalSgdam,
    can=frozenset({Can.ROBUST, Can.SOME_CLIENTS}),
)
