"""Numbers as integers modulo 2^64, so that masks cancel to the last bit."""

from __future__ import annotations

import numpy as np

from chestfed.core.errors import TrainingError

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
