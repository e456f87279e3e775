"""Communication rounds to a fixed accuracy as the number of clients grows, on the heterogeneous quadratic saddle.

    .venv/bin/python benchmarks/rounds_against_clients.py --save benchmarks/results/rounds_against_clients.json

The data are fixed: 32 unlike quadratic saddles, dealt to K clients; a client's problem is the mean of its own, so the
more clients, the more they differ. Gradients carry Gaussian noise, the same at every client. For each K and algorithm
the window and the step size are tuned on a grid; the figure is the fewest rounds after which the server's point is
within `--accuracy` of the saddle point, relative to the start, and stays there for a fifth of the rounds more. Medians
over problems. The slope is that of log rounds against log K: 0 is the flat line that the theory promises for CODASCA.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.variables import Algorithm, Gradients, Point, named_tensors
from chestfed.core.randomness import stream_seed
from tests.invariants import quadratic_saddle as saddle

ALGORITHMS: dict[str, Callable[[int, float], Algorithm]] = {
    "codasca": lambda window, lr: Codasca(window, lr, lr),
    "coda_plus": lambda window, lr: CodaPlus(window, lr, lr, output="last"),
}
POOL = 32
WINDOWS = (64, 32, 16, 8, 4, 2, 1)
#: Step sizes times windows; the step itself is at most 0.1.
PRODUCTS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def main() -> None:
    """Print and save the rounds of each algorithm and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="2,4,8,16,32")
    parser.add_argument("--problems", type=int, default=5)
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
    for window in WINDOWS:
        for product in PRODUCTS:
            lr = product / window
            if lr > 0.1:
                continue
            limit = int(min(options.rounds, best[0]))
            rounds = on_saddle(ALGORITHMS[name](window, lr), k, problem, limit, options)
            if rounds < best[0]:
                best = (rounds, window, lr)
    return best


def dealt(pool: Sequence[saddle.Saddle], k: int) -> list[saddle.Saddle]:
    """K clients, each with the mean of its share of the pool."""
    parts = np.array_split(np.arange(len(pool)), k)
    return [
        saddle.Saddle(*(np.mean([getattr(pool[i], field) for i in part], axis=0) for field in "abmdc"))
        for part in parts
    ]


def on_saddle(algorithm: Algorithm, k: int, problem: int, limit: int, options: argparse.Namespace) -> float:
    """Rounds to `--accuracy` of the saddle point, relative to the start."""
    clients = dealt(saddle.heterogeneous(POOL, seed=problem), k)
    point = saddle.origin(clients)
    start = saddle.distance(point, clients)
    gradients = of_all(clients, options.noise, torch.Generator().manual_seed(stream_seed(problem, "noise", k)))

    def missing(point: Point) -> float:
        return saddle.distance(point, clients) / start

    return rounds_needed(algorithm, point, gradients, [1 / k] * k, missing, options.accuracy, limit)


def rounds_needed(
    algorithm: Algorithm,
    point: Point,
    gradients: Gradients,
    weights: Sequence[float],
    missing: Callable[[Point], float],
    accuracy: float,
    limit: int,
) -> float:
    """Rounds until `missing` of the server's point is at most `accuracy` and stays so for a fifth of the rounds more.

    `gradients` takes the variables of all clients at once, `[K, d]` and `[K, J]`. Infinity if `limit` is too short, or
    if the point runs away.
    """
    k = len(weights)
    server = algorithm.start_stage(point)
    states = stacked([algorithm.start_client(point)] * k)
    reached: int | None = None
    for number in range(1, int(limit * 1.2) + 2):
        # The rules are elementwise, so that the clients' local rounds are one call on stacked tensors.
        update, states = algorithm.local_round(stacked([algorithm.message(server)] * k), states, gradients)
        server = algorithm.server_round(server, unstacked(update, k), weights)
        error = missing(algorithm.current(server))
        if not error < 1e3:
            return float("inf")
        if error > accuracy:
            reached = None
            if number >= limit:
                return float("inf")
        elif reached is None:
            reached = number
        if reached is not None and number >= 1.2 * reached + 1:
            return float(reached)
    return float("inf")


def stacked(records: Sequence[Any]) -> Any:
    """Records of equal shapes as one, with a leading dimension."""
    parts = [named_tensors(record) for record in records]
    return type(records[0])(**{name: torch.stack([p[name] for p in parts]) for name in parts[0]})


def unstacked(record: Any, count: int) -> list[Any]:
    """The inverse of `stacked`."""
    parts = named_tensors(record)
    return [type(record)(**{name: part[i] for name, part in parts.items()}) for i in range(count)]


def of_all(clients: Sequence[saddle.Saddle], deviation: float, generator: torch.Generator) -> Gradients:
    """The noisy gradients of all clients at once, at points `[K, d]` and `[K, J]`."""
    a, b, m, d, c = (torch.from_numpy(np.stack([getattr(client, field) for client in clients])) for field in "abmdc")

    def noisy(gradient: Tensor) -> Tensor:
        return gradient + deviation * torch.randn(gradient.shape, dtype=gradient.dtype, generator=generator)

    def gradients(v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        grad_v = torch.einsum("kij,kj->ki", a, v) - b + torch.einsum("kji,kj->ki", m, alpha)
        grad_alpha = torch.einsum("kji,ki->kj", m, v) - d - torch.einsum("kij,kj->ki", c, alpha)
        return noisy(grad_v), noisy(grad_alpha)

    return gradients


if __name__ == "__main__":
    main()
