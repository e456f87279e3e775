"""Clipping and noise: differential privacy of whole clients.

DP-FedAvg of McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
with all clients in every round and fixed weights. Two studies are neighbors if they differ in what one client sends,
which in one of them leaves everything as it was. The mean then moves by `clip` times the client's weight at most: each
round is a Gaussian mechanism of this sensitivity, and a study as many of them. A draw of some clients per round
amplifies nothing, because it follows from the seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from chestfed.core.bundled import install_command
from chestfed.core.config import StrictModel
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.learning.abilities import Can, Demand
from chestfed.learning.algorithms.variables import from_named_tensors, named_tensors, weighted_mean
from chestfed.learning.exchange.step import Arrived, Package, Place, Step, StepSpec, is_empty, start_of


class PrivacyOptions(StrictModel):
    """Client-level differential privacy of the weights that stage 2 returns; docs/privacy.md says what it protects."""

    clip: float = Field(
        gt=0, description="largest norm of a client's change in a round; larger ones are scaled down to it [C]"
    )
    noise_multiplier: float = Field(
        gt=0, description="standard deviation of the noise, relative to the most that one client can move the mean [z]"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="the delta for which epsilon is reported [delta]")
    noise: Literal["secret", "seed"] = Field(
        "secret",
        description="source of the noise. secret: the system's entropy, so that no two runs are equal; seed: the "
        "study's `seed`, the same bits with every engine. Only to measure what the noise "
        "costs: it protects nothing, because the run folder has the seed",
    )


@dataclass(frozen=True)
class Noise(Step):
    """`seed`: of the noise, for runs that can be repeated; None: the system's entropy, not reproducible.

    Whoever knows the seed can take the noise away again: only None protects.
    """

    clip: float
    noise_multiplier: float
    seed: int | None = None
    delta: float = 1e-5
    key: ClassVar[str] = "privacy"
    place: ClassVar[Place] = "mean"

    @property
    def protects(self) -> frozenset[str]:
        """Clipping; and noise, unless its seed is known."""
        return frozenset({"clipping"} if self.seed is not None else {"clipping", "noise"})

    @property
    def takes_buffers(self) -> bool:
        """They would leave without noise."""
        return False

    @property
    def demand(self) -> Demand:
        alone = {Can.ROBUST, Can.EACH, Can.PLAIN_MEAN, Can.NUMBERS, Can.ONE_MESSAGE}
        return Demand(self.key, frozenset(alone | {Can.ONE_POINT, Can.OWN_DUALS, Can.FIXED_WEIGHTS}))

    def describe(self) -> str:
        known = "" if self.seed is None else " (from the seed: it protects nothing)"
        return f"clipped to {self.clip:g}, noise {self.noise_multiplier:g} times that{known}"

    def problems(self, clients: int, buffers: int) -> Iterator[str]:
        self.account(1)  # refuses if there is no accountant
        if buffers:
            yield "model.norm: running statistics would leave without noise (federated.privacy); set group"

    def account(self, rounds: int) -> dict[str, float]:
        """Epsilon."""
        return {"epsilon": epsilon(self.noise_multiplier, rounds, self.delta)}

    def at_server(self, arrived: Arrived) -> Arrived:
        """The mean of the updates, clipped and with noise, in the place of all.

        A change is that of a tensor of the same name and shape that the server sent; of a tensor that was not sent it
        is a change from zero. All tensors of an update are one vector.
        """
        updates = arrived.updates
        if any(map(is_empty, updates)):
            return arrived
        sent, likes = named_tensors(arrived.before.update), named_tensors(updates[0])
        starts = {key: start_of(sent, key, like).double() for key, like in likes.items()}
        mean = {key: start.clone() for key, start in starts.items()}
        for update, weight in zip(updates, arrived.weights, strict=True):
            changes = {key: tensor.double() - starts[key] for key, tensor in named_tensors(update).items()}
            length = float(torch.stack([change.square().sum() for change in changes.values()]).sum().sqrt())
            for key, change in changes.items():
                mean[key].add_(change, alpha=weight * min(1.0, self.clip / max(length, self.clip)))
        deviation = self.noise_multiplier * self.clip * max(arrived.weights)
        for key, start in mean.items():
            start.add_(self._normal(start, key, *arrived.place), alpha=deviation)
        buffers = weighted_mean([part.buffers for part in arrived.parts], arrived.weights)
        noisy = from_named_tensors(updates[0], {key: part.to(likes[key].dtype) for key, part in mean.items()})
        return arrived.combined(Package(noisy, buffers))

    def _normal(self, like: Tensor, *name: str | int) -> Tensor:
        """Standard normal numbers in this shape, from 52 random bits each, by the inverse of the distribution."""
        size = 8 * like.numel()
        drawn = os.urandom(size) if self.seed is None else numpy_stream(self.seed, "privacy", *name).bytes(size)
        uniform = ((np.frombuffer(drawn, "<u8") >> 12) + 0.5) * 2.0**-52
        return torch.special.ndtri(torch.from_numpy(uniform)).reshape(like.shape).to(like)


def epsilon(noise_multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon that so many rounds spend at this delta, by the Renyi accountant of Opacus."""
    return compose_epsilon({noise_multiplier: rounds}, delta)


def compose_epsilon(rounds: Mapping[float, int], delta: float) -> float:
    """Epsilon that rounds spend together, given as their numbers by noise multiplier."""
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise ConfigError(f"federated.privacy needs Opacus: {install_command('privacy')}") from None
    orders = (1 + np.geomspace(1e-3, 1e4, 400)).tolist()
    costs = sum(
        rdp.compute_rdp(q=1.0, noise_multiplier=multiplier, steps=steps, orders=orders)
        for multiplier, steps in rounds.items()
    )
    return float(rdp.get_privacy_spent(orders=orders, rdp=costs, delta=delta)[0])


def build(values: Mapping[str, Any], seed: int = 0) -> Noise | None:
    chosen = values["privacy"]
    if chosen is None:
        return None
    return Noise(chosen.clip, chosen.noise_multiplier, seed if chosen.noise == "seed" else None, chosen.delta)


PRIVACY = StepSpec(
    "privacy",
    "clipping and noise",
    {
        "privacy": (
            PrivacyOptions | None,
            Field(
                None,
                description="noise that hides a client's part in the weights; null: none. Needs the extra `privacy`, "
                "and an algorithm whose server takes only the mean",
            ),
        )
    },
    build,
)
