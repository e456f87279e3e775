"""Parts of a batch: the network computes each on its own, and their gradients are added in order.

The loss is of the logits of all parts: that of the whole batch. Whoever computes a part, the bits are the same; without
parts they are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn


class Parts:
    """The parts of every batch, `count` of them, of which this process computes its `own`: all."""

    synchronized = False  #: whether the network sees the whole batch: a part without images goes through it too

    def __init__(self, count: int = 1) -> None:
        self.count, self.own = count, range(count)

    def synchronize(self, module: nn.Module) -> AbstractContextManager[None]:
        """A block in which the layers of a network see the whole batch, if the parts are `synchronized`."""
        return nullcontext()

    def lengths(self, images: int) -> list[int]:
        """Images of each of the own parts of a batch of so many."""
        return [len(places) for places in self._cut(images)]

    def select(self, images: int) -> np.ndarray:
        """Places of the own parts' images in a batch of so many, int `[n]`."""
        return np.concatenate(self._cut(images))

    def join(self, logits: Sequence[Tensor], images: int) -> Tensor:
        """Logits `[images, J]` of all parts, of which these are the own ones; without their graph."""
        return torch.cat([part.detach() for part in logits])

    def add(self, gradients: Iterable[Tensor]) -> Tensor:
        """The sum of all parts' gradients `[d]`, of which these are the own ones; each is overwritten by the next."""
        total: Tensor | None = None
        for gradient in gradients:
            total = gradient.clone() if total is None else total.add_(gradient)
        assert total is not None
        return total

    def _cut(self, images: int) -> list[np.ndarray]:
        places = np.array_split(np.arange(images), self.count)
        return [places[number] for number in self.own]
