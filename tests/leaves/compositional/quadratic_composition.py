"""A heterogeneous compositional saddle problem in float64: f_k is a quadratic saddle at h = g_k(x), g_k is not linear.

g_k(x) = G x + e_k + curl * sin(x): the clients share the Jacobian, so that the mean over the clients of J'grad f_k is
the gradient of the mean problem. With curl = 0 the optimum has a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import Point
from tests.invariants import quadratic_saddle as saddle


@dataclass(frozen=True)
class Composition:
    """One client's problem: `G [d, d]`, `e [d]`, the number `curl`, and the outer saddle."""

    g: np.ndarray
    e: np.ndarray
    curl: float
    outer: saddle.Saddle

    def inner(self, x: np.ndarray) -> np.ndarray:
        return self.g @ x + self.e + self.curl * np.sin(x)

    def pull_back(self, x: np.ndarray, q: np.ndarray) -> np.ndarray:
        return self.g.T @ q + self.curl * np.cos(x) * q


class Oracle:
    """`CompositionalGradients` of one client; `calls` counts each kind."""

    def __init__(self, problem: Composition) -> None:
        self._problem = problem
        self._x = np.zeros(0)
        self.calls = {"inner": 0, "outer": 0, "pull_back": 0}

    def inner(self, x: Tensor) -> Tensor:
        self.calls["inner"] += 1
        self._x = x.numpy().copy()
        return torch.from_numpy(self._problem.inner(self._x))

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.calls["outer"] += 1
        grad_h, grad_y = self._problem.outer.gradients(h.numpy(), y.numpy())
        return torch.from_numpy(grad_h), torch.from_numpy(grad_y)

    def pull_back(self, q: Tensor) -> Tensor:
        self.calls["pull_back"] += 1
        return torch.from_numpy(self._problem.pull_back(self._x, q.numpy()))


def heterogeneous(clients: int, curl: float = 0.0, spread: float = 1.0, seed: int = 3) -> list[Composition]:
    """`spread` scales how much the clients' inner functions differ."""
    rng = np.random.default_rng(seed)
    g, common = np.eye(4) + 0.2 * rng.normal(size=(4, 4)), rng.normal(size=4)
    outers = saddle.heterogeneous(clients, seed=seed)
    return [Composition(g, common + spread * rng.normal(size=4), curl, outer) for outer in outers]


def identity(clients: int) -> list[Composition]:
    return [Composition(np.eye(4), np.zeros(4), 0.0, outer) for outer in saddle.heterogeneous(clients)]


def solution(problems: Sequence[Composition]) -> tuple[np.ndarray, np.ndarray]:
    """The saddle point of f(g(x), y), both averaged over the clients, for curl = 0: h* solves it, and x* gives h*."""
    h, y = saddle.solution([problem.outer for problem in problems])
    return np.linalg.solve(problems[0].g, h - np.mean([problem.e for problem in problems], axis=0)), y


def run(
    algorithm: Any,
    problems: Sequence[Composition],
    rounds: int,
    *,
    weights: Sequence[float] | None = None,
    start: Point | None = None,
) -> Any:
    """The server's state after some rounds of one stage."""
    weights = [1 / len(problems)] * len(problems) if weights is None else weights
    start = saddle.origin([problem.outer for problem in problems]) if start is None else start
    server = algorithm.start_stage(start)
    clients = [algorithm.start_client(start) for _ in problems]
    oracles = [Oracle(problem) for problem in problems]
    for _ in range(rounds):
        message = algorithm.message(server)
        results = [algorithm.local_round(message, c, oracle) for c, oracle in zip(clients, oracles, strict=True)]
        clients = [state for _, state in results]
        server = algorithm.server_round(server, [update for update, _ in results], weights)
    return server


def distance(point: Point, problems: Sequence[Composition]) -> float:
    x, y = solution(problems)
    return float(np.hypot(np.linalg.norm(point.primal.numpy() - x), np.linalg.norm(point.dual.numpy() - y)))
