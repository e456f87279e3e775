"""PDMM-SGD, ADMM-SGD and gossip against their equations."""

from __future__ import annotations

import pytest
import torch

from chestfed.leaves.decentralized.edge_consensus import tuning_free_eta
from chestfed.leaves.decentralized.gossip import Gossip
from chestfed.leaves.decentralized.graph import build_graph
from tests.leaves.decentralized.edge_consensus_checks import IRREGULAR, errors, run


def test_tuning_free_eta_equals_the_papers() -> None:
    """K = 8 local steps and E = 2 neighbors: 1 / (22 lr) and 1 / (10 lr)."""
    assert tuning_free_eta("pdmm", 0.01, 8, 2) == pytest.approx(1 / (22 * 0.01))
    assert tuning_free_eta("admm", 0.01, 8, 2) == pytest.approx(1 / (10 * 0.01))
    with pytest.raises(ValueError, match="no tuning-free value for admm with window 1"):
        tuning_free_eta("admm", 0.01, 1, 2)


@pytest.mark.slow
def test_gossip_error_grows_with_the_step() -> None:
    ring, stalled = build_graph("ring", 4), {}
    for lr, window in ((0.02, 1), (0.01, 1), (0.005, 1), (0.005, 4)):
        stalled[lr, window], _ = errors(*run(Gossip(window, lr), ring, round(5 / (lr * window))))
    assert stalled[0.005, 1] > 0.01
    assert stalled[0.01, 1] / stalled[0.005, 1] == pytest.approx(2, rel=0.1)
    assert stalled[0.02, 1] / stalled[0.01, 1] == pytest.approx(2, rel=0.15)
    assert stalled[0.005, 4] / stalled[0.005, 1] == pytest.approx(4, rel=0.3)


@pytest.mark.parametrize("pairwise", [False, True])
def test_gossip_exchange_keeps_the_mean(pairwise: bool) -> None:
    graph = IRREGULAR
    before, _ = run(Gossip(3, 0.05, pairwise), graph, 4, "random_edge" if pairwise else "synchronous")
    method = Gossip(0, 0.05, pairwise)
    neighbors = [graph.neighbors(i) for i in range(graph.nodes)]
    edges = [(2, 4)] if pairwise else list(graph.edges)
    received: list[dict[int, object]] = [{} for _ in neighbors]
    for i, j in edges:
        received[i][neighbors[i].index(j)] = method.message(before.nodes[j], 0)
        received[j][neighbors[j].index(i)] = method.message(before.nodes[i], 0)
    after = [method.exchange(node, messages) for node, messages in zip(before.nodes, received, strict=True)]  # type: ignore[arg-type]
    means = [torch.stack([node.primal for node in nodes]).mean(dim=0) for nodes in (before.nodes, after)]
    torch.testing.assert_close(means[0], means[1], rtol=0, atol=1e-14)
    if pairwise:
        torch.testing.assert_close(after[2].primal, after[4].primal, rtol=0, atol=1e-15)
