"""A client for the engines' tests whose gradients are exact and known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import Gradients
from chestfed.learning.engines.messages.requests import NOTHING
from tests.invariants import quadratic_saddle as saddle


class QuadraticClient:
    """A client of the saddle problem, with buffers that count its steps."""

    def __init__(self, name: str, problem: saddle.Saddle, poison_at: int | None = None, buffers: int = 2) -> None:
        self.name, self.images_seen, self.gradients_computed = name, 0, 0
        self._problem, self._exact = problem, problem.torch_gradients()
        self.rows, self.loss, self.stream = self._exact.rows, self._exact.loss, self._exact.stream
        self.logits, self.labels, self.remembered = torch.zeros(3, 0, 0)
        self._slopes: list[Tensor] = []
        self.memory = torch.zeros(0, 0)
        self._buffers = torch.zeros(buffers, dtype=torch.float64)
        self._poison_at = poison_at

    @contextmanager
    def training(self, buffers: Tensor, shared: Tensor = NOTHING) -> Iterator[None]:
        self._buffers, self._slopes = buffers.clone(), []
        yield

    @property
    def oracle(self) -> Gradients:
        return self

    def again(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.images_seen -= 7
        return self(primal, dual)

    def over(self, primal: Tensor, dual: Tensor, batches: int) -> tuple[Tensor, Tensor]:
        parts = [self(primal, dual) for _ in range(batches)]
        return parts[-1]

    def full(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        return self(primal, dual)

    def __call__(self, primal: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        self.images_seen += 7
        self.gradients_computed += 1
        self._buffers += len(self.name)
        grad_v, grad_alpha = self._exact(primal, dual)
        if self._poison_at is not None and self.images_seen >= self._poison_at:
            grad_v = grad_v * torch.nan
        self._slopes.append(grad_v)
        return grad_v, grad_alpha

    def buffers(self) -> Tensor:
        return self._buffers

    def mean_loss(self) -> float:
        return float(len(self.name))

    def mean_gradient(self) -> Tensor:
        return torch.stack(self._slopes).mean(dim=0)

    def gather_statistics(self, primal: Tensor, batches: int) -> None:
        self.images_seen += batches
        self._buffers = torch.full_like(self._buffers, float(primal.sum()) * len(self.name))

    def positions(self) -> list[int]:
        return []

    def seek(self, positions: Sequence[int]) -> None:
        pass

    def close(self) -> None:
        pass

    def find_not_finite(self, primal: Tensor, dual: Tensor) -> str:
        return ""

    def best_dual(self, primal: Tensor, dual: Tensor, batches: int) -> Tensor:
        self.images_seen += 50
        at_zero = self._exact(primal, torch.zeros_like(dual))[1]
        return torch.linalg.solve(torch.from_numpy(self._problem.c), at_zero)
