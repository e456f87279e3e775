"""A server optimizer around an averaging algorithm: FedAvgM, FedAdagrad, FedAdam and FedYogi.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: "Adaptive Federated Optimization", ICLR 2021,
Algorithm 2: the change of the point in a round, D, is a gradient of the server's optimizer. As printed there, without
a correction of the first steps. FedAvgM: Hsu, Qi, Brown, 2019: m = beta m + D, x += lr m. The dual variables move
likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core.config import StrictModel
from chestfed.learning.algorithms.variables import Algorithm, Gradients, Personal, Point

Kind = Literal["momentum", "adagrad", "adam", "yogi"]


class ServerOptimizer(StrictModel):
    """What the server does with the clients' mean change."""

    kind: Kind = Field(description="momentum (FedAvgM), adagrad, adam or yogi")
    lr: float = Field(
        1.0, gt=0, description="the server's step size [eta]", json_schema_extra={"search": [1e-3, 1.0, "log"]}
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="decay of the mean change [beta, beta_1]")
    second: float = Field(0.99, ge=0, lt=1, description="decay of the mean square of adam and yogi [beta_2]")
    tau: float = Field(1e-3, gt=0, description="added to the root of the mean square of all but momentum [tau]")

    def around(self, rule: Any) -> Optimized:
        """The rule with this optimizer at its server."""
        kind = OptimizedPersonal if isinstance(rule, Personal) else Optimized
        return kind(rule, self.kind, self.lr, self.momentum, self.second, self.tau)


@dataclass(frozen=True)
class State:
    """The algorithm's own state, and the moments of the changes of the primal and dual variables."""

    server: Any
    first: Point
    second: Point

    @property
    def primal(self) -> Tensor:
        """`[d + 2J]`."""
        primal: Tensor = self.server.primal
        return primal

    @property
    def dual(self) -> Tensor:
        """`[J]`."""
        dual: Tensor = self.server.dual
        return dual


@dataclass(frozen=True)
class Optimized(Algorithm[State, Any, Any]):
    """`rule` with another step of the server."""

    rule: Any
    kind: Kind
    lr: float
    momentum: float = 0.9
    beta: float = 0.99
    tau: float = 1e-3

    @property
    def window(self) -> int:  # type: ignore[override]
        """I."""
        window: int = self.rule.window
        return window

    def start_stage(self, point: Point) -> State:
        """Start without moments; v is tau^2, as in the paper."""
        zero = Point(torch.zeros_like(point.primal), torch.zeros_like(point.dual))
        square = Point(torch.full_like(point.primal, self.tau**2), torch.full_like(point.dual, self.tau**2))
        return State(self.rule.start_stage(point), zero, square)

    def start_client(self, point: Point) -> Any:
        return self.rule.start_client(point)

    def message(self, server: State) -> Any:
        return self.rule.message(server.server)

    def local_round(self, message: Any, client: Any, gradients: Gradients) -> tuple[Any, Any]:
        pair: tuple[Any, Any] = self.rule.local_round(message, client, gradients)
        return pair

    def current(self, server: State) -> Point:
        point: Point = self.rule.current(server.server)
        return point

    def server_round(self, server: State, updates: Sequence[Any], weights: Sequence[float]) -> State:
        """The algorithm's own step gives the change; the optimizer takes the step."""
        after, before = self.rule.server_round(server.server, updates, weights), server.server
        primal, first, second = self._step(before.primal, after.primal, server.first.primal, server.second.primal)
        dual, first_dual, second_dual = self._step(before.dual, after.dual, server.first.dual, server.second.dual)
        moved = replace(after, primal=primal, dual=dual)
        return State(moved, Point(first, first_dual), Point(second, second_dual))

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


class OptimizedPersonal(Optimized):
    """The same around a personal algorithm."""

    def local_point(self, point: Point, client: Any) -> Point:
        """The algorithm's own."""
        located: Point = self.rule.local_point(point, client)
        return located
