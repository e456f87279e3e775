"""DeLong's variance of an AUC, and the comparison of two AUCs on the same images.

E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson: Comparing the areas under two or more correlated receiver operating
characteristic curves: a nonparametric approach. Biometrics 44 (1988). The placements come from midranks in
O(n log n): X. Sun, W. Xu: Fast implementation of DeLong's algorithm. IEEE Signal Processing Letters 21 (2014).

What it assumes. Images are independent; where patients have several, the variance is too small, and the
patient-clustered bootstrap is the one to use. And the two AUCs are of two scores for the *same labels*; the mean over
diseases, which have other labels on shared images, is the subject of `chestfed.evaluation.intervals.delong_mean`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chestfed.evaluation.intervals.interval import Interval, around_logit, normal_quantile
from chestfed.evaluation.labeled import Column, labeled_columns

#: A variance of AUCs below this is rounding.
_NO_VARIANCE = 1e-24


@dataclass(frozen=True)
class DelongAuc:
    """AUC of one disease with DeLong's variance.

    Attributes
    ----------
    variance
        None with fewer than two images of a class.
    normal
        AUC ± z SE, cut at 0 and 1. Too short and too symmetric for few positives.
    logit
        The same on the logit scale, carried back: logit(AUC) ± z SE / (AUC (1 - AUC)). None where the AUC is 0 or 1.
    reason
        Why something is None.
    """

    disease: str
    auc: float | None
    variance: float | None
    normal: Interval | None
    logit: Interval | None
    positives: int
    negatives: int
    missing: int
    reason: str = ""


@dataclass(frozen=True)
class DelongDifference:
    """AUC of b minus AUC of a for one disease, with DeLong's test of equal AUCs.

    Attributes
    ----------
    z, p
        Difference over its standard error, and the two-sided p value. If the difference has no variance: 0 and 1 where
        it is 0, else None.
    interval
        Difference ± z SE.
    reason
        Why something is None.
    """

    disease: str
    auc_a: float | None
    auc_b: float | None
    difference: float | None
    variance: float | None
    z: float | None
    p: float | None
    interval: Interval | None
    positives: int
    negatives: int
    missing: int
    reason: str = ""


def delong_per_disease(
    scores: np.ndarray, labels: np.ndarray, diseases: Sequence[str], level: float = 0.95
) -> list[DelongAuc]:
    """AUC, variance and intervals of each column of `scores` `[n, J]` against `labels` `[n, J]` in {0, 1, NaN}."""
    quantile = normal_quantile(level)
    results = []
    for column in labeled_columns(scores, labels, diseases):
        counts = (column.positives, column.negatives, column.missing)
        if column.reason:
            results.append(DelongAuc(column.disease, None, None, None, None, *counts, column.reason))
            continue
        aucs, covariance = auc_covariance(column.score[:, None], column.positive)
        auc, variance = float(aucs[0]), float(covariance[0, 0])
        if math.isnan(variance):
            results.append(DelongAuc(column.disease, auc, None, None, None, *counts, _too_few(column)))
            continue
        width = quantile * math.sqrt(variance)
        normal = Interval(max(0.0, auc - width), min(1.0, auc + width))
        logit, reason = None, f"the logit of an AUC of {auc:.0f}"
        if 0 < auc < 1:
            logit, reason = around_logit(auc, width), ""
        results.append(DelongAuc(column.disease, auc, variance, normal, logit, *counts, reason))
    return results


def delong_difference_per_disease(
    runs_a: Sequence[np.ndarray],
    runs_b: Sequence[np.ndarray],
    labels: np.ndarray,
    diseases: Sequence[str],
    level: float = 0.95,
) -> list[DelongDifference]:
    """Difference b minus a of two models on the same images, with DeLong's test.

    Parameters
    ----------
    runs_a, runs_b
        Score arrays `[n, J]`, one per seed. The AUC of a model is the mean over its seeds; its variance is that of the
        contrast of all seeds' AUCs, which have the same labels.
    labels
        `[n, J]` in {0, 1, NaN}.

    Raises
    ------
    ValueError
        As `auc_per_disease`, for any score array.
    """
    quantile = normal_quantile(level)
    contrast = contrast_of(len(runs_a), len(runs_b))
    results = []
    per_run = [labeled_columns(scores, labels, diseases) for scores in (*runs_a, *runs_b)]
    for columns in zip(*per_run, strict=True):
        first = columns[0]
        name, counts = first.disease, (first.positives, first.negatives, first.missing)
        if first.reason:
            results.append(DelongDifference(name, None, None, None, None, None, None, None, *counts, first.reason))
            continue
        aucs, covariance = auc_covariance(np.stack([column.score for column in columns], axis=1), first.positive)
        auc_a, auc_b = float(aucs[: len(runs_a)].mean()), float(aucs[len(runs_a) :].mean())
        three = (auc_a, auc_b, auc_b - auc_a)
        variance = float(contrast @ covariance @ contrast)
        if math.isnan(variance):
            results.append(DelongDifference(name, *three, None, None, None, None, *counts, _too_few(first)))
            continue
        # Equal rankings: the exact variance is 0, the computed one a rounding error of either sign.
        if variance <= 1e-15 * float(np.trace(covariance)):
            variance = 0.0
        z, p, interval, reason = z_test(three[2], variance, quantile)
        results.append(DelongDifference(name, *three, variance, z, p, interval, *counts, reason))
    return results


def auc_covariance(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """AUCs `[m]` and their covariance matrix `[m, m]` of m scores for the same images and labels.

    Parameters
    ----------
    scores
        `[n, m]`.
    positive
        bool `[n]`, with both classes.

    Returns
    -------
    The covariance is NaN with fewer than two images of a class.
    """
    if positive.all() or not positive.any():
        raise ValueError("an AUC needs a positive and a negative image")
    v10, v01 = placements(scores, positive)
    m, n = len(v10), len(v01)
    if m < 2 or n < 2:
        return v10.mean(axis=0), np.full((scores.shape[1],) * 2, np.nan)
    # DeLong et al., equation 6: S = S10 / m + S01 / n.
    return v10.mean(axis=0), np.atleast_2d(np.cov(v10.T) / m + np.cov(v01.T) / n)


def placements(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's structural components V10 `[n+, m]` and V01 `[n-, m]` of scores `[n, m]`.

    V10 is the share of negatives that a positive image beats (a tie is one half), V01 the share of positives that beat
    a negative one. Sun and Xu, equations 5 to 9: a midrank among all images less that among the own class.
    """
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    v10, v01 = np.empty((n_positive, scores.shape[1])), np.empty((n_negative, scores.shape[1]))
    for k in range(scores.shape[1]):
        score = scores[:, k]
        among_all = _midranks(score)
        v10[:, k] = (among_all[positive] - _midranks(score[positive])) / n_negative
        v01[:, k] = 1 - (among_all[~positive] - _midranks(score[~positive])) / n_positive
    return v10, v01


def two_sided(z: float) -> float:
    """Two-sided p value of a standard normal statistic."""
    return math.erfc(abs(z) / math.sqrt(2))


def contrast_of(runs_a: int, runs_b: int) -> np.ndarray:
    """Mean over b's runs less that over a's: `[runs]`."""
    return np.concatenate([np.full(runs_a, -1 / runs_a), np.full(runs_b, 1 / runs_b)])


def z_test(
    difference: float, variance: float, quantile: float
) -> tuple[float | None, float | None, Interval | None, str]:
    """z, p, interval and the reason if they are undefined."""
    if variance < _NO_VARIANCE:
        if abs(difference) < math.sqrt(_NO_VARIANCE):
            return 0.0, 1.0, Interval(difference, difference), ""
        return None, None, None, "no variance in these data"
    width, z = quantile * math.sqrt(variance), difference / math.sqrt(variance)
    return z, two_sided(z), Interval(difference - width, difference + width), ""


def _midranks(x: np.ndarray) -> np.ndarray:
    """Ranks from 1, equal values sharing the mean of theirs."""
    _, run, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[run]


def _too_few(column: Column) -> str:
    return "one positive image: no variance" if column.positives < 2 else "one negative image: no variance"
