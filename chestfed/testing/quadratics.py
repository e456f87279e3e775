"""Small heterogeneous quadratics whose optimum is known: what algorithms are checked on.

Client k has F_k(v, alpha) = v' A_k v / 2 - b_k' v + v' C_k alpha - alpha' D alpha / 2 + e_k' alpha, in float64. The
optimum of the mean solves one linear system. Without dual variables it is a minimization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.core.randomness import stream_seed
from chestfed.learning.algorithms.variables import Point, weighted_mean
from chestfed.learning.engines.messages.requests import NOTHING
from chestfed.learning.objectives import OBJECTIVES
from chestfed.learning.objectives.declaration import Objective, Population
from chestfed.testing.contract import find_declaration

#: d weights, then a and b of J diseases; J dual variables.
WEIGHTS, DISEASES = 5, 2
PRIMAL, CLIENTS = WEIGHTS + 2 * DISEASES, 4


@dataclass(frozen=True)
class Quadratic:
    """One client's problem."""

    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor
    e: Tensor

    def loss(self, primal: Tensor) -> Tensor:
        """F_k at a point without dual variables, `[]`; at its minimum it is 1."""
        least = self.b @ torch.linalg.solve(self.a, self.b) / 2
        return primal @ (self.a @ primal) / 2 - self.b @ primal + least + 1

    def gradients(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        return self.a @ primal - self.b + self.c @ dual, self.c.T @ primal - self.d @ dual + self.e


def problems(primal: int, dual: int, clients: int = CLIENTS) -> list[Quadratic]:
    """Clients that differ in curvature and in where their optimum is."""
    rng = np.random.default_rng(0)

    def definite(size: int) -> np.ndarray:
        root = rng.normal(size=(size, size)) / max(size, 1) ** 0.5
        return 0.5 * np.eye(size) + 0.5 * root @ root.T

    d = definite(dual)
    return [
        Quadratic(
            *map(
                torch.from_numpy,
                (
                    definite(primal),
                    rng.normal(size=primal),
                    0.3 * rng.normal(size=(primal, dual)) / (dual if dual > DISEASES else 1),
                    d,
                    rng.normal(size=dual),
                ),
            )
        )
        for _ in range(clients)
    ]


def optimum(parts: Sequence[Quadratic], weights: Sequence[float]) -> Point:
    """Where the gradients of the weighted mean vanish."""
    a, b, c, d, e = (
        weighted_mean([getattr(part, name) for part in parts], weights) for name in ("a", "b", "c", "d", "e")
    )
    system = torch.cat([torch.cat([a, c], dim=1), torch.cat([c.T, -d], dim=1)])
    solution = torch.linalg.solve(system, torch.cat([b, -e]))
    return Point(solution[: len(b)], solution[len(b) :])


def build_objective(objective: str) -> Objective:
    """The objective of this name with its default options, of as many clients and diseases.

    Raises `ConfigError` if there is none, or it has an option without a default.
    """
    spec, options = find_declaration(OBJECTIVES, objective, {})
    ratios = torch.full((CLIENTS, DISEASES), 0.3, dtype=torch.float64)
    built: Objective = spec.build(options, Population(ratios[0], ratios))
    return built


#: Batches of a full pass over a client's images.
FULL_PASS = 3


class ExactGradients:
    """`Gradients` of a known function, on batches that differ by what `noise(number)` adds, if it is given.

    `function(primal, dual)` returns the exact gradients; the noise `[d + 2J]` of a batch is added to the first. A full
    pass is exact, and has the `loss(primal)`. For references of one's own: an algorithm against a plain loop.
    """

    rows = torch.zeros(0, dtype=torch.int64)
    logits = labels = remembered = torch.zeros(0, 0)

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        noise: Callable[[int], Tensor] | None = None,
        loss: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._function, self._noise, self._loss_of, self.batches = function, noise, loss, 0
        self.loss = torch.zeros((), dtype=torch.float64)

    def at(self, primal: Tensor, dual: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """On the batch of this number, counted from 1."""
        gradient, dual_gradient = self._function(primal, dual)
        return gradient if self._noise is None else gradient + self._noise(batch), dual_gradient

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.batches += 1
        return self.at(primal, dual, self.batches)

    def again(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        return self.at(primal, dual, self.batches)

    def over(self, primal: Tensor, dual: Tensor, batches: int) -> tuple[Tensor, Tensor]:
        parts = [self(primal, dual) for _ in range(batches)]
        first, second = (torch.stack(part).mean(dim=0) for part in zip(*parts, strict=True))
        return first, second

    def full(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        if self._loss_of is not None:
            self.loss = self._loss_of(primal)
        return self._function(primal, dual)

    def stream(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(0, purpose, self.batches))


class QuadraticClient:
    """A client of the engine with exact gradients, without a network and so without buffers.

    As with a network a gradient is overwritten by the next, unless `overwrites` is False. A batch is four images, whose
    logits are the first weights and shifts; of each row `remembered` numbers are remembered, as many of each disease.
    `reads` tells whether an algorithm has looked at them.
    """

    rows = torch.zeros(0, dtype=torch.int64)

    def __init__(self, name: str, problem: Quadratic, *, overwrites: bool = True, remembered: int = 0) -> None:
        self.name, self.images_seen, self.gradients_computed = name, 0, 0
        self.reads, self._remembered = False, remembered
        self._problem, self._drawn = problem, False
        self.memory = torch.zeros(0, 0)
        self.loss = torch.zeros((), dtype=torch.float64)
        self._slopes: list[Tensor] = []
        self._given, self._overwrites = (torch.zeros_like(problem.b), torch.zeros_like(problem.e)), overwrites

    @contextmanager
    def training(self, buffers: Tensor, shared: Tensor = NOTHING) -> Iterator[None]:
        self._slopes, self._drawn = [], False
        yield

    @property
    def oracle(self) -> Any:
        """Exact gradients, or the parts of compositional ones."""
        return self

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.images_seen += 1
        self._drawn = True
        return self._gradients(primal, dual)

    def again(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        if not self._drawn:
            raise TypeError("gradients.again: no batch was drawn in this round yet")
        return self._gradients(primal, dual)

    def over(self, primal: Tensor, dual: Tensor, batches: int) -> tuple[Tensor, Tensor]:
        for _ in range(batches):
            gradients = self(primal, dual)
        return gradients

    def full(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.gradients_computed += FULL_PASS - 1
        self.images_seen += FULL_PASS
        return self._gradients(primal, dual)

    def stream(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(stream_seed(0, self.name, purpose, self.images_seen))

    @property
    def logits(self) -> Tensor:
        self.reads = True
        return self._point[:DISEASES] + self._problem.b[0] * torch.arange(1.0, 5.0, dtype=torch.float64)[:, None]

    @property
    def labels(self) -> Tensor:
        self.reads = True
        return torch.tensor([[0, 1], [1, 0], [1, torch.nan], [0, 0]], dtype=torch.float64)

    @property
    def remembered(self) -> Tensor:
        return 1 + self.logits.square().repeat(1, self._remembered // DISEASES)

    def _gradients(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.gradients_computed += 1
        self._point = primal.detach().clone()
        self.loss = self._problem.loss(primal)
        for given, gradient in zip(self._given, self._problem.gradients(primal, dual), strict=True):
            given.copy_(gradient)
        self._slopes.append(self._given[0].clone())
        return self._given if self._overwrites else (self._given[0].clone(), self._given[1].clone())

    def inner(self, x: Tensor) -> Tensor:
        self.gradients_computed += 1
        return x / 2

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self(h, y)

    def pull_back(self, q: Tensor) -> Tensor:
        self.gradients_computed += 1
        return q / 2

    def buffers(self) -> Tensor:
        return torch.zeros(0, dtype=torch.float64)

    def mean_loss(self) -> float:
        return 0.0

    def mean_gradient(self) -> Tensor:
        return torch.stack(self._slopes).mean(dim=0)

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        """A quadratic has no running statistics."""

    def positions(self) -> list[int]:
        return []

    def seek(self, positions: Sequence[int]) -> None:
        """Nowhere to go."""

    def close(self) -> None:
        """Nothing to release."""

    def find_not_finite(self, primal: Tensor, dual: Tensor) -> str:
        """A quadratic is finite everywhere."""
        return ""

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        """The maximizer of this client's problem at `primal`."""
        return torch.linalg.solve(self._problem.d, self._problem.c.T @ primal + self._problem.e)
