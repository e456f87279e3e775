"""FedAvgM (Hsu, Qi, Brown, arXiv 1909.06335): momentum at the server; here also at each client, of its own."""

from dataclasses import dataclass

import torch
from pydantic import Field

from chestfed.plugins import AlgorithmSpec, LocalStepAlgorithm, Options, Point, weighted_mean


class MomentumOptions(Options):
    server: float = Field(0.5, ge=0, lt=1, description="momentum of the server")
    client: float = Field(0.5, ge=0, lt=1, description="momentum of a client")


@dataclass(frozen=True)
class Server:
    """Kept by the server; the clients get a `Point`, without the velocity."""

    primal: torch.Tensor
    velocity: torch.Tensor
    dual: torch.Tensor


@dataclass(frozen=True)
class Client:
    """Kept by each client, sent to nobody."""

    velocity: torch.Tensor


@dataclass(frozen=True)
class Momentum(LocalStepAlgorithm):
    window: int
    local_lr: float
    server: float
    client: float

    def start_stage(self, point):
        return Server(point.primal, torch.zeros_like(point.primal), point.dual)

    def start_client(self, point):
        return Client(torch.zeros_like(point.primal))

    def message(self, server):
        return Point(server.primal, server.dual)

    def local_round(self, message, client, gradients):
        primal, velocity = message.primal.clone(), client.velocity
        for _ in range(self.window):
            gradient, _ = gradients(primal, message.dual)
            velocity = self.client * velocity + (1 - self.client) * gradient
            primal.sub_(velocity, alpha=self.local_lr)
        return Point(primal, message.dual[:0]), Client(velocity)

    def server_round(self, server, updates, weights):
        change = weighted_mean([update.primal for update in updates], weights) - server.primal
        velocity = self.server * server.velocity + change
        return Server(server.primal + velocity, velocity, server.dual)


MOMENTUM = AlgorithmSpec(
    name="momentum",
    title="FedAvgM with momentum at the clients",
    paper="Hsu et al., 2019",
    where="server momentum",
    options=MomentumOptions,
    build=lambda options, setting: Momentum(setting.window, setting.local_lr, options.server, options.client),
    rule=Momentum,
)
