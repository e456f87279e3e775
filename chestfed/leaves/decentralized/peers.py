"""The rounds of nodes on a graph: their order, what is asked of a node, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from chestfed.leaves.decentralized.graph import DecentralizedOptions, Graph, Schedule, build_graph
from chestfed.plugins import (
    ConfigError,
    Engine,
    Fleet,
    Layout,
    Located,
    OwnRequest,
    PeerAlgorithm,
    Place,
    Point,
    RoundRecord,
    TrainingError,
    WireError,
    byte_count,
    find_norm,
    from_named_tensors,
    mean_of,
    named_tensors,
    numpy_stream,
    refuse_outsized,
    refuse_running_statistics,
    spread,
)

Message = TypeVar("Message", bound=Any)
State = TypeVar("State", bound=Any)


@dataclass(frozen=True)
class Stepped(Generic[Message]):
    """Messages of a node after its local steps, one per edge."""

    messages: tuple[Message, ...]
    slope: Tensor
    loss: float
    gradients: int
    images: int


@dataclass(frozen=True)
class Steps(OwnRequest[Stepped[Message]]):
    """A node's local steps; it sends along these of its edges. `Take` ends the turn."""

    trains: ClassVar[bool] = True

    after: int
    buffers: Tensor
    edges: tuple[int, ...]

    def answer(self, host: Any) -> Stepped[Message]:
        """The local steps; the state after them waits for `Take`."""
        client = host.client
        with host.running(self.after, self.buffers) as run:
            host.drop_before(self.after)
            host.arrived = {}
            node = host.rule.local_round(run.state, client.oracle)
        host.refuse_not_finite([host.rule.current(node).primal], f"node '{client.name}': its point")
        host.stepped = {self.after: host.snapshot(node)}
        messages = tuple(host.rule.message(node, edge) for edge in self.edges)
        return Stepped(messages, client.mean_gradient(), client.mean_loss(), run.gradients, run.images)

    @classmethod
    def blank(cls, shapes: Any, plain: Mapping[str, object], sender: str) -> Steps[Message]:
        """Along the edges that it names."""
        return cls(0, shapes.no_buffers, read_edge_numbers(shapes, plain, sender, "Steps"))

    def blank_answer(self, shapes: Any) -> Stepped[Message]:
        """A message per edge."""
        messages = (shapes.edge_message,) * len(self.edges)
        return Stepped(messages, shapes.point.primal, 0.0, 0, 0)


@dataclass(frozen=True)
class Take(OwnRequest[Located], Generic[Message]):
    """Messages that came along these edges, after the `Steps` from the same turn. A turn.

    The node takes what has arrived from neighbors' hosts too.
    """

    is_turn: ClassVar[bool] = True

    after: int
    edges: tuple[int, ...]
    messages: tuple[Message, ...]

    def answer(self, host: Any) -> Located:
        """The node takes the messages."""
        if self.after not in host.stepped:
            raise TrainingError(f"node '{host.client.name}' has made no local steps from turn {self.after}")
        stepped = host.stepped[self.after]
        received = dict(zip(self.edges, self.messages, strict=True)) | host.arrived
        host.arrived = {}
        node = host.rule.exchange(stepped.state, received)
        host.snapshots[self.after + 1] = replace(stepped, state=node)
        return Located(host.rule.current(node))

    @classmethod
    def blank(cls, shapes: Any, plain: Mapping[str, object], sender: str) -> Take[Message]:
        """With a message along each edge that it names."""
        edges = read_edge_numbers(shapes, plain, sender, "Take")
        return cls(0, edges, (shapes.edge_message,) * len(edges))

    def blank_answer(self, shapes: Any) -> Located:
        """The node's point."""
        return Located(shapes.blank_rule.current(shapes.state))


def read_edge_numbers(shapes: Any, plain: Mapping[str, object], sender: str, name: str) -> tuple[int, ...]:
    """The numbers of edges in the plain fields of a request.

    Raises
    ------
    WireError
        If they are not different edges of the node.
    """
    value, degree = plain.get("edges", []), shapes.place.degree
    edges: tuple[int, ...] = tuple(value) if isinstance(value, list | tuple) else (-1,)
    if not all(type(edge) is int and 0 <= edge < degree for edge in edges) or len(set(edges)) < len(edges):
        raise WireError(
            f"{sender}: {name} names edges that the node does not have", kind="unknown edges", sender=sender
        )
    return edges


