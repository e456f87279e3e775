"""Edge-consensus learning: PDMM-SGD and ADMM-SGD, decentralized, on a graph.

Niwa, Harada, Zhang, Kleijn: "Edge-consensus Learning: Deep Learning on P2P Networks with Nonhomogeneous Data",
KDD 2020.
Nodes i minimize the mean of their losses under w_i = w_j on every edge. Each edge carries a dual variable at either
end, z_ij; A_ij is +1 if i < j, else -1. In the names of the paper:

    U (local step)  w_i  <- (mu w_i - g_i + sum_j (eta A_ij z_ij + rho w_j)) / (mu + (eta + rho) E_i)
                    y_ij  = z_ij - 2 A_ij w_i
    X (exchange)    PDMM: z_ij <- y_ji        ADMM: z_ij <- (z_ij + y_ji) / 2

with g_i the gradient on a batch, 1/mu the step size, E_i the number of neighbors and w_j the point last received.
At a fixed point all w agree, the gradients sum to zero, and z_ij - z_ji = 2 A_ij w.

The published code divides eta and rho by E_i, which on a graph with unequal degrees leads to the wrong point, and
repeats ADMM's average at every local step; here eta and rho are the same at all nodes, and z changes once per exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from chestfed.leaves.decentralized.graph import DecentralizedOptions
from chestfed.leaves.decentralized.peers import on_graph
from chestfed.plugins import (
    AlgorithmSpec,
    ConfigError,
    Gradients,
    PeerAlgorithm,
    Point,
    Setting,
)


@dataclass(frozen=True)
class Node:
    """w_i `[d]`, per neighbor z_ij `[E, d]` and the w_j last received `[E, d]` (`[0, d]` without rho), A_ij `[E]`."""

    primal: Tensor
    dual: Tensor
    z: Tensor
    received: Tensor
    signs: Tensor


@dataclass(frozen=True)
class Message:
    """y_ij, and w_i if rho is above 0: d or 2d numbers per edge and direction."""

    y: Tensor
    primal: Tensor


def tuning_free_eta(rule: Literal["pdmm", "admm"], step: float, window: int, degree: int) -> float:
    """Eta that needs no tuning (Niwa et al., ICML 2021, ECL-ISVR), for step size 1/mu, window K and largest degree E.

    Raises
    ------
    ValueError
        If the formula has no positive value, as for ADMM with a window of 1.
    """
    once = window * degree + window
    below = once - degree if rule == "pdmm" else (once - 2 * degree) / 2
    if below <= 0:
        raise ValueError(f"eta has no tuning-free value for {rule} with window {window} and {degree} neighbors")
    return 1 / (step * below)


@dataclass(frozen=True)
class EdgeConsensus(PeerAlgorithm[Node, Message]):
    """PDMM-SGD or ADMM-SGD."""

    rule: Literal["pdmm", "admm"]  #: what an exchange does to z
    window: int  #: local steps between two exchanges
    mu: float  #: the inverse of the step size
    eta: float = 1.0  #: weight of the dual variables, the same at all nodes
    rho: float = 0.1  #: weight of the neighbors' points; 0 halves the traffic
    start: Literal["zero", "consensus"] = "zero"  #: the first z

    def start_node(self, point: Point, signs: Tensor, degrees: Tensor) -> Node:
        """Start at the common point w, with z = 0 or z_ij = A_ij w."""
        signs = signs.to(point.primal)
        z = signs[:, None] * (point.primal if self.start == "consensus" else torch.zeros_like(point.primal))
        known = point.primal.expand(len(signs) if self.rho > 0 else 0, -1).clone()
        return Node(point.primal, point.dual, z, known, signs)

    def local_round(self, node: Node, gradients: Gradients) -> Node:
        """`window` U steps."""
        w = node.primal.clone()
        pull = self.eta * (node.signs[:, None] * node.z).sum(dim=0) + self.rho * node.received.sum(dim=0)
        weight = self.mu + (self.eta + self.rho) * len(node.signs)
        for _ in range(self.window):
            gradient, _ = gradients(w, node.dual)
            w.copy_((self.mu * w - gradient + pull) / weight)
        return Node(w, node.dual, node.z, node.received, node.signs)

    def message(self, node: Node, edge: int) -> Message:
        """Message of the node along its edge number `edge`."""
        y = node.z[edge] - 2 * node.signs[edge] * node.primal
        return Message(y, node.primal if self.rho > 0 else node.primal[:0])

    def exchange(self, node: Node, received: Mapping[int, Message]) -> Node:
        """X step with what came along some of the node's edges."""
        z, known = node.z.clone(), node.received.clone()
        for edge, message in received.items():
            z[edge] = message.y if self.rule == "pdmm" else (z[edge] + message.y) / 2
            if self.rho > 0:
                known[edge] = message.primal
        return Node(node.primal, node.dual, z, known, node.signs)


class Options(DecentralizedOptions):
    """Options of PDMM-SGD and ADMM-SGD."""

    eta: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        1.0,
        description="weight of the dual variables; auto: the tuning-free formula",
        json_schema_extra={"search": [0.1, 10.0, "log"]},
    )
    rho: float = Field(
        0.1, ge=0, description="weight of the neighbors' points; with 0 they are not sent, which halves the traffic"
    )
    start: Literal["zero", "consensus"] = Field(
        "zero",
        description="the first dual variables. zero: as in the paper, which shrinks all weights in the first rounds; "
        "consensus: those with which the common starting point stays where it is without gradients",
    )


def build(rule: Literal["pdmm", "admm"], options: Options, setting: Setting) -> EdgeConsensus:
    """The rule of the nodes.

    Raises
    ------
    ConfigError
        If eta has no tuning-free value.
    """
    eta = options.eta
    if eta == "auto":
        try:
            eta = tuning_free_eta(rule, setting.local_lr, setting.window, setting.degree)
        except ValueError as error:
            raise ConfigError(f"eta: auto: {error}: set a number, or take a larger window") from None
    return EdgeConsensus(rule, setting.window, 1 / setting.local_lr, eta, options.rho, options.start)


def _sends(options: Options) -> str:
    return "2d" if options.rho > 0 else "d"


PDMM = AlgorithmSpec(
    name="pdmm",
    title="PDMM-SGD",
    family="decentralized",
    paper="Niwa et al., KDD 2020",
    where="the U and X steps, PDMM",
    sends=_sends,
    sent="along each edge y, with rho also w",
    exact="any window",
    options=Options,
    build=partial(build, "pdmm"),
    layout=on_graph,
)

ADMM = replace(
    PDMM,
    name="admm",
    title="ADMM-SGD",
    where="the U and X steps, ADMM",
    variant="pdmm, z averaged with its last value",
    build=partial(build, "admm"),
)
