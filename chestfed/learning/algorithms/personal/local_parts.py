"""A part of the weights stays at each client: FedPer and FedRep (the classifier), FedBN (normalization layers).

FedPer: Arivazhagan, Aggarwal, Singh, Choudhary, "Federated Learning with Personalization Layers", 2019, Algorithm 1.
FedRep: Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated
Learning", ICML 2021, Algorithm 1: first `head_steps` of the head alone, then the window's of the body alone (in the
paper's pseudocode one). FedBN: Li, Jiang, Zhang, Kamp, Dou, "FedBN", ICLR 2021, Algorithm 1; running
statistics are each hospital's own anyway (docs/algorithms.md). What is shared is averaged; the rest is never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.core.errors import ConfigError
from chestfed.learning.abilities import AVERAGING, Can
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import (
    Algorithm,
    Gradients,
    Point,
    complement,
    select,
    weighted_mean,
    with_parts,
)


@dataclass(frozen=True)
class Shared:
    """The shared weights `[d - own]`, and the dual variables, which are the server's: none go up."""

    primal: Tensor
    dual: Tensor


@dataclass(frozen=True)
class Client:
    """The weights that stay here."""

    own: Tensor


@dataclass(frozen=True)
class LocalParts(Algorithm[Point, Shared, Client]):
    """`window` steps on all weights; with `head_steps`, so many on the own ones first, the window's on the others."""

    window: int
    local_lr: float
    own: tuple[slice, ...]
    head_steps: int = 0

    def start_client(self, point: Point) -> Client:
        """Start with the own part of the point."""
        return Client(select(point.primal, self.own))

    def message(self, server: Point) -> Shared:
        """The shared weights."""
        return Shared(select(server.primal, complement(self.own, len(server.primal))), server.dual)

    def local_round(self, message: Shared, client: Client, gradients: Gradients) -> tuple[Shared, Client]:
        """Local steps from the shared weights and the own ones."""
        size = len(message.primal) + len(client.own)
        shared = complement(self.own, size)
        w = with_parts(with_parts(message.primal.new_empty(size), shared, message.primal), self.own, client.own)
        body = shared if self.head_steps else (slice(0, size),)
        for parts in [self.own] * self.head_steps + [body] * self.window:
            gradient, _ = gradients(w, message.dual)
            for part in parts:
                w[part] -= self.local_lr * gradient[part]
        return Shared(select(w, shared), message.dual[:0]), Client(select(w, self.own))

    def server_round(self, server: Point, updates: Sequence[Shared], weights: Sequence[float]) -> Point:
        """The mean of the shared weights; the server's copy of the others stays as it began."""
        mean = weighted_mean([update.primal for update in updates], weights)
        return Point(with_parts(server.primal, complement(self.own, len(server.primal)), mean), server.dual)

    def local_point(self, point: Point, client: Client) -> Point:
        """The shared weights of the server with the client's own."""
        return Point(with_parts(point.primal, self.own, client.own), point.dual)


class RepOptions(plugins.Options):
    """Options of FedRep."""

    head_steps: int = Field(
        8, ge=1, description="steps of the classifier alone at the start of a round; the window's are the body's [tau]"
    )


def build(options: plugins.Options, setting: Setting, group: str) -> LocalParts:
    """The rule of one stage, with a group of the weights that stays at the clients.

    Raises
    ------
    ConfigError
        If the network has no such weights.
    """
    personal_slices = setting.groups[group]
    if not personal_slices:
        text = f"name: the network has no weights of {group} to keep at the clients; take fedavg"
        raise ConfigError(text, kind="nothing to keep", group=group)
    return LocalParts(setting.window, setting.local_lr, personal_slices, getattr(options, "head_steps", 0))


FEDPER = AlgorithmSpec(
    name="fedper",
    title="FedPer",
    family="personal",
    paper="Arivazhagan et al., 2019",
    where="Algorithm 1",
    sends="d - C",
    sent="all weights but the classifier",
    build=partial(build, group="classifier"),
    rule=LocalParts,
    can=AVERAGING | {Can.OWN_POINTS},
)

FEDREP = replace(
    FEDPER,
    name="fedrep",
    title="FedRep",
    variant="fedper, the head trained before the body",
    paper="Collins et al., ICML 2021",
    options=RepOptions,
    gradients=lambda options: f"I + {options.head_steps}",
    rule=None,
)

FEDBN = replace(
    FEDPER,
    name="fedbn",
    title="FedBN",
    variant="fedper, normalization layers in place of the classifier",
    paper="Li et al., ICLR 2021",
    sends="d - N",
    sent="all weights but those of normalization layers",
    build=partial(build, group="normalization"),
    rule=None,
)
