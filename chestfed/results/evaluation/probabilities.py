"""Probabilities of logits, in double precision and in the same order."""

from __future__ import annotations

import numpy as np

_ONE = np.float64(1).view(np.int64)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-logit)) of finite logits `[n, J]`, float64 `[n, J]`, different wherever the logits of a column are.

    Rounding gives all logits above 37 the same number, 1, and in single precision all above 17: that would make ties,
    and an AUC of one half out of a perfect order. Numbers that would coincide are moved to the next ones that a double
    can hold, so that each is off by 1e-16 times the number of rows at most.
    """
    result = np.empty(logits.shape)
    for column, values in enumerate(np.asarray(logits, np.float64).T):
        distinct, of_row = np.unique(values, return_inverse=True)
        with np.errstate(over="ignore"):
            rising = 1 / (1 + np.exp(-distinct))
        # Bit patterns of positive doubles, read as integers, are in their order and without gaps.
        steps, place = rising.view(np.int64), np.arange(len(rising))
        steps = np.maximum.accumulate(steps - place) + place
        steps = np.minimum.accumulate((np.minimum(steps, _ONE) - place)[::-1])[::-1] + place
        result[:, column] = steps.view(np.float64)[of_row.reshape(-1)]
    return result
