"""Ditto: FedAvg, and beside it a point of each client that is pulled towards the server's.

Li, Hu, Beirami, Smith: "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1.
In each round a client makes its window of FedAvg's steps from w, and as many on F_k(v) + lambda/2 |v - w|^2 from its v,
each on the batch of FedAvg's step, where the paper draws others. The server's model is FedAvg's, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.learning.abilities import AVERAGING, Can
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, descend_


@dataclass(frozen=True)
class Client:
    """The client's own weights v."""

    own: Tensor


@dataclass(frozen=True)
class Ditto(LocalStepAlgorithm[Point, Point, Client]):
    """`window` steps of size `local_lr` of both points; `prox` is lambda."""

    window: int
    local_lr: float
    prox: float

    def start_client(self, point: Point) -> Client:
        """V starts where the stage does: at the client's own point, from the second stage on."""
        return Client(point.primal)

    def local_round(self, message: Point, client: Client, gradients: Gradients) -> tuple[Point, Client]:
        """FedAvg's steps on w, and the proximal ones on v."""
        w, v = message.primal.clone(), client.own.clone()
        for _ in range(self.window):
            gradient, _ = gradients(w, message.dual)
            descend_(w, self.local_lr, gradient)
            gradient, _ = gradients.again(v, message.dual)
            descend_(v, self.local_lr, gradient, prox=self.prox, reference=message.primal)
        return Point(w, message.dual[:0]), Client(v)

    def local_point(self, point: Point, client: Client) -> Point:
        """V."""
        return Point(client.own, point.dual)


class Options(plugins.Options):
    """Options of Ditto."""

    prox: float = Field(
        0.1,
        ge=0,
        description="coefficient of the pull of a client's weights towards the server's [lambda]",
        json_schema_extra={"search": [1e-2, 2.0, "log"]},
    )


def build(options: Options, setting: Setting) -> Ditto:
    """The rule of one stage."""
    return Ditto(setting.window, setting.local_lr, options.prox)


DITTO = AlgorithmSpec(
    name="ditto",
    title="Ditto",
    family="personal",
    paper="Li et al., ICML 2021",
    where="Algorithm 1",
    gradients="2I",
    options=Options,
    build=build,
    rule=Ditto,
    can=AVERAGING | {Can.OWN_POINTS, Can.SERVER_POINT},
)
