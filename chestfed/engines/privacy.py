"""Differential privacy of whole clients: changes are clipped, and noise is added to their weighted mean, at the server.

DP-FedAvg of McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018, with
all clients in every round and fixed weights. Two studies are neighbors if they differ in what one client sends, which in
one of them is no change at all. The mean then moves by `clip` times the client's weight at most, so that each round is a
Gaussian mechanism of this sensitivity, and a study as many of them. A draw of some clients per round amplifies nothing,
because it follows from the seed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from chestfed.algorithms.variables import from_named_tensors, named_tensors
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream

Record = TypeVar("Record")


@dataclass(frozen=True)
class Privacy:
    """`seed`: of the noise, for runs that can be repeated; None: the system's entropy, which nobody can repeat.

    Whoever knows the seed can take the noise away again: only None protects.
    """

    clip: float
    noise_multiplier: float
    seed: int | None = None

    def __call__(self, updates: Sequence[Record], weights: Sequence[float], before: object, *name: str | int) -> Record:
        """What the server's step takes in place of the updates: their mean, clipped and with noise.

        `before` is what the server sent; a change is that of a tensor of the same name and shape, and of a tensor that was
        not sent a change from zero. All tensors of an update are one vector. `name` says which noise: the round.
        """
        sent, likes = named_tensors(before), named_tensors(updates[0])
        starts = {key: _start(sent.get(key), like) for key, like in likes.items()}
        mean = {key: start.clone() for key, start in starts.items()}
        for update, weight in zip(updates, weights, strict=True):
            changes = {key: tensor.double() - starts[key] for key, tensor in named_tensors(update).items()}
            length = float(torch.stack([change.square().sum() for change in changes.values()]).sum().sqrt())
            for key, change in changes.items():
                mean[key].add_(change, alpha=weight * min(1.0, self.clip / max(length, self.clip)))
        deviation = self.noise_multiplier * self.clip * max(weights)
        for key, start in mean.items():
            start.add_(self._normal(start, key, *name), alpha=deviation)
        return from_named_tensors(updates[0], {key: its.to(likes[key].dtype) for key, its in mean.items()})

    def _normal(self, like: Tensor, *name: str | int) -> Tensor:
        """Standard normal numbers in this shape, from 52 random bits each, by the inverse of the distribution."""
        size = 8 * like.numel()
        drawn = os.urandom(size) if self.seed is None else numpy_stream(self.seed, "privacy", *name).bytes(size)
        uniform = ((np.frombuffer(drawn, "<u8") >> 12) + 0.5) * 2.0**-52
        return torch.special.ndtri(torch.from_numpy(uniform)).reshape(like.shape).to(like)


def _start(sent: Tensor | None, like: Tensor) -> Tensor:
    return (
        sent.double() if sent is not None and sent.shape == like.shape else torch.zeros_like(like, dtype=torch.float64)
    )


def epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """What so many rounds spend: epsilon at this delta, by the Renyi accountant of Opacus.

    Raises
    ------
    ConfigError
        If Opacus is not installed.
    """
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise ConfigError('federated.privacy needs Opacus: pip install "chestfed[privacy]"') from None
    orders = (1 + np.geomspace(1e-3, 1e4, 400)).tolist()
    costs = rdp.compute_rdp(q=1.0, noise_multiplier=noise_multiplier, steps=rounds, orders=orders)
    return float(rdp.get_privacy_spent(orders=orders, rdp=costs, delta=delta)[0])
