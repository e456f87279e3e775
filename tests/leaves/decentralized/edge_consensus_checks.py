"""What must hold for PDMM-SGD and ADMM-SGD, as functions of the module that implements them.

Run on the module itself and on mutants of its source, in float64, on quadratics with a closed-form optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.leaves.decentralized.graph import Graph, Schedule, build_graph
from chestfed.leaves.decentralized.peers import GraphLayout, PeerEngine
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient

NONE = torch.zeros(0, dtype=torch.float64)
#: A tree with two more edges; degrees 1 to 4.
IRREGULAR = Graph(7, ((0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (4, 5), (4, 6), (5, 6)))


#: Where all nodes begin: nowhere near zero, so that whatever should start there and does not is seen.
START = np.array([0.9, -1.4, 0.6, 2.1])


@dataclass(frozen=True)
class Nodes:
    nodes: list[Any]


def list_nodes(fleet: LocalFleet) -> list[Any]:
    """The states of all nodes."""
    return [host.snapshots[max(host.snapshots)].state for host in fleet.hosts]


def run(
    method: Any, graph: Graph, rounds: int, schedule: Schedule = "synchronous", seed: int = 0
) -> tuple[Nodes, list[saddle.Saddle]]:
    problems = saddle.heterogeneous(graph.nodes, duals=0, seed=seed)
    clients = [QuadraticClient(f"n{i}", problem, buffers=0) for i, problem in enumerate(problems)]
    fleet = LocalFleet.of(clients, method, GraphLayout(graph))
    engine = PeerEngine(method, fleet, graph, schedule, seed=1)
    peers = engine.start_stage(Point(torch.from_numpy(START), NONE), NONE)
    for _ in range(rounds):
        peers, _ = engine.run_round(peers)
    return Nodes(list_nodes(fleet)), problems


def errors(peers: Nodes, problems: list[saddle.Saddle]) -> tuple[float, float]:
    """Largest distance of a node to the optimum of the mean loss, and to the mean of the nodes."""
    points = np.stack([node.primal.numpy() for node in peers.nodes])
    optimum, _ = saddle.solution(problems)
    return (
        float(np.linalg.norm(points - optimum, axis=1).max()),
        float(np.linalg.norm(points - points.mean(axis=0), axis=1).max()),
    )


def check_every_state_equals_the_numpy_reference(module: ModuleType) -> None:
    graph, mu, eta, rho, window = IRREGULAR, 9.0, 0.8, 0.15, 3
    problems = saddle.heterogeneous(graph.nodes, duals=0)
    for rule, start in (("pdmm", "zero"), ("admm", "consensus")):
        ours, _ = run(module.EdgeConsensus(rule, window, mu, eta, rho, start), graph, 4)
        w = {i: START.copy() for i in range(graph.nodes)}
        ends = [(i, j) for i in range(graph.nodes) for j in graph.neighbors(i)]
        a = {(i, j): 1.0 if i < j else -1.0 for i, j in ends}
        z = {end: a[end] * START if start == "consensus" else np.zeros(4) for end in ends}
        last = {end: START.copy() for end in ends}
        for _ in range(4):
            y = {}
            for i in range(graph.nodes):
                for _ in range(window):
                    g = problems[i].gradients(w[i], np.zeros(0))[0]
                    total = mu * w[i] - g
                    for j in graph.neighbors(i):
                        total = total + eta * a[i, j] * z[i, j] + rho * last[i, j]
                    w[i] = total / (mu + (eta + rho) * graph.degree(i))
                    for j in graph.neighbors(i):
                        y[i, j] = z[i, j] - 2 * a[i, j] * w[i]
            z = {(i, j): y[j, i] if rule == "pdmm" else (z[i, j] + y[j, i]) / 2 for i, j in ends}
            last = {(i, j): w[j].copy() for i, j in ends}
        for i, node in enumerate(ours.nodes):
            np.testing.assert_allclose(node.primal.numpy(), w[i], rtol=0, atol=1e-12)
            expected = np.stack([z[i, j] for j in graph.neighbors(i)])
            np.testing.assert_allclose(node.z.numpy(), expected, rtol=0, atol=1e-12)


def _reaches(module: ModuleType, graph: Graph, window: int, rounds: int, schedule: Schedule, rho: float = 0.1) -> None:
    for rule in ("pdmm", "admm"):
        method = module.EdgeConsensus(rule, window, 8.0, 1.0, rho)
        error, disagreement = errors(*run(method, graph, rounds, schedule))
        assert error < 1e-7, f"{rule}, window {window}, {schedule}: error {error:.1e}"
        assert disagreement < 1e-7


def check_the_optimum_is_reached_on_a_ring(module: ModuleType) -> None:
    _reaches(module, build_graph("ring", 4), 1, 120, "synchronous")
    _reaches(module, build_graph("ring", 4), 8, 80, "synchronous")


def check_the_optimum_is_reached_by_random_single_edges(module: ModuleType) -> None:
    _reaches(module, build_graph("ring", 4), 1, 300, "random_edge")


def check_the_optimum_is_reached_on_irregular_graphs(module: ModuleType) -> None:
    _reaches(module, build_graph("star", 4), 4, 120, "synchronous")
    _reaches(module, IRREGULAR, 4, 200, "synchronous", rho=0.0)


def check_the_identities_of_the_fixed_point(module: ModuleType) -> None:
    for rule in ("pdmm", "admm"):
        peers, problems = run(module.EdgeConsensus(rule, 4, 8.0), IRREGULAR, 250)
        slopes = [p.gradients(n.primal.numpy(), np.zeros(0))[0] for p, n in zip(problems, peers.nodes, strict=True)]
        np.testing.assert_allclose(np.sum(slopes, axis=0), 0, atol=1e-9)
        for i, j in IRREGULAR.edges:
            here, there = IRREGULAR.neighbors(i).index(j), IRREGULAR.neighbors(j).index(i)
            difference = peers.nodes[i].z[here] - peers.nodes[j].z[there]
            np.testing.assert_allclose(difference.numpy(), 2 * peers.nodes[i].primal.numpy(), atol=1e-9)


def check_without_gradients_a_start_in_consensus_stays(module: ModuleType) -> None:
    point, ring = Point(torch.from_numpy(START), NONE), build_graph("ring", 4)
    for rule in ("pdmm", "admm"):
        method = module.EdgeConsensus(rule, 3, 8.0, 1.0, 0.1, "consensus")
        signs = [torch.tensor([1.0 if i < j else -1.0 for j in ring.neighbors(i)]) for i in range(4)]
        nodes = [method.start_node(point, row, torch.tensor([2.0, 2.0])) for row in signs]
        for _ in range(2):
            nodes = [method.local_round(node, lambda w, dual: (0 * w, dual)) for node in nodes]
            ends = [[(j, ring.neighbors(j).index(i)) for j in ring.neighbors(i)] for i in range(4)]
            sent = [{edge: method.message(nodes[j], back) for edge, (j, back) in enumerate(links)} for links in ends]
            nodes = [method.exchange(node, messages) for node, messages in zip(nodes, sent, strict=True)]
        for node in nodes:
            np.testing.assert_allclose(node.primal.numpy(), START, rtol=0, atol=1e-14)


def check_a_lone_node_is_gradient_descent(module: ModuleType) -> None:
    peers, (problem,) = run(module.EdgeConsensus("pdmm", 5, 10.0), Graph(1, ()), 3)
    w = START.copy()
    for _ in range(15):
        w = w - problem.gradients(w, np.zeros(0))[0] / 10
    np.testing.assert_allclose(peers.nodes[0].primal.numpy(), w, rtol=0, atol=1e-13)


CHECKS: list[Callable[[ModuleType], None]] = [
    check_every_state_equals_the_numpy_reference,
    check_a_lone_node_is_gradient_descent,
    check_without_gradients_a_start_in_consensus_stays,
    check_the_identities_of_the_fixed_point,
    check_the_optimum_is_reached_on_irregular_graphs,
    check_the_optimum_is_reached_on_a_ring,
    check_the_optimum_is_reached_by_random_single_edges,
]

#: name -> (text in the source, its replacement).
MUTANTS: dict[str, tuple[str, str]] = {
    "gradient ascends": ("self.mu * w - gradient + pull", "self.mu * w + gradient + pull"),
    "dual variables pull the wrong way": ("pull = self.eta * (node", "pull = -self.eta * (node"),
    "signs are forgotten": ("(node.signs[:, None] * node.z)", "node.z"),
    "neighbors' points are forgotten": ("+ self.rho * node.received.sum(dim=0)", ""),
    "eta is divided by the degree": ("pull = self.eta *", "pull = self.eta / max(1, len(node.signs)) *"),
    "penalties are divided by the degree": ("(self.eta + self.rho) * len(node.signs)", "(self.eta + self.rho)"),
    "the penalty of rho is forgotten": ("(self.eta + self.rho) * len", "self.eta * len"),
    "y takes w once": ("- 2 * node.signs[edge]", "- node.signs[edge]"),
    "y has the wrong sign": ("- 2 * node.signs[edge]", "+ 2 * node.signs[edge]"),
    "y forgets z": ("y = node.z[edge] - 2", "y = 0 * node.z[edge] - 2"),
    "admm does not average": ("else (z[edge] + message.y) / 2", "else message.y"),
    "admm averages with w": ("(z[edge] + message.y) / 2", "(node.primal + message.y) / 2"),
    "pdmm averages": ('message.y if self.rule == "pdmm" else', 'message.y if self.rule == "none" else'),
    "z starts at w": ("torch.zeros_like(point.primal))", "point.primal)"),
    "a start in consensus has the wrong sign": ("z = signs[:, None] *", "z = -signs[:, None] *"),
    "received points start at zero": (
        "known = point.primal.expand(",
        "known = torch.zeros_like(point.primal).expand(",
    ),
    "nodes start at zero": (
        "return Node(point.primal, point.dual, z",
        "return Node(0 * point.primal, point.dual, z",
    ),
    "received points are not kept": ("known[edge] = message.primal", "pass"),
    "one local step too many": ("range(self.window)", "range(self.window + 1)"),
}
