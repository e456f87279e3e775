"""Norms and spread of the clients' updates, as the server takes them: a guard against updates that are too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import blocks, weighted_mean
from chestfed.learning.exchange.step import Arrived, Place, Step, is_empty


@dataclass(frozen=True)
class Statistics(Step):
    """Fills in `Arrived.sizes` and `drift`."""

    key: ClassVar[str] = "statistics"
    place: ClassVar[Place] = "statistics"

    def describe(self) -> str:
        return ""

    def at_server(self, arrived: Arrived) -> Arrived:
        if any(map(is_empty, arrived.updates)):
            return arrived
        vectors = [update.primal for update in arrived.updates]
        return replace(arrived, sizes=[float(vector.norm()) for vector in vectors], drift=spread(vectors))


def spread(vectors: Sequence[Tensor]) -> float:
    """Mean squared distance to the mean."""
    mean = weighted_mean(vectors, [1 / len(vectors)] * len(vectors))
    sums = [(vector[block] - mean[block]).square_().sum() for block in blocks(mean) for vector in vectors]
    return float(torch.stack(sums).sum(dtype=torch.float64)) / len(vectors) if sums else 0.0
