"""The decentralized engine: schedules, accounting, refusals, and going on from a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.learning.algorithms.variables import Point, from_named_tensors, named_tensors
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.leaves.decentralized.edge_consensus import EdgeConsensus
from chestfed.leaves.decentralized.gossip import Gossip
from chestfed.leaves.decentralized.graph import Schedule, build_graph
from chestfed.leaves.decentralized.peers import GraphLayout, PeerEngine, Peers
from tests.cases import assert_refused
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient

NONE = torch.zeros(0, dtype=torch.float64)
PDMM = EdgeConsensus("pdmm", 3, 8.0)


def engine(method: object, nodes: int = 4, schedule: Schedule = "synchronous", poison: int | None = None) -> PeerEngine:
    problems = saddle.heterogeneous(nodes, dimension=6, duals=0)
    clients = [QuadraticClient(f"n{i}", p, poison if i == 1 else None, buffers=0) for i, p in enumerate(problems)]
    graph = build_graph("ring", nodes)
    return PeerEngine(method, LocalFleet.of(clients, method, GraphLayout(graph)), graph, schedule, seed=3)  # type: ignore[arg-type]


def start(peers: PeerEngine) -> Peers:
    return peers.start_stage(Point(torch.linspace(-1.5, 2, 6, dtype=torch.float64), NONE), NONE)


@pytest.mark.parametrize(
    ("method", "numbers"),
    [(EdgeConsensus("pdmm", 3, 8.0, rho=0.0), 6), (EdgeConsensus("admm", 3, 8.0, rho=0.1), 12), (Gossip(3, 0.1), 6)],
)
def test_bytes_are_d_or_2d_per_edge(method: object, numbers: int) -> None:
    whole, single = engine(method), engine(method, schedule="random_edge")
    _, record = whole.run_round(start(whole))
    assert record.bytes_up == 4 * 2 * numbers * 8  # on a ring every node has two edges
    assert record.bytes_down == 0  # what a node sends along an edge is sent once
    assert (record.gradients, record.images) == (12, 12 * 7)
    _, record = single.run_round(start(single))
    assert (record.bytes_up, record.bytes_down) == (2 * numbers * 8, 0)


def test_edges_take_turns_or_follow_the_seed() -> None:
    turns, drawn = engine(PDMM, schedule="round_robin"), engine(PDMM, schedule="random_edge")
    assert [turns._edges(number) for number in range(4)] == [[edge] for edge in turns.graph.edges]
    assert [drawn._edges(n) for n in range(20)] == [drawn._edges(n) for n in range(20)]
    assert {edge for n in range(60) for edge in drawn._edges(n)} == set(drawn.graph.edges)


def test_resumed_peers_keep_every_bit() -> None:
    peers, other = engine(PDMM, schedule="random_edge"), engine(PDMM, schedule="random_edge")
    state = start(peers)
    for _ in range(3):
        state, _ = peers.run_round(state)
    stored = {name: tensor.clone() for name, tensor in peers.tensors(state).items()}
    again = other.restored(stored, start(other))
    for _ in range(4):
        state, _ = peers.run_round(state)
        again, _ = other.run_round(again)
    mine, theirs = peers.tensors(state), other.tensors(again)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_nan_point_names_its_node() -> None:
    peers = engine(PDMM, poison=7 * 5)
    state, _ = peers.run_round(start(peers))
    before = {name: tensor.clone() for name, tensor in peers.tensors(state).items()}
    with assert_refused(TrainingError, "not finite", client="n1"):
        peers.run_round(state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in peers.tensors(state).items())


def test_what_needs_a_server_is_refused() -> None:
    peers = engine(PDMM)
    point = Point(torch.zeros(6, dtype=torch.float64), NONE)
    with assert_refused(ConfigError, "running statistics without a server"):
        peers.start_stage(point, torch.zeros(2))
    with assert_refused(ConfigError, "no dual step"):
        peers.start_stage(Point(point.primal, torch.zeros(5)), NONE)
    with assert_refused(ConfigError, "graph of another size", nodes=3, clients=4):
        PeerEngine(PDMM, peers.fleet, build_graph("ring", 3), "synchronous", 1)


def test_nodes_mean_is_current() -> None:
    peers = engine(Gossip(2, 0.05))
    state, record = peers.run_round(start(peers))
    points = torch.stack([point.primal for point in state.points])
    torch.testing.assert_close(peers.current(state).primal, points.mean(dim=0), rtol=0, atol=1e-15)
    spread = (points - points.mean(dim=0)).square().sum(dim=1).mean()
    assert record.drift == pytest.approx(float(spread), rel=1e-12)
    assert peers.finish_stage(state).bytes_up == 0


@pytest.mark.parametrize("method", [PDMM, Gossip(3, 0.1)])
def test_outsized_message_names_its_node(method: object) -> None:
    peers = engine(method)
    state, _ = peers.run_round(start(peers))
    honest = peers.fleet.ask

    def scaled(requests: Any, enough: int | None = None) -> Any:
        answers = honest(requests, enough)
        if not hasattr(answers[2], "messages"):
            return answers
        sent = tuple(
            from_named_tensors(message, {name: tensor * 1e6 for name, tensor in named_tensors(message).items()})
            for message in answers[2].messages
        )
        return {**answers, 2: replace(answers[2], messages=sent)}

    peers.fleet.ask = scaled  # type: ignore[method-assign]
    with assert_refused(TrainingError, "update too long", client="n2"):
        peers.run_round(state)
    peers.fleet.ask = honest  # type: ignore[method-assign]
    peers.run_round(state)