@dataclass(frozen=True)
class Node(Place):
    """A node of the graph."""

    graph: Graph
    number: int

    requests: ClassVar[Mapping[str, type[OwnRequest[Any]]]] = {"Steps": Steps, "Take": Take}

    @property
    def degree(self) -> int:
        """Its edges."""
        return self.graph.degree(self.number)

    def start(self, rule: Any, point: Point) -> Any:
        """The node's state: per neighbor it gets +1 if it has the larger number, else -1, and its degree, `[E]`."""
        neighbors = self.graph.neighbors(self.number)
        signs = torch.tensor([1.0 if self.number < other else -1.0 for other in neighbors])
        return rule.start_node(point, signs, torch.tensor([float(self.graph.degree(other)) for other in neighbors]))


@dataclass(frozen=True)
class GraphLayout(Layout):
    """A graph, and which of its edges exchange after a round of local steps."""

    graph: Graph
    schedule: Schedule = "synchronous"

    @property
    def degree(self) -> int:
        """The largest number of neighbors."""
        return max((self.graph.degree(node) for node in range(self.graph.nodes)), default=0)

    @property
    def messages(self) -> int:
        """Two per edge that exchanges."""
        edges = len(self.graph.edges)
        return 2 * (edges if self.schedule == "synchronous" else min(1, edges))

    def place(self, number: int) -> Node:
        """The node of a client."""
        return Node(self.graph, number)

    def count_bytes(self, rule: Any, point: Point) -> int:
        """Count the bytes of a node, on average."""
        scalar = torch.zeros(1)
        node = rule.start_node(Point(point.primal, point.primal[:0]), scalar, scalar)
        return self.messages * byte_count(rule.message(node, 0)) // self.graph.nodes

    def engine(self, rule: Any, fleet: Fleet, seed: int) -> PeerEngine[Any, Any]:
        """The rounds of a rule."""
        return PeerEngine(rule, fleet, self.graph, self.schedule, seed)


def on_graph(options: Any, clients: int) -> GraphLayout:
    """The layout that these options describe.

    Raises
    ------
    ConfigError
        If they describe no connected graph of so many clients.
    """
    if not isinstance(options, DecentralizedOptions):
        raise ConfigError(f"{options.name} is on a graph: its Options must be DecentralizedOptions")
    return GraphLayout(build_graph(options.topology, clients), options.exchange)


@dataclass(frozen=True)
class Peers:
    """State of all nodes between rounds: their points, and the number of finished rounds (int64 `[]`)."""

    points: tuple[Point, ...]
    rounds: Tensor
    buffers: Tensor
    turns: Tensor
    shared: Tensor


class PeerEngine(Engine[Peers], Generic[State, Message]):
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
        self, algorithm: PeerAlgorithm[State, Message], fleet: Fleet, graph: Graph, schedule: Schedule, seed: int
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
        routes = [  # in the order in which each node takes its messages
            (other, self._neighbors[other].index(node), node, edge)
            for node, pairs in enumerate(ends)
            for edge, other in pairs
        ]
        turns: list[int] = state.turns.tolist()
        if self.fleet.carries:
            ends = [[] for _ in ends]  # no message comes here
        edges = [tuple(edge for edge, _ in pairs) for pairs in ends]
        work = self.fleet.ask_all(lambda node: Steps[Message](turns[node], state.buffers, edges[node]))
        sent = {
            (node, other): message
            for node, pairs in enumerate(ends)
            for (_, other), message in zip(pairs, work[node].messages, strict=True)
        }
        if self.fleet.carries:
            costs = self.fleet.carry(turns, routes)
        else:
            messages = [sent[source, target] for source, _, target, _ in routes]
            costs = [(find_norm(message), byte_count(message)) for message in messages]
        sizes: dict[str, float] = {}
        for (node, *_), (size, _) in zip(routes, costs, strict=True):
            sizes[self.fleet.names[node]] = max(size, sizes.get(self.fleet.names[node], 0.0))
        refuse_outsized(sizes, float(self.current(state).primal.norm()))
        taken = self.fleet.ask_all(
            lambda node: Take(turns[node], edges[node], tuple(sent[other, node] for _, other in ends[node]))
        )
        points, done = tuple(answer.point for answer in taken.values()), list(work.values())
        record = RoundRecord(
            sum(steps.gradients for steps in done),
            sum(steps.images for steps in done),
            bytes_up=sum(count for _, count in costs),
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
        blank = [Node(self.graph, node).start(self.algorithm, point) for node, point in enumerate(like.points)]
        self.fleet.restore(tensors, "node", state.turns.tolist(), self.stage, blank)
        return state
