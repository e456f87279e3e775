"""The labeled rows of each disease: what every metric starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Column:
    """One disease's labeled images.

    Attributes
    ----------
    score
        float64 `[m]`.
    positive
        bool `[m]`.
    missing
        n - m, the images without a label for this disease.
    """

    disease: str
    score: np.ndarray
    positive: np.ndarray
    missing: int

    @property
    def positives(self) -> int:
        """Number of positive images, n+."""
        return int(self.positive.sum())

    @property
    def negatives(self) -> int:
        """Number of negative images, n-."""
        return len(self.positive) - self.positives

    @property
    def reason(self) -> str:
        """Why there is no pair of a positive and a negative image; empty if there is one."""
        if self.positives == 0:
            return "no positive image"
        return "no negative image" if self.negatives == 0 else ""


def labeled_columns(scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str]) -> Iterator[Column]:
    """Columns of `scores` `[n, J]` where `labels` `[n, J]` in {0, 1, NaN} is known.

    Raises
    ------
    ValueError
        If the shapes differ, a label is another number, or a score of a labeled image is NaN.
    """
    if scores.shape != labels.shape or scores.ndim != 2 or scores.shape[1] != len(diseases):
        raise ValueError(f"scores {scores.shape} and labels {labels.shape} do not fit {len(diseases)} diseases")
    for j, disease in enumerate(diseases):
        rows = np.flatnonzero(~np.isnan(labels[:, j]))
        label, score = labels[rows, j], scores[rows, j].astype(np.float64)
        other = label[(label != 0) & (label != 1)]
        if len(other):
            raise ValueError(f"labels of {disease} contain {other[0]}; they may be 0, 1 or NaN")
        if np.isnan(score).any():
            raise ValueError(f"scores of {disease} contain NaN")
        yield Column(disease, score, label == 1, len(labels) - len(rows))


def numbered(names: np.ndarray) -> np.ndarray:
    """A number per distinct name, from 0, in the order in which they first appear, int `[n]`."""
    _, first, of_row = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[of_row.reshape(-1)]
