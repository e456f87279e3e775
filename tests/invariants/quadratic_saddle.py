"""A heterogeneous quadratic saddle problem with a closed-form solution, in float64.

Client k has F_k(v, alpha) = v'A_k v / 2 - b_k'v + alpha'(M_k v - d_k) - alpha'C_k alpha / 2, minimized over v and
maximized over alpha; the global problem is the weighted mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import Point
from chestfed.testing.quadratics import ExactGradients


@dataclass(frozen=True)
class Saddle:
    """One client's problem; arrays `A [d, d]`, `b [d]`, `M [J, d]`, `d [J]`, `C [J, J]`."""

    a: np.ndarray
    b: np.ndarray
    m: np.ndarray
    d: np.ndarray
    c: np.ndarray

    def gradients(self, v: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.a @ v - self.b + self.m.T @ alpha, self.m @ v - self.d - self.c @ alpha

    def torch_gradients(self) -> ExactGradients:
        a, b, m, d, c = (torch.from_numpy(part) for part in (self.a, self.b, self.m, self.d, self.c))

        def gradients(v: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
            return a @ v - b + m.T @ alpha, m @ v - d - c @ alpha

        return ExactGradients(gradients)


def heterogeneous(clients: int, dimension: int = 4, duals: int = 2, seed: int = 0) -> list[Saddle]:
    """Clients whose curvatures and optima differ, so that local steps pull apart."""
    rng = np.random.default_rng(seed)
    problems = []
    for _ in range(clients):
        root = rng.normal(size=(dimension, dimension))
        dual_root = rng.normal(size=(duals, duals))
        problems.append(
            Saddle(
                a=np.eye(dimension) + 0.3 * root @ root.T,
                b=3 * rng.normal(size=dimension),
                m=0.7 * rng.normal(size=(duals, dimension)),
                d=3 * rng.normal(size=duals),
                c=np.eye(duals) + 0.3 * dual_root @ dual_root.T,
            )
        )
    return problems


def solution(problems: Sequence[Saddle], weights: Sequence[float] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The saddle point of the weighted mean, by one linear solve."""
    weights = [1 / len(problems)] * len(problems) if weights is None else weights
    mean = Saddle(
        *(
            sum(w * getattr(p, f) for w, p in zip(weights, problems, strict=True))  # type: ignore[arg-type]
            for f in "abmdc"
        )
    )
    size = mean.b.size
    matrix = np.block([[mean.a, mean.m.T], [mean.m, -mean.c]])
    answer = np.linalg.solve(matrix, np.concatenate([mean.b, mean.d]))
    return answer[:size], answer[size:]


def origin(problems: Sequence[Saddle]) -> Point:
    return Point(
        torch.zeros(problems[0].b.size, dtype=torch.float64),
        torch.zeros(problems[0].d.size, dtype=torch.float64),
    )


def run(
    algorithm: Any,
    problems: Sequence[Saddle],
    rounds: int,
    *,
    weights: Sequence[float] | None = None,
    start: Point | None = None,
    each_round: Callable[[Any, list[Any], list[Any]], None] | None = None,
) -> tuple[Any, list[Any]]:
    """Run one stage; returns the final server and client states. `each_round(server, clients, updates)` looks in."""
    weights = [1 / len(problems)] * len(problems) if weights is None else weights
    start = origin(problems) if start is None else start
    server = algorithm.start_stage(start)
    clients = [algorithm.start_client(start) for _ in problems]
    oracles = [problem.torch_gradients() for problem in problems]
    for _ in range(rounds):
        message = algorithm.message(server)
        results = [
            algorithm.local_round(message, client, oracle) for client, oracle in zip(clients, oracles, strict=True)
        ]
        updates, clients = [result[0] for result in results], [result[1] for result in results]
        server = algorithm.server_round(server, updates, weights)
        if each_round:
            each_round(server, clients, updates)
    return server, clients


def distance(point: Point, problems: Sequence[Saddle], weights: Sequence[float] | None = None) -> float:
    """Euclidean distance of a point to the saddle point."""
    v, alpha = solution(problems, weights)
    return float(np.hypot(np.linalg.norm(point.primal.numpy() - v), np.linalg.norm(point.dual.numpy() - alpha)))
