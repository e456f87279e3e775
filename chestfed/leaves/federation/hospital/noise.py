"""Clipping and noise at the hospital (`policy: {noise: local}`), before an update leaves: also the server sees it so.

What is protected is the whole hospital: a round's change is scaled down to a length of `noise_clip`, and normal noise
of `noise_multiplier` times that is added to every number. The accountant counts each round that was begun, repeated
ones too, with the multiplier that it had.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.variables import Record
from chestfed.learning.engines.messages.requests import Worked
from chestfed.learning.exchange.noise import Noise, compose_epsilon
from chestfed.learning.exchange.step import Arrived, Package
from chestfed.leaves.federation.parcels import Refused
from chestfed.leaves.federation.settings import Policy
from chestfed.studies.experiment.pipeline import Pipeline


def add_noise(policy: Policy, worked: Worked[Any], message: Record) -> Worked[Any]:
    """An answer to local work on `message`, with its update clipped and noised, and without mean gradient and loss."""
    buffers = worked.buffers
    arrived = Arrived([Package(worked.update, buffers)], [1.0], Package(message, buffers))
    (noisy,) = Noise(policy.noise_clip, policy.noise_multiplier).at_server(arrived).parts
    return replace(worked, update=noisy.update, slope=torch.zeros_like(worked.slope), loss=0.0)


def check_epsilon(policy: Policy, rounds: int, noised: Mapping[float, int]) -> float:
    """Compute the epsilon of a study after one more round; raises `Refused` beyond the policy's limit.

    `rounds` were begun before, of which `noised` by noise multiplier; it is infinite if there are others.
    """
    multiplier = policy.noise_multiplier
    known = rounds == sum(noised.values())
    spent = compose_epsilon({**noised, multiplier: noised.get(multiplier, 0) + 1}, policy.noise_delta)
    spent = spent if known else math.inf
    if policy.most_epsilon is not None and spent > policy.most_epsilon:
        others = "" if known else "; there were rounds without noise, or of which it was not written down"
        raise Refused(f"the hospital's policy: most_epsilon is {policy.most_epsilon:g}{others}", kind="policy")
    return spent


def list_unnoised(pipeline: Pipeline, place: int) -> Iterator[str]:
    """Why numbers would leave this hospital without noise, if there is any reason."""
    settings = pipeline.federated
    reasons = {
        f"{settings.spec.name} sends more than its server averages": Can.ROBUST not in settings.spec.can,
        f"{settings.spec.name} has points of its clients": Can.OWN_POINTS in settings.spec.can,
        "encoded numbers cannot be noised": any(step.place == "code" for step in settings.exchange().steps),
        "stage_output algorithm sends more": settings.stage_output == "algorithm",
        "stage 1 is trained here": place == 0 and bool(pipeline.pretrain.epochs),
    }
    yield from (reason for reason, applies in reasons.items() if applies)


def check_buffers(policy: Policy, buffers: int) -> None:
    """Refuse a network with running statistics, which would leave without noise; raises `Refused`."""
    if policy.noise == "local" and buffers:
        text = "noise is local, and running statistics would leave without: set model.norm to group"
        raise Refused(text, kind="policy")
