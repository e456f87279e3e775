"""Calibration: do scores mean the probabilities that they look like?

Scores are taken for probabilities of the disease, in [0, 1]. A model trained for the AUC only promises an order, so
poor figures here are no fault of its ranking. A disease with labels of one class is still judged: the observed rate is
then 0 or 1.

Bins. `equal-width` cuts [0, 1] into equal parts, each with its upper end (the first with 0 as well), as in C. Guo et
al.: On calibration of modern neural networks, ICML 2017; 15 by default, as there. `equal-mass` puts equally many images
into each, images of the same score always together, and is the steadier of the two when nearly all scores are small,
as they are for a rare disease; it is the default of the curve. Bins without images are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from chestfed.evaluation.labeled import labeled_columns

Binning = Literal["equal-width", "equal-mass"]

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
class DiseaseReliability:
    """Reliability curve of one disease, by rising score; empty if no image has a label."""

    disease: str
    bins: tuple[Bin, ...]
    missing: int
    reason: str = ""


@dataclass(frozen=True)
class DiseaseCalibration:
    """Calibration of one disease; None without a labeled image, and `reason` says so.

    Attributes
    ----------
    ece_equal_width, ece_equal_mass
        Expected calibration error: mean over images of |mean score - observed rate| of the image's bin.
    brier
        Mean squared difference of score and label = reliability - resolution + uncertainty + within_bins.
    reliability
        Mean over images of (mean score - observed rate)^2 of the bin: 0 is calibrated. Equal-mass bins.
    resolution
        Mean over images of (observed rate of the bin - rate overall)^2: how far the bins are apart.
    uncertainty
        rate (1 - rate): what the rate alone would score.
    within_bins
        What Murphy's three parts (1973) leave out because scores differ within a bin: variance of the scores less twice
        their covariance with the label, within bins (D. B. Stephenson et al., Weather and Forecasting 23, 2008).
    """

    disease: str
    ece_equal_width: float | None
    ece_equal_mass: float | None
    brier: float | None
    reliability: float | None
    resolution: float | None
    uncertainty: float | None
    within_bins: float | None
    positives: int
    negatives: int
    missing: int
    reason: str = ""


def calibration_per_disease(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], bins: int = BINS
) -> list[DiseaseCalibration]:
    """ECE, Brier score and its parts of each column of `scores` `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}.

    Raises
    ------
    ValueError
        If a score of a labeled image is outside [0, 1], besides what `auc_per_disease` raises.
    """
    results = []
    for disease, score, positive, missing in _columns(scores, labels, diseases, bins):
        counts = (int(positive.sum()), int((~positive).sum()), missing)
        if not len(score):
            results.append(_nothing(disease, *counts, "no labeled image"))
            continue
        label = positive.astype(float)
        share, mean_score, observed = _per_bin(_bin_of(score, bins, "equal-width"), score, label)
        ece_width = float(share @ np.abs(mean_score - observed))
        of_bin = _bin_of(score, bins, "equal-mass")
        share, mean_score, observed = _per_bin(of_bin, score, label)
        ece_mass = float(share @ np.abs(mean_score - observed))
        rate = label.mean()
        brier = float(((score - label) ** 2).mean())
        reliability = float(share @ (mean_score - observed) ** 2)
        resolution = float(share @ (observed - rate) ** 2)
        uncertainty = float(rate * (1 - rate))
        apart, beside = score - mean_score[of_bin], label - observed[of_bin]
        within = float((apart**2 - 2 * apart * beside).mean())
        parts = (brier, reliability, resolution, uncertainty, within)
        results.append(DiseaseCalibration(disease, ece_width, ece_mass, *parts, *counts))
    return results


def uncalibrated(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str]
) -> list[tuple[DiseaseCalibration, DiseaseReliability]]:
    """What is said of scores `[n, J]` that are an order and no probabilities; raises as `auc_per_disease`."""
    return [
        (
            _nothing(one.disease, one.positives, one.negatives, one.missing, NO_PROBABILITIES),
            DiseaseReliability(one.disease, (), one.missing, NO_PROBABILITIES),
        )
        for one in labeled_columns(scores, labels, diseases)
    ]


def reliability_per_disease(
    scores: np.ndarray,
    labels: np.ndarray,
    diseases: Sequence[str],
    bins: int = BINS,
    binning: Binning = "equal-mass",
) -> list[DiseaseReliability]:
    """Reliability curve of each column; raises as `calibration_per_disease`."""
    results = []
    for disease, score, positive, missing in _columns(scores, labels, diseases, bins):
        if not len(score):
            results.append(DiseaseReliability(disease, (), missing, "no labeled image"))
            continue
        share, mean_score, observed = _per_bin(_bin_of(score, bins, binning), score, positive.astype(float))
        points = zip(mean_score, observed, np.rint(share * len(score)), strict=True)
        curve = tuple(Bin(float(mean), float(rate), int(count)) for mean, rate, count in points)
        results.append(DiseaseReliability(disease, curve, missing))
    return results


def _nothing(disease: str, positives: int, negatives: int, missing: int, reason: str) -> DiseaseCalibration:
    """No numbers, and why."""
    return DiseaseCalibration(
        disease, None, None, None, None, None, None, None, positives, negatives, missing, reason=reason
    )


def _columns(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], bins: int
) -> list[tuple[str, np.ndarray, np.ndarray, int]]:
    if bins < 1:
        raise ValueError(f"there must be at least one bin, not {bins}")
    found = []
    for column in labeled_columns(scores, labels, diseases):
        outside = column.score[(column.score < 0) | (column.score > 1)]
        if len(outside):
            raise ValueError(f"scores of {column.disease} contain {outside[0]}, which is not a probability")
        found.append((column.disease, column.score, column.positive, column.missing))
    return found


def _bin_of(score: np.ndarray, bins: int, binning: Binning) -> np.ndarray:
    """Number of each image's bin `[m]`, from 0, without gaps, rising with the score."""
    if binning == "equal-width":
        number = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], score, side="left")
    else:
        # The first place of a score among the sorted ones decides, so that equal scores share a bin.
        number = np.searchsorted(np.sort(score), score, side="left") * bins // len(score)
    return np.unique(number, return_inverse=True)[1]


def _per_bin(of_bin: np.ndarray, score: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share of the images, mean score and observed rate of each bin."""
    count = np.bincount(of_bin)
    return count / len(score), np.bincount(of_bin, score) / count, np.bincount(of_bin, label) / count
