"""FedDyn. Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, Algorithm 1."""

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.plugins import AlgorithmSpec, LocalStepAlgorithm, Options, Point, weighted_mean


class FedDynOptions(Options):
    alpha: float = Field(0.1, gt=0, description="weight of the dynamic regularizer")


@dataclass(frozen=True)
class Server:
    primal: Tensor
    h: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Client:
    gradient: Tensor


@dataclass(frozen=True)
class FedDyn(LocalStepAlgorithm):
    window: int
    local_lr: float
    alpha: float

    def start_stage(self, point):
        return Server(point.primal, torch.zeros_like(point.primal), point.dual)

    def start_client(self, point):
        return Client(torch.zeros_like(point.primal))

    def message(self, server):  # what goes down: d numbers
        return Point(server.primal, server.dual)

    def client_step(self, local, message, client, gradients):
        w = local.primal
        gradient, _ = gradients(w, message.dual)
        w -= self.local_lr * (gradient - client.gradient + self.alpha * (w - message.primal))

    def client_final(self, local, message, client):
        update = Point(local.primal, message.dual[:0])  # what goes up: d numbers
        return update, Client(client.gradient - self.alpha * (local.primal - message.primal))

    def server_round(self, server, updates, weights):
        mean = weighted_mean([update.primal for update in updates], weights)
        h = server.h - self.alpha * (mean - server.primal)
        return Server(mean - h / self.alpha, h, server.dual)


FEDDYN = AlgorithmSpec(
    name="my_feddyn",
    title="FedDyn",
    family="minimization",
    paper="Acar et al., ICLR 2021",
    where="Algorithm 1",
    takes=("minimization",),
    objective="cross_entropy",
    sends="d",
    sent="w",
    exact="any window",
    options=FedDynOptions,
    build=lambda options, setting: FedDyn(setting.window, setting.local_lr, options.alpha),
    rule=FedDyn,
)
