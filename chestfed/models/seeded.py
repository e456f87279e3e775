"""Random numbers inside foreign code: weights that a factory draws, dropout, stochastic depth."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """In this block, whatever is drawn from a global generator is a function of `seed`; after it, they are as before.

    The generators are torch's (on the CPU and on `device`), NumPy's legacy one and Python's.
    """
    cuda = [device] if device is not None and device.type == "cuda" else []
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for one in cuda:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
