"""What server and hospital tell each other besides the requests of stage 2: numbers, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from chestfed.engines.shapes import Shapes
from chestfed.objectives.declaration import Population
from chestfed.training.assemble import Cohort


@dataclass(frozen=True)
class Counts:
    """Of a hospital: share of positives per disease, -1 without labels, and of labeled images, float64 `[J]`."""

    ratios: Tensor
    labeled: Tensor

    @classmethod
    def like(cls, diseases: int) -> Counts:
        """Without numbers."""
        return cls(_empty(torch.float64, diseases), _empty(torch.float64, diseases))


@dataclass(frozen=True)
class TestLabels:
    """Of the test images: labels float32 `[n, J]`, -1 for missing, and which rows are of one patient, int64 `[n]`."""

    __test__ = False  # not a test class, whatever pytest thinks of the name

    labels: Tensor
    numbers: Tensor

    @classmethod
    def like(cls, images: int, diseases: int) -> TestLabels:
        """Without numbers."""
        return cls(_empty(torch.float32, images, diseases), _empty(torch.int64, images))


@dataclass(frozen=True)
class Network:
    """Parameters float32 `[d]` and buffers float32 `[b]`."""

    parameters: Tensor
    buffers: Tensor

    @classmethod
    def like(cls, parameters: int, buffers: int) -> Network:
        """Without numbers."""
        return cls(_empty(torch.float32, parameters), _empty(torch.float32, buffers))


@dataclass(frozen=True)
class Beginning:
    """Of stage 2: the counts of the K hospitals, float64 `[K, J]`, and the network after stage 1."""

    ratios: Tensor
    labeled: Tensor
    parameters: Tensor
    buffers: Tensor

    @classmethod
    def like(cls, k: int, diseases: int, parameters: int, buffers: int) -> Beginning:
        """Without numbers."""
        network = _empty(torch.float32, parameters), _empty(torch.float32, buffers)
        return cls(_empty(torch.float64, k, diseases), _empty(torch.float64, k, diseases), *network)


@dataclass(frozen=True)
class Scores:
    """Probabilities of the test images, float64 `[n, J]`, and the buffers float32 `[b]` that they are of."""

    scores: Tensor
    buffers: Tensor

    @classmethod
    def like(cls, images: int, diseases: int, buffers: int) -> Scores:
        """Without numbers."""
        return cls(_empty(torch.float64, images, diseases), _empty(torch.float32, buffers))


def shapes_of(cohort: Cohort, parameters: int, buffers: int, number: int) -> Shapes:
    """What the requests and replies of a client of the cohort look like, for a network with so many numbers."""
    k, j = cohort.k, len(cohort.population.positive_ratio)
    blank = Population(_empty(torch.float32, j), _empty(torch.float32, k, j), labeled=_empty(torch.float32, k, j))
    blind = replace(cohort, population=blank)
    objective, composed = blind.objective(), cohort.settings.objective_spec.kind == "compositional"
    size, dual = parameters + objective.extra_size, objective.dual_size
    return Shapes(blind.rule(0), size, dual, buffers, composed, 1 + composed, cohort.graph, number)


def without_nan(values: np.ndarray) -> Tensor:
    """-1 in place of NaN, which is not sent."""
    return torch.from_numpy(np.where(np.isnan(values), -1, values).astype(values.dtype))


def with_nan(values: Tensor) -> np.ndarray:
    """The inverse of `without_nan`."""
    return torch.where(values < 0, torch.nan, values).numpy()


def _empty(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
