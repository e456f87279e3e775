"""Weights of the clients in a mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

WeightMode = Literal["uniform", "sqrt", "images"]


def client_weights(rows: Sequence[int], mode: WeightMode) -> list[float]:
    """Weights of the clients in every mean, from their numbers of training rows; they sum to 1.

    uniform: 1/K each; sqrt: proportional to the square root of the rows; images: proportional to the rows.
    """
    if mode == "uniform":
        return [1 / len(rows)] * len(rows)
    sizes = [count**0.5 if mode == "sqrt" else count for count in rows]
    total = sum(sizes)
    return [size / total for size in sizes]
