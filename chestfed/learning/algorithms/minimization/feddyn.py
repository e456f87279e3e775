"""FedDyn: a linear term per client makes the local optima meet at the global one.

Acar, Zhao, Navarro, Mattina, Whatmough, Saligrama: "Federated Learning Based on Dynamic Regularization", ICLR 2021,
Algorithm 1: client k minimizes L_k(w) - <g_k, w> + alpha/2 |w - x|^2, here by `window` steps. Clients that are not in a
round keep g_k, and h moves by the mean change of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.learning.abilities import ANY_ROUND
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, descend_, weighted_mean


@dataclass(frozen=True)
class Server:
    """x, and h, the mean of the clients' g_k."""

    primal: Tensor
    dual: Tensor
    h: Tensor


@dataclass(frozen=True)
class Client:
    """g_k."""

    gradient: Tensor


@dataclass(frozen=True)
class FedDyn(LocalStepAlgorithm[Server, Point, Client]):
    """`window` steps of size `local_lr` on the regularized loss; `alpha` as in the paper."""

    window: int
    local_lr: float
    alpha: float

    def start_stage(self, point: Point) -> Server:
        """Start with h = 0."""
        return Server(point.primal, point.dual, torch.zeros_like(point.primal))

    def start_client(self, point: Point) -> Client:
        """Start with g_k = 0."""
        return Client(torch.zeros_like(point.primal))

    def message(self, server: Server) -> Point:
        """X alone goes down."""
        return Point(server.primal, server.dual)

    def client_step(self, local: Point, message: Point, client: Client, gradients: Gradients) -> None:
        """A step on L_k(w) - <g_k, w> + alpha/2 |w - x|^2."""
        w = local.primal
        gradient, _ = gradients(w, message.dual)
        descend_(w, self.local_lr, gradient, prox=self.alpha, reference=message.primal, shift=-client.gradient)

    def client_final(self, local: Point, message: Point, client: Client) -> tuple[Point, Client]:
        """W goes up; g_k becomes g_k - alpha (w - x)."""
        gradient = client.gradient - self.alpha * (local.primal - message.primal)
        return Point(local.primal, message.dual[:0]), Client(gradient)

    def server_round(self, server: Server, updates: Sequence[Point], weights: Sequence[float]) -> Server:
        """All clients took part."""
        return self.partial_round(server, updates, weights, 1.0)

    def partial_round(self, server: Server, updates: Sequence[Point], weights: Sequence[float], share: float) -> Server:
        """H = h - alpha (|S|/N) (mean w - x), then x = mean w - h / alpha."""
        mean = weighted_mean([update.primal for update in updates], weights)
        h = server.h - self.alpha * share * (mean - server.primal)
        return Server(mean - h / self.alpha, server.dual, h)


class Options(plugins.Options):
    """Options of FedDyn."""

    alpha: float = Field(
        0.1,
        gt=0,
        description="weight of the dynamic regularizer",
        json_schema_extra={"search": [1e-3, 1.0, "log"]},
    )


def build(options: Options, setting: Setting) -> FedDyn:
    """The rule of one stage."""
    return FedDyn(setting.window, setting.local_lr, options.alpha)


FEDDYN = AlgorithmSpec(
    name="feddyn",
    title="FedDyn",
    paper="Acar et al., ICLR 2021",
    where="Algorithm 1",
    exact="any window",
    options=Options,
    build=build,
    rule=FedDyn,
    can=ANY_ROUND,
)
