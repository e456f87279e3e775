"""How close each algorithm comes to the optimum of heterogeneous quadratics, by window, with exact gradients.

    python -m benchmarks.optimum_table --save benchmarks/results/optimum_table.md

Eight heterogeneous clients (or nodes of a ring) in float64; the optimum is known in closed form, so the figure is the
Euclidean distance of the last point to it (decentralized: of the worst node), after as many rounds as make it
settle. The step size is the same at all windows, so that what is left of the error is the window's: for methods without
correction, theory has it grow about in proportion to the window less one (the drift), from zero at a window of 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.minimization.fedprox import FedProx
from chestfed.learning.algorithms.minimization.local_sgdm import LocalSgdm
from chestfed.learning.algorithms.minimization.scaffold import Scaffold
from chestfed.leaves.compositional.local_scgdam import LocalScgdam
from chestfed.leaves.compositional.local_sgdam import LocalSgdam
from chestfed.leaves.decentralized.edge_consensus import EdgeConsensus
from chestfed.leaves.decentralized.gossip import Gossip
from chestfed.leaves.decentralized.graph import build_graph
from tests.invariants import quadratic_saddle as saddle
from tests.leaves.compositional import quadratic_composition as composition
from tests.leaves.decentralized.edge_consensus_checks import errors, run

WINDOWS = (1, 8, 32, 128)
LR = 0.005


def main() -> None:
    """Print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| algorithm | problem | "
        + " | ".join(f"I = {window}" for window in WINDOWS)
        + " | growth with I - 1, from 8 |",
        "|---|---|" + "---:|" * (len(WINDOWS) + 1),
    ]
    for name, problem, error_at in rows():
        found = [error_at(window) for window in WINDOWS]
        large = [
            (window - 1, error) for window, error in zip(WINDOWS, found, strict=True) if window > 1 and error > 1e-8
        ]
        growth = "" if len(large) < 2 else f"{np.polyfit(*np.log(np.array(large)).T, 1)[0]:.2f}"
        line = f"| {name} | {problem} | " + " | ".join(f"{error:.1e}" for error in found) + f" | {growth} |"
        print(line, flush=True)
        lines.append(line)
    lines += ["", *edge_consensus()]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.save:
        command = " ".join(["python", *sys.argv])
        head = f"# Distance to the optimum\n\n`{command}`; step size {LR}, 8 heterogeneous clients, float64.\n\n"
        options.save.write_text(head + text, encoding="utf-8")


def rounds(window: int) -> int:
    """Enough for the slowest mode: some 9000 steps, and no fewer than 150 rounds."""
    return max(150, 9000 // window)


def rows() -> list[tuple[str, str, Any]]:
    """Name, problem and error by window, of the methods with a server."""
    saddles, minima = saddle.heterogeneous(8), saddle.heterogeneous(8, duals=0)

    def of(make: Any, problems: list[saddle.Saddle]) -> Any:
        def error(window: int) -> float:
            method = make(window)
            server, _ = saddle.run(method, problems, rounds(window))
            return saddle.distance(method.current(server), problems)

        return error

    def of_composition(spread: float) -> Any:
        problems = composition.heterogeneous(8, spread=spread)

        def error(window: int) -> float:
            method = LocalScgdam(window, LR, LR, 0.5, 0.5, 0.5)
            return composition.distance(method.current(composition.run(method, problems, rounds(window))), problems)

        return error

    return [
        ("CODASCA", "saddle", of(lambda i: Codasca(i, LR, LR), saddles)),
        ("CODA+", "saddle", of(lambda i: CodaPlus(i, LR, LR, output="last"), saddles)),
        ("LocalSGDAM", "saddle", of(lambda i: LocalSgdam(i, LR, LR, 0.5, 0.5), saddles)),
        ("LocalSCGDAM", "composed saddle, one inner function", of_composition(0.0)),
        ("LocalSCGDAM", "composed saddle, different inner functions", of_composition(1.0)),
        ("SCAFFOLD", "minimum", of(lambda i: Scaffold(i, LR), minima)),
        ("FedAvg", "minimum", of(lambda i: FedProx(i, LR), minima)),
        ("FedProx, mu = 0.1", "minimum", of(lambda i: FedProx(i, LR, 0.1), minima)),
        ("LocalSGDM, beta = 0.9", "minimum", of(lambda i: LocalSgdm(i, LR / 10, 0.9), minima)),
    ]


def edge_consensus() -> list[str]:
    """The decentralized methods, on a ring of 8."""
    ring = build_graph("ring", 8)
    lines = ["| on a ring of 8 | 1 local step | 8 local steps | one random edge per round |", "|---|---:|---:|---:|"]
    for name, one, eight in (
        ("PDMM-SGD", EdgeConsensus("pdmm", 1, 8.0), EdgeConsensus("pdmm", 8, 8.0)),
        ("ADMM-SGD", EdgeConsensus("admm", 1, 8.0), EdgeConsensus("admm", 8, 8.0)),
        ("gossip SGD, step 0.005", Gossip(1, LR), Gossip(8, LR)),
    ):
        pair = Gossip(1, LR, pairwise=True) if isinstance(one, Gossip) else one
        found = [
            errors(*run(one, ring, 1500))[0],
            errors(*run(eight, ring, 800))[0],
            errors(*run(pair, ring, 6000, "random_edge"))[0],
        ]
        lines.append(f"| {name} | " + " | ".join(f"{error:.1e}" for error in found) + " |")
    return lines


if __name__ == "__main__":
    main()
