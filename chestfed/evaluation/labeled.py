"""Scores and labels of one test set, and the labeled images of each disease: what every number starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Column:
    """One disease's labeled images."""

    disease: str
    score: np.ndarray  #: float64 `[m]`
    positive: np.ndarray  #: bool `[m]`
    patient: np.ndarray  #: `[m]`, any values that identify a patient
    missing: int  #: n - m, the images without a label for this disease

    @property
    def positives(self) -> int:
        """Number of positive images, n+."""
        return int(self.positive.sum())

    @property
    def negatives(self) -> int:
        """Number of negative images, n-."""
        return len(self.positive) - self.positives

    @property
    def counts(self) -> dict[str, int]:
        """Positive, negative and missing images by these names."""
        return {"positives": self.positives, "negatives": self.negatives, "missing": self.missing}

    @property
    def reason(self) -> str:
        """Why there is no pair of a positive and a negative image; empty if there is one."""
        if self.positives == 0:
            return "no positive image" if self.negatives else "no labeled image"
        return "no negative image" if self.negatives == 0 else ""


@dataclass(frozen=True)
class Scored:
    """What one model makes of a test set."""

    #: scores, labels: `[n, J]`; labels in {0, 1, NaN}.
    scores: np.ndarray
    labels: np.ndarray
    patients: np.ndarray  #: `[n]`, any values that identify a patient
    diseases: Sequence[str]  #: the names of the J columns

    def columns(self) -> list[Column]:
        """The labeled images of each disease.

        Raises `ValueError` if the shapes differ, a label is another number, or a score of a labeled image is NaN.
        """
        scores, labels = self.scores, self.labels
        if scores.shape != labels.shape or scores.ndim != 2 or scores.shape[1] != len(self.diseases):
            raise ValueError(
                f"scores {scores.shape} and labels {labels.shape} do not fit {len(self.diseases)} diseases"
            )
        if len(self.patients) != len(labels):
            raise ValueError(f"{len(self.patients)} patients do not fit {len(labels)} images")
        return [self._column(j, disease) for j, disease in enumerate(self.diseases)]

    def _column(self, j: int, disease: str) -> Column:
        rows = np.flatnonzero(~np.isnan(self.labels[:, j]))
        label, score = self.labels[rows, j], self.scores[rows, j].astype(np.float64)
        other = label[(label != 0) & (label != 1)]
        if len(other):
            raise ValueError(f"labels of {disease} contain {other[0]}; they may be 0, 1 or NaN")
        if np.isnan(score).any():
            raise ValueError(f"scores of {disease} contain NaN")
        return Column(disease, score, label == 1, np.asarray(self.patients)[rows], len(self.labels) - len(rows))

    def where(self, rows: np.ndarray) -> Scored:
        """These rows alone, bool `[n]`."""
        return replace(self, scores=self.scores[rows], labels=self.labels[rows], patients=self.patients[rows])


def of_both_classes(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The diseases with an AUC: number of the column of `[n, J]`, labeled rows int `[m]`, which are positive `[m]`."""
    for j, column in enumerate(labels.T):
        known = np.flatnonzero(~np.isnan(column))
        positive = column[known] == 1
        if positive.any() and not positive.all():
            yield j, known, positive


def numbered(names: np.ndarray) -> np.ndarray:
    """A number per distinct name, from 0, in the order in which they first appear, int `[n]`."""
    return pd.factorize(np.asarray(names), use_na_sentinel=False)[0]
