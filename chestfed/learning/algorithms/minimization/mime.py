"""MIME: the server's momentum in every local step, and SVRG's correction of each batch's gradient.

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh: "Breaking the Centralized Barrier for Cross-Device Federated
Learning", NeurIPS 2021, Algorithm 1 with momentum SGD as the base: a step goes along (1 - beta) g + beta m, with
g = g_k(y; b) - g_k(x; b) + c on one batch b, m constant within a round, and c the mean of the clients' full gradients
at x, which they send before the local steps. MimeLite takes the batch's gradient as it is. The server's m then moves
by c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.learning.abilities import ANY_ROUND
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, Stateless, weighted_mean


@dataclass(frozen=True)
class State:
    """x, the momentum m, and c, the mean of the full gradients at x: 3d numbers down."""

    primal: Tensor
    dual: Tensor
    momentum: Tensor
    control: Tensor


@dataclass(frozen=True)
class Mime(LocalStepAlgorithm[State, State, Stateless]):
    """`window` steps of size `local_lr` with momentum `beta`; `lite`: without the correction of a batch's gradient."""

    window: int
    local_lr: float
    beta: float
    lite: bool = False

    def start_stage(self, point: Point) -> State:
        """Start without momentum."""
        zero = torch.zeros_like(point.primal)
        return State(point.primal, point.dual, zero, zero)

    def prepare(self, point: Point, gradients: Gradients) -> Point:
        """The client's full gradient at x: d numbers up before the local steps."""
        return Point(gradients.full(point.primal, point.dual)[0].clone(), point.dual[:0])

    def prepared(self, server: State, parts: Sequence[Point], weights: Sequence[float]) -> State:
        """C is their mean."""
        return replace(server, control=weighted_mean([part.primal for part in parts], weights))

    def client_step(self, local: State, message: State, client: Stateless, gradients: Gradients) -> None:
        """Y -= lr ((1 - beta) g + beta m), with g corrected on the same batch."""
        y = local.primal
        slope = gradients(y, message.dual)[0].clone()
        if not self.lite:
            slope += message.control - gradients.again(message.primal, message.dual)[0]
        y -= self.local_lr * ((1 - self.beta) * slope + self.beta * message.momentum)

    def client_final(self, local: State, message: State, client: Stateless) -> tuple[Point, Stateless]:  # type: ignore[override]
        """Y goes up."""
        return Point(local.primal, message.dual[:0]), client

    def server_round(self, server: State, updates: Sequence[Point], weights: Sequence[float]) -> State:  # type: ignore[override]
        """X is the mean of y; m = (1 - beta) c + beta m."""
        mean = weighted_mean([update.primal for update in updates], weights)
        momentum = (1 - self.beta) * server.control + self.beta * server.momentum
        return State(mean, server.dual, momentum, server.control)


class Options(plugins.Options):
    """Options of MIME."""

    momentum: float = Field(
        0.9, ge=0, lt=1, description="momentum [beta]", json_schema_extra={"search": [0.5, 0.99, "linear"]}
    )


def build(options: Options, setting: Setting) -> Mime:
    """The rule of one stage."""
    return Mime(setting.window, setting.local_lr, options.momentum)


def build_lite(options: Options, setting: Setting) -> Mime:
    """Without the correction."""
    return Mime(setting.window, setting.local_lr, options.momentum, lite=True)


MIME = AlgorithmSpec(
    name="mime",
    title="MIME",
    paper="Karimireddy et al., NeurIPS 2021",
    where="Algorithm 1, momentum SGD",
    takes=("minimization", "server-weighted"),
    sends="2d",
    sent="the full gradient, then w",
    exact="window 1",
    gradients="2I + F",
    options=Options,
    build=build,
    rule=Mime,
    can=ANY_ROUND,
)

MIME_LITE = replace(
    MIME,
    name="mime_lite",
    title="MimeLite",
    variant="mime, without the correction",
    gradients="I + F",
    build=build_lite,
    rule=None,
)
