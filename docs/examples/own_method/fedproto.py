"""FedProto: clients send the mean features of their classes, no weights. Tan et al., AAAI 2022, Algorithm 1.

The prototypes are the objective's own variables c `[2, J, f + 1]`, beside the weights: a mean of features per class and
disease, and a last number, which is 0 as long as there is no prototype. Features get a last 1, whose distance moves no
weight. A full pass with c = (0, ..., 0, 2) then has, by c, a gradient of (-sum of features, number of images) per class
times one factor: local prototypes (eq. 3), and what the server weighs them by (eq. 6), without a look at labels.
The distance is the squared one of single images, as in the authors' code, where eq. 5 has that of the means.
"""

from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch.nn import functional

from chestfed.plugins import (
    Algorithm,
    AlgorithmSpec,
    Can,
    ConfigError,
    CrossEntropy,
    ObjectiveSpec,
    Options,
    Point,
    weighted_mean,
)


class FedProtoOptions(Options):
    weight: float = Field(1.0, gt=0, description="of the distance to the prototypes [lambda]")
    features: int = Field(ge=1, description="inputs of the network's last linear layer")


@dataclass(frozen=True)
class Prototypes:
    plain: Any
    weight: float
    diseases: int
    features: int
    dual_size: int = 0
    models: tuple = ()

    @property
    def extra_size(self):
        return 2 * self.diseases * (self.features + 1)

    def loss(self, logits, labels, extra, dual):
        return self.plain.loss(logits, labels, extra[:0], dual)

    def seen_loss(self, logits, labels, extra, dual, seen):
        if seen.features.shape[1] != self.features:
            raise ConfigError(f"objective.features: the network has {seen.features.shape[1]}, not {self.features}")
        c = extra.view(2, 1, self.diseases, self.features + 1)
        z = functional.pad(seen.features, (0, 1), value=1.0)[:, None]  # [n, 1, f + 1]
        distances = (z - c).square().mean(dim=-1) * (c[..., -1] > 0)  # [2, n, J]
        own = torch.where(labels == 1, distances[0], torch.where(labels == 0, distances[1], 0.0))
        return self.loss(logits, labels, extra, dual) + self.weight * own.mean()


@dataclass(frozen=True)
class Message:
    """Of the server: the prototypes. Of a client: minus its sums of features, and its numbers of images, `[2C]`."""

    primal: torch.Tensor
    dual: torch.Tensor


@dataclass(frozen=True)
class Client:
    own: torch.Tensor  #: weights, which stay here


@dataclass(frozen=True)
class FedProto(Algorithm):
    window: int
    local_lr: float
    diseases: int
    size: int  #: numbers in the prototypes

    def start_client(self, point):
        return Client(point.primal[: -self.size])

    def message(self, server):
        return Message(server.primal[-self.size :], server.dual)

    def local_round(self, message, client, gradients):
        primal = torch.cat([client.own, message.primal])
        w, c = primal[: -self.size], primal[-self.size :]
        for _ in range(self.window):
            gradient, _ = gradients(primal, message.dual)
            w -= self.local_lr * gradient[: -self.size]
        own, rows = w.clone(), c.view(2 * self.diseases, -1)
        rows[:, :-1], rows[:, -1] = 0.0, 2.0
        gradient, _ = gradients.full(primal, message.dual)
        return Message(gradient[-self.size :], message.dual), Client(own)

    def server_round(self, server, updates, weights):
        rows = weighted_mean([update.primal for update in updates], weights).view(2 * self.diseases, -1)
        seen = rows[:, -1:] > 0  # a class that no client has gets no prototype
        means = torch.where(seen, -rows / torch.where(seen, rows[:, -1:], 1.0), 0.0)
        c = torch.cat([means[:, :-1], seen.to(means)], dim=1)
        return Point(torch.cat([server.primal[: -self.size], c.flatten()]), server.dual)

    def local_point(self, point, client):
        return Point(torch.cat([client.own, point.primal[-self.size :]]), point.dual)


PROTOTYPES = ObjectiveSpec(
    name="prototypes",
    text="cross-entropy, and the distance of features to prototypes",
    paper="Tan et al., AAAI 2022",
    kind="prototypes",
    options=FedProtoOptions,
    build=lambda options, population: Prototypes(
        CrossEntropy(population.own_labeled), options.weight, population.diseases, options.features
    ),
    rule=Prototypes,
    draws=False,
)

FEDPROTO = AlgorithmSpec(
    name="fedproto",
    title="FedProto",
    paper="Tan et al., AAAI 2022",
    where="Algorithm 1",
    family="personal",
    takes=("prototypes",),
    objective="fedproto:PROTOTYPES",
    sends="2C",
    sent="sums of features per class, and numbers of images",
    gradients="I + F",
    build=lambda options, setting: FedProto(
        setting.window,
        setting.local_lr,
        setting.positive_ratio.shape[-1],
        2 * sum(part.stop - part.start for part in setting.groups["classifier"]),
    ),
    rule=FedProto,
    can=frozenset({Can.OWN_POINTS}),
)
