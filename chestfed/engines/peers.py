"""The decentralized engine: nodes of a graph in this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from chestfed.algorithms.variables import PeerAlgorithm, Point, byte_count, mean_of
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.engines.engine import Client, Engine, RoundRecord, spread
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


class PeerEngine(Engine):
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
        super().__init__(algorithm, clients)
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

    def run_round(self, state: Peers) -> tuple[Peers, RoundRecord]:
        """Local steps at every node, and one exchange; see `Engine.run_round`."""
        work = self.local_work(
            state.nodes,
            state.buffers,
            lambda client, node: self.algorithm.local_round(node, client.oracle),
            lambda node: (self.algorithm.current(node).primal,),
            "node '{}': its point",
        )
        received: list[dict[int, Any]] = [{} for _ in work.results]
        sent = 0
        for i, j in self._edges(int(state.rounds)):
            for node, other in ((i, j), (j, i)):
                edge = self._neighbors[node].index(other)
                message = self.algorithm.message(work.results[other], self._neighbors[other].index(node))
                received[node][edge] = message
                sent += byte_count(message)
        nodes = tuple(map(self.algorithm.exchange, work.results, received))
        record = RoundRecord(
            work.gradients,
            work.images,
            bytes_up=sent,
            bytes_down=0,
            loss=sum(work.losses) / len(work.losses),
            drift=spread([self.algorithm.current(node).primal for node in nodes]),
            gradient_drift=spread(work.slopes),
        )
        return Peers(nodes, state.rounds + 1, state.buffers), record

    def _edges(self, number: int) -> Sequence[tuple[int, int]]:
        edges = self.graph.edges
        if self._schedule == "synchronous" or not edges:
            return edges
        if self._schedule == "round_robin":
            return [edges[number % len(edges)]]
        return [edges[int(numpy_stream(self._seed, "edge", number).integers(len(edges)))]]

    def current(self, state: Peers) -> Point:
        """The mean of the nodes' points, also what a stage returns."""
        points = [self.algorithm.current(node) for node in state.nodes]
        return mean_of(points, [1 / len(points)] * len(points))
