"""Numbers as integers modulo 2^64, so that masks cancel to the last bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.variables import Message, from_named_tensors, named_tensors
from chestfed.learning.engines.messages.requests import Worked

#: Binary digits behind the point: a number is off by 2^-41 at most.
FRACTION_BITS = 40
_SCALE = float(1 << FRACTION_BITS)


def encode(values: np.ndarray, members: int) -> np.ndarray:
    """Numbers float `[n]` as uint64 `[n]`, such that the sum of `members` of them does not wrap around.

    Raises
    ------
    TrainingError
        If a number is NaN, infinite, or as large as 2^23 / `members`.
    """
    limit = 2.0 ** (63 - FRACTION_BITS) / members
    if not np.isfinite(values).all() or (np.abs(values) >= limit).any():
        raise TrainingError(
            f"secure sum: an update has a number that is not finite or not below {limit:.3g}", kind="update too large"
        )
    return np.rint(np.asarray(values, np.float64) * _SCALE).astype(np.int64).view(np.uint64)


def decode(total: np.ndarray) -> np.ndarray:
    """The sum uint64 `[n]` as numbers, float64 `[n]`."""
    return total.view(np.int64) / _SCALE


@dataclass(frozen=True)
class Masked:
    """A client's weighted numbers of a round as integers, masked or not: int64 `[n]`."""

    values: Tensor

    @classmethod
    def like(cls, worked: Worked[Message]) -> Masked:
        """That of an answer to local work."""
        size = sum(part.numel() for part in _parts(worked)) + _PLAIN
        return cls(torch.empty(size, dtype=torch.int64, device="meta"))


#: Numbers behind the tensors: weighted loss, gradients, images.
_PLAIN: Final = 3


def weigh(worked: Worked[Message], weight: float, members: int) -> np.ndarray:
    """A client's update, buffers and loss times its weight, and its counts, as `encode` gives them: uint64 `[n]`."""
    parts = [weight * part.detach().cpu().double().reshape(-1).numpy() for part in _parts(worked)]
    plain = np.array([weight * worked.loss, worked.gradients, worked.images], np.float64)
    return encode(np.concatenate([*parts, plain]), members)


def unweigh(total: np.ndarray, share: float, like: Worked[Message], device: torch.device) -> Worked[Message]:
    """The mean of the clients whose numbers are in a sum uint64 `[n]`; `share` is the sum of their weights.

    `like` has the shapes; `slope`, which is no part of the sum, is empty.
    """
    values, tensors, start = decode(total), list[Tensor](), 0
    for part in _parts(like):
        mean = torch.from_numpy(values[start : start + part.numel()] / share)
        tensors.append(mean.to(device, part.dtype).reshape(part.shape))
        start += part.numel()
    loss, gradients, images = values[start:]
    names = named_tensors(like.update)
    update = from_named_tensors(like.update, dict(zip(names, tensors[:-1], strict=True)))
    slope = torch.zeros(0, device=device)
    return Worked(update, tensors[-1], slope, float(loss) / share, round(gradients), round(images))


def _parts(worked: Worked[Message]) -> list[Tensor]:
    return [*named_tensors(worked.update).values(), worked.buffers]
