"""Why PDMM and ADMM swing on networks with group normalization: the digits, with a perceptron with and without it.

    OMP_NUM_THREADS=1 python -m benchmarks.consensus_swings --save benchmarks/results/consensus_swings.json   (2 min)

Five nodes on a ring, each with a digit of either label and 10% positives; 20 rounds of 16 steps of batches of 16. Per
case and seed: the test AUC of the mean of the nodes, and of the nodes alone, over the last eight rounds, with the
standard deviation of the former from round to round; and the length of the weights after the first round and the last,
by that of the start.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from chestfed.algorithms.edge_consensus import EdgeConsensus, tuning_free_eta
from chestfed.algorithms.gossip import Gossip
from chestfed.algorithms.variables import Point
from chestfed.engines.topology import build_graph
from chestfed.models.flat import FlatModule

NODES, WINDOW, ROUNDS, BATCH, STEP, LAST = 5, 16, 20, 16, 0.5, 8
#: Rule, the first z, and eta by the tuning-free one.
CASES = (
    *(("pdmm", start, factor) for start in ("zero", "consensus") for factor in (1.0, 4.0, 16.0)),
    *(("admm", "zero", 1.0), ("admm", "consensus", 1.0), ("admm", "consensus", 4.0), ("gossip", "-", 0.0)),
)


class Digits:
    """Standardized images `[n, 64]`; the digits from 5 on are positive."""

    def __init__(self) -> None:
        pixels, self.digits = load_digits(return_X_y=True)
        self.images = torch.from_numpy(pixels.astype(np.float32) / 8 - 1)
        self.labels = torch.from_numpy((self.digits >= 5).astype(np.float32))
        rng = np.random.default_rng(1)
        self.test = np.concatenate([rng.permutation(np.flatnonzero(self.digits == c))[:54] for c in range(10)])
        self.train = np.setdiff1d(np.arange(len(self.digits)), self.test)

    def of_node(self, node: int, rng: np.random.Generator) -> np.ndarray:
        """Rows of a digit, and a ninth as many of another."""
        negatives, positives = (self.train[self.digits[self.train] == digit] for digit in (node, node + 5))
        return np.concatenate([negatives, rng.permutation(positives)[: len(negatives) // 9]])


def network(*, normalized: bool, seed: int) -> nn.Sequential:
    """64-64-32-1."""
    torch.manual_seed(seed)
    norms = [[nn.GroupNorm(4, width)] if normalized else [] for width in (64, 32)]
    first, second, last = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 1)
    return nn.Sequential(first, *norms[0], nn.ReLU(), second, *norms[1], nn.ReLU(), last)


def trained(digits: Digits, rule: str, start: str, factor: float, *, normalized: bool, seed: int) -> dict[str, float]:
    """What came of one run."""
    rng, graph = np.random.default_rng(seed), build_graph("ring", NODES)
    rows = [digits.of_node(node, rng) for node in range(NODES)]
    module = network(normalized=normalized, seed=seed)
    flat = FlatModule(module)
    begin = flat.parameters()
    method: EdgeConsensus | Gossip = Gossip(WINDOW, STEP)
    if rule == "pdmm" or rule == "admm":
        eta = factor * tuning_free_eta(rule, STEP, WINDOW, 2)
        method = EdgeConsensus(rule, WINDOW, 1 / STEP, eta, 0.0, "consensus" if start == "consensus" else "zero")

    def gradients(own: np.ndarray) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        def at(primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
            batch = rng.choice(own, BATCH)
            flat.bind(primal)
            flat.grad.zero_()
            logits = module(digits.images[batch])[:, 0]
            nn.functional.binary_cross_entropy_with_logits(logits, digits.labels[batch]).backward()
            return flat.grad.clone(), dual

        return at

    def auc(primal: Tensor) -> float:
        flat.bind(primal.clone())
        with torch.no_grad():
            return float(roc_auc_score(digits.labels[digits.test], module(digits.images[digits.test])[:, 0]))

    around = [graph.neighbors(node) for node in range(NODES)]
    signs = [torch.tensor([1.0 if node < other else -1.0 for other in own]) for node, own in enumerate(around)]
    degrees = torch.full((2,), 2.0)
    states = [method.start_node(Point(begin.clone(), torch.zeros(0)), own, degrees) for own in signs]
    of_mean, of_nodes, lengths = [], [], []
    for _ in range(ROUNDS):
        states = [method.local_round(state, gradients(own)) for state, own in zip(states, rows, strict=True)]
        sent = [
            {edge: method.message(states[other], around[other].index(node)) for edge, other in enumerate(own)}
            for node, own in enumerate(around)
        ]
        states = [method.exchange(state, own) for state, own in zip(states, sent, strict=True)]
        points = torch.stack([state.primal for state in states])
        of_mean.append(auc(points.mean(dim=0)))
        of_nodes.append(float(np.mean([auc(point) for point in points])))
        lengths.append(float(points.mean(dim=0).norm() / begin.norm()))
    last = np.array(of_mean[-LAST:])
    found = {"auc": last.mean(), "sd_over_rounds": last.std(ddof=1), "auc_of_nodes": np.mean(of_nodes[-LAST:])}
    return {name: float(value) for name, value in found.items()} | {"first": lengths[0], "last": lengths[-1]}


def main() -> None:
    """Print one row per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    digits, rows = Digits(), []
    for normalized in (True, False):
        for rule, start, factor in CASES:
            each = [
                trained(digits, rule, start, factor, normalized=normalized, seed=seed)
                for seed in range(1, chosen.seeds + 1)
            ]
            case = {"group_norm": normalized, "rule": rule, "start": start, "eta": factor}
            rows.append({**case, **{name: [round(one[name], 4) for one in each] for name in each[0]}})
            print(rows[-1], flush=True)
            if chosen.save:
                chosen.save.write_text(json.dumps({"seeds": chosen.seeds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
