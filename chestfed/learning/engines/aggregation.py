"""Alternatives to the mean of the clients' updates: robust to outliers, or private.

Trimmed mean and median of every number: Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning",
ICML 2018, Definitions 1 and 2; each client counts once. Norm clipping: Sun, Kairouz, Suresh, McMahan, "Can You Really
Backdoor Federated Learning?", 2019, with the median of the round's norms as the bound, which they leave to be chosen.

With clients that differ none of them is the mean, also if all are honest: rare diseases of few hospitals suffer first.

Differential privacy of whole clients: DP-FedAvg of McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private
Recurrent Language Models", ICLR 2018, with all clients in every round and fixed weights. Two studies are neighbors if
they differ in what one client sends, which in one of them leaves everything as it was. The mean then moves by `clip`
times the client's weight at most: each round is a Gaussian mechanism of this sensitivity, and a study as many of them.
A draw of some clients per round amplifies nothing, because it follows from the seed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from chestfed.core.bundled import install_command
from chestfed.core.errors import ConfigError, TrainingError
from chestfed.core.randomness import numpy_stream
from chestfed.learning.algorithms.variables import from_named_tensors, named_tensors, weighted_mean

AggregationRule = Literal["mean", "norm_clipping", "median", "trimmed_mean", "secure_sum"]
Record = TypeVar("Record")

WeightMode = Literal["uniform", "sqrt", "images"]

#: Of a secure sum: of two, each would learn the other's numbers from the sum.
LEAST_MEMBERS = 3
_BLOCK = 1 << 16  # numbers that are sorted at once


def client_weights(rows: Sequence[int], mode: WeightMode) -> list[float]:
    """Weights of the clients in every mean, from their numbers of training rows; they sum to 1.

    uniform: 1/K each; sqrt: proportional to the square root of the rows; images: proportional to the rows.
    """
    if mode == "uniform":
        return [1 / len(rows)] * len(rows)
    sizes = [count**0.5 if mode == "sqrt" else count for count in rows]
    total = sum(sizes)
    return [size / total for size in sizes]


@dataclass(frozen=True)
class Aggregation:
    """`trim` is the number of largest, and of smallest, values that a trimmed mean leaves out of every number."""

    rule: AggregationRule = "mean"
    trim: int = 1

    def needs(self) -> int:
        """The clients that a round needs."""
        return {"trimmed_mean": 2 * self.trim + 1, "secure_sum": LEAST_MEMBERS}.get(self.rule, 1)

    def __call__(
        self, updates: Sequence[Record], weights: Sequence[float], before: object
    ) -> tuple[Sequence[Record], Sequence[float]]:
        """What the server's step takes: updates and weights as they are, or one update in the place of all.

        `before` is what the server sent. A change is that of a tensor of the same name and shape; a tensor that was not
        sent is a change from zero.

        Raises
        ------
        TrainingError
            If too few clients answered.
        """
        if self.rule in ("mean", "secure_sum"):  # sums of integers are made by the fleet: what is left is a mean
            return updates, weights
        if len(updates) < self.needs():
            raise TrainingError(
                f"{self.rule} needs the updates of {self.needs()} clients; {len(updates)} came",
                kind="too few updates",
                needed=self.needs(),
                received=len(updates),
            )
        trim = self.trim if self.rule == "trimmed_mean" else (len(updates) - 1) // 2
        named, sent = [named_tensors(update) for update in updates], named_tensors(before)
        combined = {}
        for name, first in named[0].items():
            values = [tensors[name] for tensors in named]
            if self.rule == "norm_clipping":
                combined[name] = weighted_mean(clip_changes(values, _start(sent.get(name), first)), weights)
            else:
                combined[name] = trimmed_mean(values, trim)
        return [from_named_tensors(updates[0], combined)], [1.0]


MEAN = Aggregation()


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


@dataclass(frozen=True)
class Privacy:
    """`seed`: of the noise, for runs that can be repeated; None: the system's entropy, not reproducible.

    Whoever knows the seed can take the noise away again: only None protects.
    """

    clip: float
    noise_multiplier: float
    seed: int | None = None

    def __call__(self, updates: Sequence[Record], weights: Sequence[float], before: object, *name: str | int) -> Record:
        """What the server's step takes in place of the updates: their mean, clipped and with noise.

        `before` is what the server sent; a change is that of a tensor of the same name and shape, and of a tensor that
        was not sent a change from zero. All tensors of an update are one vector. `name` says which noise: the round.
        """
        sent, likes = named_tensors(before), named_tensors(updates[0])
        starts = {key: _start(sent.get(key), like).double() for key, like in likes.items()}
        mean = {key: start.clone() for key, start in starts.items()}
        for update, weight in zip(updates, weights, strict=True):
            changes = {key: tensor.double() - starts[key] for key, tensor in named_tensors(update).items()}
            length = float(torch.stack([change.square().sum() for change in changes.values()]).sum().sqrt())
            for key, change in changes.items():
                mean[key].add_(change, alpha=weight * min(1.0, self.clip / max(length, self.clip)))
        deviation = self.noise_multiplier * self.clip * max(weights)
        for key, start in mean.items():
            start.add_(self._normal(start, key, *name), alpha=deviation)
        return from_named_tensors(updates[0], {key: part.to(likes[key].dtype) for key, part in mean.items()})

    def _normal(self, like: Tensor, *name: str | int) -> Tensor:
        """Standard normal numbers in this shape, from 52 random bits each, by the inverse of the distribution."""
        size = 8 * like.numel()
        drawn = os.urandom(size) if self.seed is None else numpy_stream(self.seed, "privacy", *name).bytes(size)
        uniform = ((np.frombuffer(drawn, "<u8") >> 12) + 0.5) * 2.0**-52
        return torch.special.ndtri(torch.from_numpy(uniform)).reshape(like.shape).to(like)


def _start(sent: Tensor | None, like: Tensor) -> Tensor:
    return sent if sent is not None and sent.shape == like.shape else torch.zeros_like(like)


def epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """What so many rounds spend: epsilon at this delta, by the Renyi accountant of Opacus."""
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise ConfigError(f"federated.privacy needs Opacus: {install_command('privacy')}") from None
    orders = (1 + np.geomspace(1e-3, 1e4, 400)).tolist()
    costs = rdp.compute_rdp(q=1.0, noise_multiplier=noise_multiplier, steps=rounds, orders=orders)
    return float(rdp.get_privacy_spent(orders=orders, rdp=costs, delta=delta)[0])
