"""The decentralized engine: the order of a round on a graph, whoever computes the nodes' part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal

import torch
from torch import Tensor

from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.learning.algorithms.variables import (
    Message,
    Node,
    PeerAlgorithm,
    Point,
    byte_count,
    from_named_tensors,
    mean_of,
    named_tensors,
)
from chestfed.learning.engines.engine import Engine, RoundRecord, refuse_outsized
from chestfed.learning.engines.fleet import Fleet
from chestfed.learning.engines.host import describe_edges
from chestfed.learning.engines.messages.requests import Steps, Take
from chestfed.learning.engines.topology import Graph
from chestfed.learning.exchange.statistics import spread

Schedule = Literal["synchronous", "random_edge", "round_robin"]


def refuse_running_statistics(number: int) -> None:
    """Raise ConfigError if a network has any."""
    if number:
        raise ConfigError(
            "without a server nobody averages running statistics (batch normalization). Choose a network without them; "
            "for a built-in one, set model.norm: group",
            kind="running statistics without a server",
        )


@dataclass(frozen=True)
class Peers:
    """What is known of all nodes between rounds: their points, and the number of finished rounds (int64 `[]`)."""

    points: tuple[Point, ...]
    rounds: Tensor
    buffers: Tensor
    turns: Tensor
    shared: Tensor


class PeerEngine(Engine[Peers], Generic[Node, Message]):
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
        self, algorithm: PeerAlgorithm[Node, Message], fleet: Fleet, graph: Graph, schedule: Schedule, seed: int
    ) -> None:
        if graph.nodes != len(fleet.names):
            raise ConfigError(
                f"the graph has {graph.nodes} nodes, and there are {len(fleet.names)} clients",
                kind="graph of another size",
                nodes=graph.nodes,
                clients=len(fleet.names),
            )
        super().__init__(fleet)
        self.algorithm, self.graph = algorithm, graph
        self._schedule, self._seed = schedule, seed
        self._neighbors = [graph.neighbors(node) for node in range(graph.nodes)]

    def start_stage(
        self, point: Point, buffers: Tensor, turns: Tensor | None = None, shared: Tensor | None = None
    ) -> Peers:
        """All nodes at the same point; nothing is shared."""
        refuse_running_statistics(buffers.numel())
        if point.dual.numel():
            raise ConfigError(
                f"{type(self.algorithm).__name__} minimizes and has no step for dual variables: take another objective",
                kind="no dual step",
            )
        turns = self.start_clients(point, turns)
        return Peers((point,) * self.graph.nodes, torch.zeros((), dtype=torch.int64), buffers, turns, buffers[:0])

    def run_round(self, state: Peers) -> tuple[Peers, RoundRecord]:
        """Local steps at every node, and one exchange; see `Engine.run_round`."""
        ends: list[list[tuple[int, int]]] = [[] for _ in self._neighbors]  # (edge, neighbor) that a node exchanges with
        for i, j in self._edges(int(state.rounds)):
            for node, other in ((i, j), (j, i)):
                ends[node].append((self._neighbors[node].index(other), other))
        edges = [tuple(edge for edge, _ in pairs) for pairs in ends]
        turns: list[int] = state.turns.tolist()
        work = self.fleet.ask_all(lambda node: Steps[Message](turns[node], state.buffers, edges[node]))
        sent = {
            (node, other): message
            for node, pairs in enumerate(ends)
            for (_, other), message in zip(pairs, work[node].messages, strict=True)
        }
        sizes: dict[str, float] = {}
        for (node, _), message in sent.items():
            size = sum(float(tensor.norm()) ** 2 for tensor in named_tensors(message).values()) ** 0.5
            sizes[self.fleet.names[node]] = max(size, sizes.get(self.fleet.names[node], 0.0))
        refuse_outsized(sizes, float(self.current(state).primal.norm()))
        taken = self.fleet.ask_all(
            lambda node: Take(turns[node], edges[node], tuple(sent[other, node] for _, other in ends[node]))
        )
        points, done = tuple(answer.point for answer in taken.values()), list(work.values())
        record = RoundRecord(
            sum(steps.gradients for steps in done),
            sum(steps.images for steps in done),
            bytes_up=sum(map(byte_count, sent.values())),
            bytes_down=0,
            loss=sum(steps.loss for steps in done) / len(done),
            drift=spread([point.primal for point in points]),
            gradient_drift=spread([steps.slope for steps in done]),
        )
        return Peers(points, state.rounds + 1, state.buffers, state.turns + 1, state.shared), record

    def _edges(self, number: int) -> Sequence[tuple[int, int]]:
        edges = self.graph.edges
        if self._schedule == "synchronous" or not edges:
            return edges
        if self._schedule == "round_robin":
            return [edges[number % len(edges)]]
        return [edges[int(numpy_stream(self._seed, "edge", number).integers(len(edges)))]]

    def current(self, state: Peers) -> Point:
        """The mean of the nodes' points, also what a stage returns."""
        return mean_of(state.points, [1 / len(state.points)] * len(state.points))

    def tensors(self, state: Peers) -> dict[str, Tensor]:
        return named_tensors(state) | self.fleet.exported(state.turns.tolist(), "node")

    def restored(self, tensors: Mapping[str, Tensor], like: Peers) -> Peers:
        state = from_named_tensors(like, tensors)
        blank = [
            self.algorithm.start_node(point, *describe_edges(self.graph, node))
            for node, point in enumerate(like.points)
        ]
        self.fleet.restore(tensors, "node", state.turns.tolist(), self.stage, blank)
        return state
