"""Calibration: do scores mean the probabilities that they look like?

Scores are taken for probabilities of the disease, in [0, 1]. A model trained for the AUC only promises an order, so
poor figures here are not a fault of its ranking. A disease with labels of one class is still judged: the observed rate
is then 0 or 1.

Bins are of equally many images, images of the same score always together: bins of equal width would be empty or full
where nearly all scores are small, as they are for a rare disease. There are 15, as in C. Guo et al.: On calibration of
modern neural networks, ICML 2017. Bins without images are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chestfed.results.evaluation.labeled import Column

#: Why scores that are no more than an order have no calibration.
NO_PROBABILITIES = "the scores are an order, not probabilities"
#: Bins in Guo et al.
BINS = 15


@dataclass(frozen=True)
class Bin:
    """One point of a reliability curve: mean score and observed rate of the positive label over `count` images."""

    mean_score: float
    observed_rate: float
    count: int


@dataclass(frozen=True)
class Calibration:
    """Calibration of one disease."""

    brier: float  #: mean squared difference of score and label = reliability - resolution + uncertainty + within_bins
    ece: float  #: expected calibration error: mean over images of |mean score - observed rate| of the image's bin
    #: Mean over images of (mean score - observed rate)^2 of the bin: 0 is calibrated.
    reliability: float
    resolution: float  #: mean over images of (observed rate of the bin - rate overall)^2: how far the bins are apart
    uncertainty: float  #: rate (1 - rate): what the rate alone would score
    #: Part that Murphy's three (1973) leave out because scores differ within a bin: variance of the scores less twice
    #: their covariance with the label, within bins (D. B. Stephenson et al., Weather and Forecasting 23, 2008).
    within_bins: float


def calibration(column: Column, bins: int = BINS) -> Calibration | None:
    """ECE, Brier score and its parts; None without a labeled image.

    Raises `ValueError` if a score is outside [0, 1].
    """
    _check(column, bins)
    score, label = column.score, column.positive.astype(float)
    if not len(score):
        return None
    of_bin = assign_bins(score, bins)
    share, mean_score, observed = _per_bin(of_bin, score, label)
    rate, apart, beside = label.mean(), score - mean_score[of_bin], label - observed[of_bin]
    return Calibration(
        brier=float(((score - label) ** 2).mean()),
        ece=float(share @ np.abs(mean_score - observed)),
        reliability=float(share @ (mean_score - observed) ** 2),
        resolution=float(share @ (observed - rate) ** 2),
        uncertainty=float(rate * (1 - rate)),
        within_bins=float((apart**2 - 2 * apart * beside).mean()),
    )


def reliability(column: Column, bins: int = BINS) -> list[Bin]:
    """Reliability curve by rising score, empty without a labeled image; raises as `calibration`."""
    _check(column, bins)
    if not len(column.score):
        return []
    of_bin = assign_bins(column.score, bins)
    _, mean_score, observed = _per_bin(of_bin, column.score, column.positive.astype(float))
    points = zip(mean_score, observed, np.bincount(of_bin), strict=True)
    return [Bin(float(mean), float(rate), int(count)) for mean, rate, count in points]


def _check(column: Column, bins: int) -> None:
    if bins < 1:
        raise ValueError(f"there must be at least one bin, not {bins}")
    outside = column.score[(column.score < 0) | (column.score > 1)]
    if len(outside):
        raise ValueError(f"scores of {column.disease} contain {outside[0]}, which is not a probability")


def assign_bins(score: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Number of each image's bin `[m]`, from 0, without gaps, rising with the score."""
    # The first place of a score among the sorted ones decides, so that equal scores share a bin.
    number = np.searchsorted(np.sort(score), score, side="left") * bins // len(score)
    return np.unique(number, return_inverse=True)[1]


def _per_bin(of_bin: np.ndarray, score: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share of the images, mean score and observed rate of each bin."""
    count = np.bincount(of_bin)
    return count / len(score), np.bincount(of_bin, score) / count, np.bincount(of_bin, label) / count
