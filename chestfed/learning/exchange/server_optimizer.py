"""A server optimizer: FedAvgM, FedAdagrad, FedAdam and FedYogi.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: "Adaptive Federated Optimization", ICLR 2021,
Algorithm 2: the change of the point in a round, D, is a gradient of the server's optimizer. As printed there, without
a correction of the first steps. FedAvgM: Hsu, Qi, Brown, 2019: m = beta m + D, x += lr m. The dual variables move
likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.learning.abilities import Can, Demand
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.exchange.step import Place, Step, StepSpec

Kind = Literal["momentum", "adagrad", "adam", "yogi"]


class ServerOptimizer(StrictModel):
    """What the server does with the clients' mean change."""

    kind: Kind = Field(description="momentum (FedAvgM), adagrad, adam or yogi")
    lr: float = Field(
        1.0,
        gt=0,
        description="the server's step size (learning rate) [eta]",
        json_schema_extra={"search": [1e-3, 1.0, "log"]},
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="decay of the mean change [beta, beta_1]")
    second: float = Field(0.99, ge=0, lt=1, description="decay of the mean square of adam and yogi [beta_2]")
    tau: float = Field(1e-3, gt=0, description="added to the root of the mean square of all but momentum [tau]")


@dataclass(frozen=True)
class Moments:
    """Those of the changes of the primal and dual variables."""

    first: Point
    second: Point


@dataclass(frozen=True)
class Optimized(Step):
    """Another step of the server, along the change that its own made."""

    kind: Kind
    lr: float
    momentum: float = 0.9
    beta: float = 0.99
    tau: float = 1e-3
    key: ClassVar[str] = "server_optimizer"
    place: ClassVar[Place] = "server"

    @property
    def demand(self) -> Demand:
        return Demand(self.key, frozenset({Can.ROBUST, Can.ONE_MESSAGE, Can.OWN_DUALS}))

    def describe(self) -> str:
        return f"server optimizer: {self.kind}"

    def start_server(self, point: Point) -> Moments:
        """Start without moments; v is tau^2, as in the paper."""
        zero = Point(torch.zeros_like(point.primal), torch.zeros_like(point.dual))
        square = Point(torch.full_like(point.primal, self.tau**2), torch.full_like(point.dual, self.tau**2))
        return Moments(zero, square)

    def move(self, before: Any, after: Any, kept: Moments) -> tuple[Any, Moments]:
        """The algorithm's own step gives the change; the optimizer takes the step."""
        primal, first, second = self._step(before.primal, after.primal, kept.first.primal, kept.second.primal)
        dual, first_dual, second_dual = self._step(before.dual, after.dual, kept.first.dual, kept.second.dual)
        return replace(after, primal=primal, dual=dual), Moments(Point(first, first_dual), Point(second, second_dual))

    def _step(self, x: Tensor, after: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        change = after - x
        if self.kind == "momentum":
            m = self.momentum * m + change
            return x + self.lr * m, m, v
        m, square = self.momentum * m + (1 - self.momentum) * change, change.square()
        if self.kind == "adagrad":
            v = v + square
        elif self.kind == "adam":
            v = self.beta * v + (1 - self.beta) * square
        else:
            v = v - (1 - self.beta) * square * torch.sign(v - square)
        return x + self.lr * m / (v.sqrt() + self.tau), m, v


def build(values: Mapping[str, Any], seed: int = 0) -> Optimized | None:
    chosen = values["server_optimizer"]
    if chosen is None:
        return None
    return Optimized(chosen.kind, chosen.lr, chosen.momentum, chosen.second, chosen.tau)


SERVER_OPTIMIZER = StepSpec(
    "server_optimizer",
    "another step of the server",
    {
        "server_optimizer": (
            ServerOptimizer | None,
            Field(
                None, description="optimizer of the server on the clients' mean change; null: the algorithm's own step"
            ),
        )
    },
    build,
)
