"""SCAFFOLD: stochastic controlled averaging for a minimization.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: ICML 2020, Algorithm 1 with option II and all clients taking part.
CODASCA is the same idea on both sides of a saddle point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.algorithms.variables import Gradients, Point, weighted_mean
from chestfed.core import plugins


@dataclass(frozen=True)
class Server:
    """x and the control variate c, the clients' mean: 2d numbers down."""

    primal: Tensor
    control: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Client:
    """The client's control variate c_i."""

    control: Tensor


@dataclass(frozen=True)
class Update:
    """The changes of y_i and c_i: 2d numbers up. The dual variables are the server's: none go up."""

    primal: Tensor
    control: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Scaffold:
    """`window` local steps of size `local_lr`, then a server step of size `server_lr`."""

    window: int
    local_lr: float
    server_lr: float = 1.0

    def start_stage(self, point: Point) -> Server:
        """Start with c = 0."""
        return Server(point.primal, torch.zeros_like(point.primal), point.dual)

    def start_client(self, point: Point) -> Client:
        """Start with c_i = 0."""
        return Client(torch.zeros_like(point.primal))

    def message(self, server: Server) -> Server:
        """Send x and c."""
        return server

    def local_round(self, message: Server, client: Client, gradients: Gradients) -> tuple[Update, Client]:
        """I local steps with g - c_i + c (line 10), then option II of line 12."""
        y = message.primal.clone()
        for _ in range(self.window):
            gradient, _ = gradients(y, message.dual)
            y -= self.local_lr * (gradient - client.control + message.control)
        control = client.control - message.control + (message.primal - y) / (self.window * self.local_lr)
        return Update(y - message.primal, control - client.control, message.dual[:0]), Client(control)

    def server_round(self, server: Server, updates: Sequence[Update], weights: Sequence[float]) -> Server:
        """Add the mean changes (lines 16 and 17)."""
        return Server(
            server.primal + self.server_lr * weighted_mean([update.primal for update in updates], weights),
            server.control + weighted_mean([update.control for update in updates], weights),
            server.dual,
        )

    def current(self, server: Server) -> Point:
        """The server's x."""
        return Point(server.primal, server.dual)


class Options(plugins.Options):
    """Options of SCAFFOLD."""

    server_lr: Annotated[float, Field(gt=0)] | Literal["sqrt_k"] = Field(
        1.0, description="the server's step [eta_g]; sqrt_k: the square root of the number of clients"
    )


def build(options: Options, setting: Setting) -> Scaffold:
    """The rule of one stage."""
    server_lr = setting.clients**0.5 if options.server_lr == "sqrt_k" else options.server_lr
    return Scaffold(window=setting.window, local_lr=setting.local_lr, server_lr=server_lr)


SCAFFOLD = AlgorithmSpec(
    name="scaffold",
    title="SCAFFOLD",
    family="minimization",
    paper="Karimireddy et al., ICML 2020",
    where="Algorithm 1, option II",
    takes=("minimization", "server-weighted"),
    objective="cross_entropy",
    sends="2d",
    sent="the changes of w and c",
    exact="any window",
    options=Options,
    build=build,
    rule=Scaffold,
)
