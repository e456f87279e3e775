"""The decentralized engine: nodes of a graph in this process, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from chestfed.algorithms.variables import (
    PeerAlgorithm,
    Point,
    byte_count,
    from_named_tensors,
    named_tensors,
    weighted_mean,
)
from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.randomness import numpy_stream
from chestfed.engines.in_process import Client, RoundRecord, StageEnd, spread
from chestfed.engines.topology import Graph

Schedule = Literal["synchronous", "random_edge", "round_robin"]


def refuse_running_statistics(number: int) -> None:
    """Raise ConfigError if a network has any."""
    if number:
        raise ConfigError(
            "without a server nobody averages running statistics (batch normalization). Choose a network without them; "
            "for a built-in one, set model.norm: group"
        )


@dataclass(frozen=True)
class Peers:
    """Everything that is kept between rounds: the nodes' states, and the number of finished rounds (int64 `[]`)."""

    nodes: tuple[Any, ...]
    rounds: Tensor
    buffers: Tensor


class PeerEngine:
    """Runs local steps at every node, then exchanges along edges.

    Parameters
    ----------
    schedule
        Which edges exchange after a round of local steps: all at once; one drawn at random, as in an asynchronous
        network; or one after the other in turn.
    seed
        Of the random edges, which depend on it and on the round's number only.
    """

    def __init__(
        self, algorithm: PeerAlgorithm, clients: Sequence[Client], graph: Graph, schedule: Schedule, seed: int
    ) -> None:
        if graph.nodes != len(clients):
            raise ConfigError(f"the graph has {graph.nodes} nodes, and there are {len(clients)} clients")
        self.algorithm = algorithm
        self.clients = clients
        self.graph = graph
        self._schedule = schedule
        self._seed = seed
        self._neighbors = [graph.neighbors(node) for node in range(graph.nodes)]

    def start_stage(self, point: Point, buffers: Tensor) -> Peers:
        """All nodes at the same point.

        Raises
        ------
        ConfigError
            If the network has running statistics, which no server averages, or the objective has dual variables.
        """
        refuse_running_statistics(buffers.numel())
        if point.dual.numel():
            raise ConfigError(
                f"{type(self.algorithm).__name__} minimizes and has no step for dual variables: take another objective"
            )
        nodes = []
        for node, neighbors in enumerate(self._neighbors):
            signs = torch.tensor([1.0 if node < other else -1.0 for other in neighbors])
            degrees = torch.tensor([float(self.graph.degree(other)) for other in neighbors])
            nodes.append(self.algorithm.start_node(point, signs, degrees))
        return Peers(tuple(nodes), torch.zeros((), dtype=torch.int64), buffers)

    def run_round(self, peers: Peers) -> tuple[Peers, RoundRecord]:
        """Local steps at every node, and one exchange.

        Raises
        ------
        TrainingError
            If a node's point is not finite; the peers given stay as they were.
        """
        images_before = sum(client.images_seen for client in self.clients)
        gradients_before = sum(client.gradients_computed for client in self.clients)
        nodes, losses, slopes = [], [], []
        for client, node in zip(self.clients, peers.nodes, strict=True):
            with client.training(peers.buffers):
                new = self.algorithm.local_round(node, client.oracle)
            if not torch.isfinite(self.algorithm.current(new).primal).all():
                raise TrainingError(
                    f"node '{client.name}': its point is not finite (NaN or infinity) after {self.algorithm.window} "
                    "local steps. Lower federated.local_lr or federated.window; the last saved round is kept."
                )
            nodes.append(new)
            losses.append(client.mean_loss())
            slopes.append(client.mean_gradient())

        received: list[dict[int, Any]] = [{} for _ in nodes]
        sent = 0
        for i, j in self._edges(int(peers.rounds)):
            at_i, at_j = self._neighbors[i].index(j), self._neighbors[j].index(i)
            received[i][at_i] = self.algorithm.message(nodes[j], at_j)
            received[j][at_j] = self.algorithm.message(nodes[i], at_i)
            sent += byte_count(received[i][at_i]) + byte_count(received[j][at_j])
        nodes = [self.algorithm.exchange(node, messages) for node, messages in zip(nodes, received, strict=True)]

        record = RoundRecord(
            gradients=sum(client.gradients_computed for client in self.clients) - gradients_before,
            images=sum(client.images_seen for client in self.clients) - images_before,
            bytes_up=sent,
            bytes_down=sent,
            loss=sum(losses) / len(losses),
            drift=spread([self.algorithm.current(node).primal for node in nodes]),
            gradient_drift=spread(slopes),
        )
        return Peers(tuple(nodes), peers.rounds + 1, peers.buffers), record

    def _edges(self, number: int) -> Sequence[tuple[int, int]]:
        edges = self.graph.edges
        if self._schedule == "synchronous" or not edges:
            return edges
        if self._schedule == "round_robin":
            return [edges[number % len(edges)]]
        return [edges[int(numpy_stream(self._seed, "edge", number).integers(len(edges)))]]

    def tensors(self, peers: Peers) -> dict[str, Tensor]:
        """Everything that is kept, by name: what a checkpoint stores."""
        named = {
            f"node.{index}.{name}": tensor
            for index, node in enumerate(peers.nodes)
            for name, tensor in named_tensors(node).items()
        }
        return named | {"rounds": peers.rounds, "buffers": peers.buffers}

    def restored(self, tensors: Mapping[str, Tensor], like: Peers) -> Peers:
        """The inverse of `tensors`."""
        nodes = []
        for index, node in enumerate(like.nodes):
            own = named_tensors(node)
            values = {name: tensors[f"node.{index}.{name}"].to(own[name].device) for name in own}
            nodes.append(from_named_tensors(type(node), values))
        return Peers(tuple(nodes), tensors["rounds"], tensors["buffers"].to(like.buffers.device))

    def current(self, peers: Peers) -> Point:
        """The mean of the nodes' points, the one to evaluate."""
        points = [self.algorithm.current(node) for node in peers.nodes]
        share = [1 / len(points)] * len(points)
        return Point(
            weighted_mean([point.primal for point in points], share),
            weighted_mean([point.dual for point in points], share),
        )

    def finish_stage(self, peers: Peers) -> StageEnd:
        """The mean of the nodes' points; nothing more is sent."""
        return StageEnd(self.current(peers), 0, 0, 0)

    def restart(self, point: Point, buffers: Tensor) -> StageEnd:
        """A further stage starts at the point that the one before it returned; nothing is sent."""
        return StageEnd(point, 0, 0, 0)
