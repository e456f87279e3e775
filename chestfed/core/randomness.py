"""Named random streams from one seed.

Every random decision has a name (who, what for, which one); its generator is a function of the seed and that
name alone. So no generator state has to be saved: a checkpoint holds counters, and the order in which
clients run, or how many processes decode images, changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

#: The largest seed: tables hold 64-bit integers.
MOST_SEED: Final = 2**63 - 1


def stream_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed that depends on `seed` and on every part of `name`, in order."""
    return int.from_bytes(_digest(8, seed, *name), "big") >> 1


def numpy_stream(seed: int, *name: str | int) -> np.random.Generator:
    """A NumPy generator for the decision called `name`."""
    return np.random.default_rng(stream_seed(seed, *name))


def uniforms(count: int, seed: int, *name: str | int) -> np.ndarray:
    """Up to eight numbers from [0, 1) for the decision called `name`, float64 `[count]`.

    They are taken from the digest itself: a generator would cost ten times as much, which counts for every image.
    """
    return (np.frombuffer(_digest(8 * count, seed, *name), "<u8") >> 11) * 2.0**-53


def _digest(size: int, seed: int, *name: str | int) -> bytes:
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in name)])
    return hashlib.blake2b(text.encode(), digest_size=size).digest()
