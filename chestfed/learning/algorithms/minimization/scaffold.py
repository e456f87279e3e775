"""SCAFFOLD: stochastic controlled averaging for a minimization.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: ICML 2020, Algorithm 1 with option II; with `clients_per_round` some of
the clients take part. CODASCA is the same idea on both sides of a saddle point.

The paper has no stages: with `stages` above 1 the control variates start from zero at each. `stages: 1` is the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from chestfed.learning.abilities import ANY_ROUND
from chestfed.learning.algorithms.declaration import AlgorithmSpec, ServerStepOptions, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, mean_of


@dataclass(frozen=True)
class State:
    """x and the control variate c, the clients' mean: 2d numbers down.

    A client sends up the changes of y_i and c_i: 2d numbers. The dual variables are the server's: none go up.
    """

    primal: Tensor
    control: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Client:
    """The client's control variate c_i."""

    control: Tensor


@dataclass(frozen=True)
class Scaffold(LocalStepAlgorithm[State, State, Client]):
    """`window` local steps of size `local_lr`, then a server step of size `server_lr`."""

    window: int
    local_lr: float
    server_lr: float = 1.0

    def start_stage(self, point: Point) -> State:
        """Start with c = 0."""
        return State(point.primal, torch.zeros_like(point.primal), point.dual)

    def start_client(self, point: Point) -> Client:
        """Start with c_i = 0."""
        return Client(torch.zeros_like(point.primal))

    def client_step(self, local: State, message: State, client: Client, gradients: Gradients) -> None:
        """A step along g - c_i + c (line 10)."""
        y = local.primal
        gradient, _ = gradients(y, message.dual)
        y -= self.local_lr * (gradient - client.control + message.control)

    def client_final(self, local: State, message: State, client: Client) -> tuple[State, Client]:
        """The changes of y and c_i, by option II of line 12."""
        y, steps = local.primal, self.window * self.local_lr
        control = client.control - message.control + (message.primal - y) / steps
        return State(y - message.primal, control - client.control, message.dual[:0]), Client(control)

    def server_round(self, server: State, updates: Sequence[State], weights: Sequence[float]) -> State:
        """Add the mean changes (lines 16 and 17)."""
        return self.partial_round(server, updates, weights, 1.0)

    def partial_round(self, server: State, updates: Sequence[State], weights: Sequence[float], share: float) -> State:
        """Add the mean changes: c moves by that of all N clients, of which |S| are not zero; `share` is |S|/N."""
        mean = mean_of(updates, weights)
        return State(server.primal + self.server_lr * mean.primal, server.control + share * mean.control, server.dual)


def build(options: ServerStepOptions, setting: Setting) -> Scaffold:
    """The rule of one stage."""
    return Scaffold(setting.window, setting.local_lr, options.server_step_size(setting))


SCAFFOLD = AlgorithmSpec(
    name="scaffold",
    title="SCAFFOLD",
    paper="Karimireddy et al., ICML 2020",
    where="Algorithm 1, option II",
    takes=("minimization", "server-weighted"),
    sends="2d",
    sent="the changes of w and c",
    exact="any window",
    options=ServerStepOptions,
    build=build,
    rule=Scaffold,
    can=ANY_ROUND,
)
