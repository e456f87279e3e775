"""One package in the place of the clients': a robust mean.

Trimmed mean and median of every number: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning",
ICML 2018, Definitions 1 and 2; each client counts once. Norm clipping: Sun, Kairouz, Suresh, McMahan, "Can You Really
Backdoor Federated Learning?", 2019, with the median of the round's norms as the bound, which they leave to be chosen.

With clients that differ none of them is the mean, also if all are honest: rare diseases of few hospitals suffer first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.learning.abilities import Can, Demand
from chestfed.learning.algorithms.variables import from_named_tensors, named_tensors, weighted_mean
from chestfed.learning.exchange.step import Arrived, Place, Step, StepSpec, start_of

RobustRule = Literal["norm_clipping", "median", "trimmed_mean"]

_BLOCK = 1 << 16  # numbers that are sorted at once


@dataclass(frozen=True)
class RobustMean(Step):
    """`trim` is the number of largest, and of smallest, values that a trimmed mean leaves out of every number."""

    rule: RobustRule
    trim: int = 1
    key: ClassVar[str] = "aggregation"
    place: ClassVar[Place] = "mean"

    @property
    def least(self) -> int:
        """More than twice as many as are left out."""
        return 2 * self.trim + 1 if self.rule == "trimmed_mean" else 1

    @property
    def protects(self) -> frozenset[str]:
        """Clipping."""
        return frozenset({"clipping"} if self.rule == "norm_clipping" else ())

    @property
    def demand(self) -> Demand:
        alike = frozenset[Can]() if self.rule == "norm_clipping" else frozenset({Can.EQUAL_WEIGHTS})
        return Demand(self.key, alike | {Can.ROBUST, Can.EACH}, {Can.PLAIN_MEAN: f"the server takes the {self.rule}"})

    def describe(self) -> str:
        return f"mean of the updates: {self.rule}"

    def problems(self, clients: int, buffers: int) -> Iterator[str]:
        if clients < self.least:
            yield f"federated.trim: a trimmed mean of {clients} clients needs {self.least} or more; change k or trim"

    def at_server(self, arrived: Arrived) -> Arrived:
        """One package in the place of all.

        A change is that of a tensor of the same name and shape that the server sent; a tensor that was not sent is a
        change from zero.

        Raises
        ------
        TrainingError
            If too few clients answered.
        """
        parts, weights = arrived.parts, arrived.weights
        if len(parts) < self.least:
            raise TrainingError(
                f"{self.rule} needs the updates of {self.least} clients; {len(parts)} came",
                kind="too few updates",
                needed=self.least,
                received=len(parts),
            )
        trim = self.trim if self.rule == "trimmed_mean" else (len(parts) - 1) // 2
        named, sent = [named_tensors(part) for part in parts], named_tensors(arrived.before)
        combined = {}
        for name, first in named[0].items():
            values = [tensors[name] for tensors in named]
            if self.rule == "norm_clipping":
                combined[name] = weighted_mean(clip_changes(values, start_of(sent, name, first)), weights)
            else:
                combined[name] = trimmed_mean(values, trim)
        return arrived.combined(from_named_tensors(parts[0], combined))


def trimmed_mean(tensors: Sequence[Tensor], trim: int) -> Tensor:
    """The mean of every number over equal-shaped tensors, without the `trim` largest and the `trim` smallest values.

    Of n tensors it is the median with `trim` = (n - 1) // 2.
    """
    remaining = len(tensors) - 2 * trim
    blocks = zip(*(tensor.reshape(-1).split(_BLOCK) for tensor in tensors), strict=True)
    ordered = (torch.stack(block).sort(dim=0).values[trim : trim + remaining] for block in blocks)
    means = [weighted_mean(list(rows), [1 / remaining] * remaining) for rows in ordered]
    return torch.cat(means).reshape(tensors[0].shape)


def clip_changes(tensors: Sequence[Tensor], start: Tensor) -> list[Tensor]:
    """The tensors with no change from `start` longer than the median of their changes."""
    norms = [float((tensor - start).norm()) for tensor in tensors]
    bound = median(norms)
    return [
        start + (tensor - start) * (bound / norm) if norm > bound else tensor
        for tensor, norm in zip(tensors, norms, strict=True)
    ]


def build(values: Mapping[str, Any], seed: int = 0) -> Step | None:
    rule = values["aggregation"]
    if values["trim"] is not None and rule != "trimmed_mean":
        raise ValueError("trim: only aggregation: trimmed_mean leaves values out; remove trim")
    return None if rule == "mean" else RobustMean(rule, values["trim"] or 1)


def _refuse_removed(value: object) -> object:
    if value == "secure_sum":
        raise ValueError(
            "secure_sum was removed: single updates could be read from the sums. Use noise at the hospitals "
            "(policy: {noise: local}), or trust the server, with aggregation: mean"
        )
    return value


AGGREGATION = StepSpec(
    "aggregation",
    "what takes the place of the clients' mean",
    {
        "aggregation": (
            Annotated[Literal["mean", "norm_clipping", "median", "trimmed_mean"], BeforeValidator(_refuse_removed)],
            Field(
                "mean",
                description="how the server combines what the clients send. mean: with `weights`; norm_clipping: as "
                "mean, with larger changes scaled down to the median norm of the round; median, trimmed_mean: of every "
                "number, with equal weights. Not for algorithms that rely on the exact mean, such as codasca and "
                "scaffold",
            ),
        ),
        "trim": (
            Annotated[int, Field(ge=1)] | None,
            Field(
                None,
                description="number of largest, and of smallest, values that trimmed_mean leaves out; null: 1. A round "
                "needs more than twice as many clients",
            ),
        ),
    },
    build,
)
