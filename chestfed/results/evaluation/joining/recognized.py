"""Meaning of a difference of AUCs in patients: findings recognized at a fixed specificity, by two models.

Per disease the threshold of each model is the one with the highest sensitivity among those with that specificity on
these very images, so both counts are flattering, and alike. Findings of all diseases are added up, at the prevalence
of the test images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from chestfed.core.randomness import numpy_stream
from chestfed.results.evaluation.intervals.bootstrap import draw_patients
from chestfed.results.evaluation.labeled import Column
from chestfed.results.evaluation.metrics import SHARE

#: Weights worked on at a time, 16 MB.
_BLOCK_WEIGHTS = 2**21


class RecognizedFindings(TypedDict):
    """Findings among 1,000 images like the test images: all, and those that each of two models recognizes.

    `low`, `high`: 95% interval of the difference by the standard deviation of a bootstrap over patients; None without
    resamples.
    """

    specificity: float
    findings: float
    reference: float
    model: float
    low: float | None
    high: float | None


def count_recognized(
    reference: Sequence[Sequence[Column]], model: Sequence[Sequence[Column]], resamples: int = 500
) -> RecognizedFindings | None:
    """Compare two models, each given as the columns of its training seeds; None if no disease counts in a mean.

    All columns of a disease have the same images in the same order. Sensitivities are means over the seeds.
    """
    use = [j for j, column in enumerate(reference[0]) if column.in_mean]
    if not use:
        return None
    patients = np.unique(np.concatenate([reference[0][j].patient for j in use]))
    ones = np.ones((1, len(patients)))
    first, second = (float(_count(runs, use, patients, ones)[0]) for runs in (reference, model))
    findings = sum(_prevalence(reference[0][j]) for j in use) * 1000
    result = RecognizedFindings(
        specificity=SHARE, findings=findings, reference=first, model=second, low=None, high=None
    )
    if not resamples:
        return result
    rng, differences = numpy_stream(0, "findings recognized"), []
    step = max(1, _BLOCK_WEIGHTS // max(len(reference[0][j].score) for j in use))
    for start in range(0, resamples, step):
        size = (min(step, resamples - start), len(patients))
        counts = draw_patients(rng, size[1], size[0]).astype(float)
        differences.append(_count(model, use, patients, counts) - _count(reference, use, patients, counts))
    half = 1.96 * float(np.nanstd(np.concatenate(differences), ddof=1))
    change = second - first
    return {**result, "low": change - half, "high": change + half}


def _prevalence(column: Column) -> float:
    return column.positives / len(column.positive)


def _count(
    runs: Sequence[Sequence[Column]], use: Sequence[int], patients: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Findings recognized among 1,000 images, `[r]`, for counts `[r, patients]` of the patients."""
    total = np.zeros(len(counts))
    for j in use:
        each = [_sensitivity(columns[j], patients, counts) for columns in runs]
        total += 1000 * _prevalence(runs[0][j]) * np.mean(each, axis=0)
    return total


def _sensitivity(column: Column, patients: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sensitivity `[r]` at the specificity `SHARE`; NaN in a resample of one class."""
    order = np.argsort(-column.score, kind="stable")
    weight = np.take(counts, np.searchsorted(patients, column.patient[order]), axis=1)
    ends = np.append(np.flatnonzero(np.diff(column.score[order])), len(order) - 1)  # equal scores are called together
    positive = column.positive[order]
    true = np.cumsum(weight * positive, axis=1)[:, ends]
    false = np.cumsum(weight * ~positive, axis=1)[:, ends]
    # Counts are whole; 1e-9 forgives 0.9 * 10 = 9.000000000000002.
    allowed = false <= ((1 - SHARE) * false[:, -1] + 1e-9)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(allowed, true, 0).max(axis=1) / true[:, -1]
    return np.where(false[:, -1] > 0, share, np.nan)
