"""Gossip SGD: local steps, then averaging with neighbors; the conventional decentralized method.

Synchronous, a node moves towards all neighbors at once with Metropolis weights 1 / (1 + max(E_i, E_j)), so that the
mean over the nodes is kept (Xiao, Boyd, Lall, IPSN 2005). Along a single edge (`pairwise`) the two nodes meet in the
middle (Boyd, Ghosh, Prabhakar, Shah, IEEE Transactions on Information Theory 52(6), 2006). With heterogeneous
nodes and a constant step size it stalls off the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from chestfed.leaves.decentralized.graph import DecentralizedOptions
from chestfed.leaves.decentralized.peers import on_graph
from chestfed.plugins import AlgorithmSpec, Gradients, PeerAlgorithm, Point, Setting


@dataclass(frozen=True)
class Node:
    """w_i `[d]`, and per neighbor the weight of its point `[E]`."""

    primal: Tensor
    dual: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Message:
    """w_i: d numbers per edge and direction."""

    primal: Tensor


@dataclass(frozen=True)
class Gossip(PeerAlgorithm[Node, Message]):
    """`window` local steps of size `lr` between two exchanges."""

    window: int
    lr: float
    pairwise: bool = False

    def start_node(self, point: Point, signs: Tensor, degrees: Tensor) -> Node:
        """Start at the common point."""
        largest = torch.clamp(degrees.to(point.primal), min=len(degrees))
        weights = torch.full_like(largest, 0.5) if self.pairwise else 1 / (1 + largest)
        return Node(point.primal, point.dual, weights)

    def local_round(self, node: Node, gradients: Gradients) -> Node:
        """`window` steps of stochastic gradient descent."""
        w = node.primal.clone()
        for _ in range(self.window):
            w -= self.lr * gradients(w, node.dual)[0]
        return Node(w, node.dual, node.weights)

    def message(self, node: Node, edge: int) -> Message:
        """The node's point."""
        return Message(node.primal)

    def exchange(self, node: Node, received: Mapping[int, Message]) -> Node:
        """Move towards the points received."""
        w = node.primal.clone()
        for edge, message in received.items():
            w += node.weights[edge] * (message.primal - node.primal)
        return Node(w, node.dual, node.weights)


def build(options: DecentralizedOptions, setting: Setting) -> Gossip:
    """The rule of the nodes."""
    return Gossip(setting.window, setting.local_lr, pairwise=options.exchange != "synchronous")


GOSSIP = AlgorithmSpec(
    name="gossip",
    title="gossip SGD",
    family="decentralized",
    paper="Xiao, Boyd, Lall, IPSN 2005; Boyd et al., IEEE TIT 2006",
    where="Metropolis weights; pairwise averaging",
    sent="along each edge w",
    options=DecentralizedOptions,
    build=build,
    rule=Gossip,
    note="off it in proportion to step and window",
    layout=on_graph,
)
