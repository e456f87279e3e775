"""What takes the place of the mean of the clients' updates, so that a few false ones do little.

Trimmed mean and median of every number: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning",
ICML 2018, Definitions 1 and 2; each client counts once. Norm clipping: Sun, Kairouz, Suresh, McMahan, "Can You Really
Backdoor Federated Learning?", 2019, with the median of the round's norms as the bound, which they leave to be chosen.

With clients that differ none of them is the mean, also if all are honest: rare diseases of few hospitals suffer first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from chestfed.algorithms.variables import from_named_tensors, named_tensors, weighted_mean
from chestfed.core.errors import TrainingError

AggregationRule = Literal["mean", "norm_clipping", "median", "trimmed_mean"]
Record = TypeVar("Record")

_BLOCK = 1 << 16  # numbers that are sorted at once


@dataclass(frozen=True)
class Aggregation:
    """`trim` is the number of largest, and of smallest, values that a trimmed mean leaves out of every number."""

    rule: AggregationRule = "mean"
    trim: int = 1

    def needs(self) -> int:
        """The clients that a round needs."""
        return 2 * self.trim + 1 if self.rule == "trimmed_mean" else 1

    def __call__(
        self, updates: Sequence[Record], weights: Sequence[float], before: Any
    ) -> tuple[Sequence[Record], Sequence[float]]:
        """What the server's step takes: updates and weights as they are, or one update in the place of all.

        `before` is what the server sent. A change is that of a tensor of the same name and shape; a tensor that was not
        sent is a change from zero.

        Raises
        ------
        TrainingError
            If too few clients answered.
        """
        if self.rule == "mean":
            return updates, weights
        if len(updates) < self.needs():
            raise TrainingError(f"{self.rule} needs the updates of {self.needs()} clients; {len(updates)} came")
        trim = self.trim if self.rule == "trimmed_mean" else (len(updates) - 1) // 2
        named, sent = [named_tensors(update) for update in updates], named_tensors(before)
        tensors = {}
        for name, first in named[0].items():
            values = [one[name] for one in named]
            if self.rule == "norm_clipping":
                start = sent.get(name)
                start = start if start is not None and start.shape == first.shape else torch.zeros_like(first)
                tensors[name] = weighted_mean(clipped(values, start), weights)
            else:
                tensors[name] = trimmed_mean(values, trim)
        return [from_named_tensors(updates[0], tensors)], [1.0]


MEAN = Aggregation()


def trimmed_mean(tensors: Sequence[Tensor], trim: int) -> Tensor:
    """The mean of every number over equal-shaped tensors, without the `trim` largest and the `trim` smallest values.

    Of n tensors it is the median with `trim` = (n - 1) // 2.
    """
    kept = len(tensors) - 2 * trim
    blocks = zip(*(tensor.reshape(-1).split(_BLOCK) for tensor in tensors), strict=True)
    ordered = (torch.stack(block).sort(dim=0).values[trim : trim + kept] for block in blocks)
    means = [weighted_mean(list(rows), [1 / kept] * kept) for rows in ordered]
    return torch.cat(means).reshape(tensors[0].shape)


def clipped(tensors: Sequence[Tensor], start: Tensor) -> list[Tensor]:
    """The tensors with no change from `start` longer than the median of their changes."""
    norms = [float((tensor - start).norm()) for tensor in tensors]
    bound = median(norms)
    return [
        start + (tensor - start) * (bound / norm) if norm > bound else tensor
        for tensor, norm in zip(tensors, norms, strict=True)
    ]
