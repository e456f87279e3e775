"""What must hold for gossip SGD, as functions of the module that implements it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from chestfed.leaves.decentralized.graph import build_graph
from tests.invariants import quadratic_saddle as saddle
from tests.leaves.decentralized.edge_consensus_checks import IRREGULAR, START, errors, run


def check_every_node_equals_the_numpy_reference(module: ModuleType) -> None:
    graph, lr, window, rounds = IRREGULAR, 0.05, 3, 4
    degree = [graph.degree(node) for node in range(graph.nodes)]
    peers, _ = run(module.Gossip(window, lr), graph, rounds)
    problems = saddle.heterogeneous(graph.nodes, duals=0)
    w = np.tile(START, (graph.nodes, 1))
    mixing = np.eye(graph.nodes)
    for i, j in graph.edges:
        weight = 1 / (1 + max(degree[i], degree[j]))
        mixing[[i, j], [j, i]] = weight
        mixing[i, i] -= weight
        mixing[j, j] -= weight
    for _ in range(rounds):
        for i, problem in enumerate(problems):
            for _ in range(window):
                w[i] = w[i] - lr * problem.gradients(w[i], np.zeros(0))[0]
        w = mixing @ w
    for node, expected in zip(peers.nodes, w, strict=True):
        np.testing.assert_allclose(node.primal.numpy(), expected, rtol=0, atol=1e-12)


def check_pairwise_exchange_meets_in_the_middle(module: ModuleType) -> None:
    graph = build_graph("ring", 3)
    peers, problems = run(module.Gossip(1, 0.05, pairwise=True), graph, 1, "round_robin")
    i, j = graph.edges[0]
    ends = [START - 0.05 * problem.gradients(START, np.zeros(0))[0] for problem in problems]
    for node in (i, j):
        np.testing.assert_allclose(peers.nodes[node].primal.numpy(), (ends[i] + ends[j]) / 2, rtol=0, atol=1e-13)


def check_it_stalls_but_no_further_than_its_step(module: ModuleType) -> None:
    gaps = [errors(*run(module.Gossip(1, lr), build_graph("ring", 8), round(10 / lr)))[0] for lr in (0.02, 0.01)]
    assert 0.02 < gaps[1] < 0.5
    assert abs(gaps[0] / gaps[1] - 2) < 0.3


CHECKS: list[Callable[[ModuleType], None]] = [
    check_every_node_equals_the_numpy_reference,
    check_pairwise_exchange_meets_in_the_middle,
    check_it_stalls_but_no_further_than_its_step,
]
MUTANTS: dict[str, tuple[str, str]] = {
    "gradient ascends": ("w -= self.lr", "w += self.lr"),
    "nodes move apart": ("w += node.weights", "w -= node.weights"),
    "weights are uniform": ("1 / (1 + largest)", "torch.full_like(largest, 0.2)"),
    "a node looks at its own degree only": (
        "torch.clamp(degrees.to(point.primal), min=len(degrees))",
        "torch.full_like(degrees.to(point.primal), len(degrees))",
    ),
    "the pair swaps": ("torch.full_like(largest, 0.5)", "torch.full_like(largest, 1.0)"),
    "messages are added": ("(message.primal - node.primal)", "message.primal"),
    "nodes start at zero": ("return Node(point.primal,", "return Node(0 * point.primal,"),
    "one local step too many": ("range(self.window)", "range(self.window + 1)"),
}
