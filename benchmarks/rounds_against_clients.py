"""Communication rounds to a fixed accuracy as the number of clients grows, on the heterogeneous quadratic saddle.

    .venv/bin/python benchmarks/rounds_against_clients.py --save benchmarks/results/rounds_against_clients.json

Every client's gradients carry Gaussian noise, so that more clients mean less noise in the mean and larger steps. For
each number of clients and each algorithm the window and the step size are tuned on a grid; the figure is the fewest
rounds after which the server's point is within `--accuracy` of the saddle point, relative to the start, and stays
there for a fifth of the rounds more. Medians over problems. The slope is that of log rounds against log K: 0 is the
flat line that the theory promises for CODASCA.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.variables import Algorithm
from chestfed.randomness import stream_seed
from tests.invariants import quadratic_saddle as saddle

ALGORITHMS: dict[str, Callable[[int, float], Algorithm]] = {
    "codasca": lambda window, lr: Codasca(window, lr, lr),
    "coda_plus": lambda window, lr: CodaPlus(window, lr, lr, output="last"),
}
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
#: Step sizes times windows; the step itself is at most 0.1.
PRODUCTS = (0.05, 0.1, 0.2, 0.4, 0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="2,4,8,16,32")
    parser.add_argument("--problems", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.3, help="standard deviation of a client's gradient noise")
    parser.add_argument("--accuracy", type=float, default=0.03)
    parser.add_argument("--rounds", type=int, default=400, help="give up after these")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)

    counts = [int(k) for k in options.clients.split(",")]
    report: dict = {"command": " ".join(["python", *sys.argv]), "rounds": {}, "best": {}, "slope": {}}
    for name in ALGORITHMS:
        medians = []
        for k in counts:
            best = [fewest_rounds(name, k, problem, options) for problem in range(options.problems)]
            medians.append(float(np.median([rounds for rounds, _, _ in best])))
            report["best"][f"{name} K={k}"] = best
            print(f"{name:10} K={k:2}: {medians[-1]:5.0f} rounds; (rounds, window, step) {best}", flush=True)
        report["rounds"][name] = dict(zip(options.clients.split(","), medians, strict=True))
        slope = np.polyfit(np.log(counts), np.log(medians), 1)[0]
        report["slope"][name] = float(slope)
        print(f"{name:10} slope of log rounds against log K: {slope:+.2f}")
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def fewest_rounds(name: str, k: int, problem: int, options: argparse.Namespace) -> tuple[float, int, float]:
    """The best (rounds, window, step) of the grid; the search stops a run that is already worse."""
    best = (float("inf"), 0, 0.0)
    for window in WINDOWS[::-1]:
        for product in PRODUCTS:
            lr = product / window
            if lr > 0.1:
                continue
            limit = int(min(options.rounds, best[0]))
            rounds = rounds_needed(ALGORITHMS[name](window, lr), k, problem, limit, options)
            if rounds < best[0]:
                best = (rounds, window, lr)
    return best


def rounds_needed(algorithm: Algorithm, k: int, problem: int, limit: int, options: argparse.Namespace) -> float:
    """Rounds until the accuracy is reached and kept; infinity if it is not within `limit`."""
    clients = saddle.heterogeneous(k, seed=problem)
    start = saddle.distance(saddle.origin(clients), clients)
    generator = torch.Generator().manual_seed(stream_seed(problem, "noise", k))
    oracles = [noisy(client, options.noise, generator) for client in clients]
    point = saddle.origin(clients)
    server, states = algorithm.start_stage(point), [algorithm.start_client(point) for _ in clients]
    reached: int | None = None
    for number in range(1, int(limit * 1.2) + 2):
        message = algorithm.message(server)
        results = [algorithm.local_round(message, s, o) for s, o in zip(states, oracles, strict=True)]
        states = [state for _, state in results]
        server = algorithm.server_round(server, [update for update, _ in results], [1 / k] * k)
        error = saddle.distance(algorithm.current(server), clients) / start
        if not error < 1e3:
            return float("inf")
        if error > options.accuracy:
            reached = None
            if number >= limit:
                return float("inf")
        elif reached is None:
            reached = number
        if reached is not None and number >= 1.2 * reached + 1:
            return float(reached)
    return float("inf")


def noisy(
    problem: saddle.Saddle, deviation: float, generator: torch.Generator
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    exact = problem.torch_gradients()

    def gradients(v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        grads = exact(v, alpha)
        return tuple(  # type: ignore[return-value]
            g + deviation * torch.randn(g.shape, dtype=g.dtype, generator=generator) for g in grads
        )

    return gradients


if __name__ == "__main__":
    main()
