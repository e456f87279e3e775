"""DeLong's variance of an AUC or of a mean of AUCs over diseases, and the comparison of two models by it.

E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson: Comparing the areas under two or more correlated receiver operating
characteristic curves: a nonparametric approach. Biometrics 44 (1988). The placements come from midranks in
O(n log n): X. Sun, W. Xu: Fast implementation of DeLong's algorithm. IEEE Signal Processing Letters 21 (2014).

It is about several scores for the *same labels*; the AUCs of several diseases have other labels on shared images, so
that an image is positive in one and negative, or missing, in another. `variance_of_mean` takes for each image the sum
of its structural components over the diseases, each as far as it moves that disease's AUC, and from these sums the
variance over images. N. A. Obuchowski (Nonparametric analysis of clustered ROC curve data, Biometrics 53, 1997) sums
the components of a cluster so; here the cluster is an image, and its members are its diseases. For one disease it is
DeLong's variance exactly.

Images are taken for independent; where patients have several, the variance is too small, and the patient-clustered
bootstrap is the one to use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chestfed.evaluation.intervals.interval import Bounds, Interval, around_logit, normal_quantile

#: A variance of AUCs below this is rounding.
_NO_VARIANCE = 1e-24
_TOO_FEW = "one image of a class: no variance"


@dataclass(frozen=True)
class DelongTest:
    """Difference b minus a of an AUC, or of a mean of AUCs, with DeLong's test of no difference.

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

    difference: float | None = None
    variance: float | None = None
    z: float | None = None
    p: float | None = None
    interval: Interval | None = None
    reason: str = ""


def delong_interval(scores: np.ndarray, labels: np.ndarray, level: float = 0.95) -> Bounds:
    """Interval of the mean AUC over the diseases that have one: logit(AUC) ± z SE / (AUC (1 - AUC)), carried back.

    Scores and labels are `[n, J]`, labels in {0, 1, NaN}. None if the mean is 0 or 1, no disease has an AUC, or one of
    them has fewer than two images of a class.
    """
    found = variance_of_mean([scores], np.ones(1), labels)
    if found is None:
        return Bounds()
    mean, variance = found
    if math.isnan(variance):
        return Bounds(reason=_TOO_FEW)
    if not 0 < mean < 1:
        return Bounds(reason=f"the logit of an AUC of {mean:.0f}")
    return Bounds(around_logit(mean, normal_quantile(level) * math.sqrt(variance)))


def delong_test(
    runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], labels: np.ndarray, level: float = 0.95
) -> DelongTest:
    """Difference b minus a of the mean AUC over the diseases that have one, of two models on the same images.

    Parameters
    ----------
    runs_a, runs_b
        Score arrays `[n, J]`, one per seed. The AUC of a model is the mean over its seeds; its variance is that of the
        contrast of all seeds' AUCs, which have the same labels.
    labels
        `[n, J]` in {0, 1, NaN}; one column for the test of one disease.
    """
    contrast = np.repeat([-1 / len(runs_a), 1 / len(runs_b)], [len(runs_a), len(runs_b)])
    found = variance_of_mean([*runs_a, *runs_b], contrast, labels)
    if found is None:
        return DelongTest(reason="no disease has an AUC")
    difference, variance = found
    if math.isnan(variance):
        return DelongTest(difference, reason=_TOO_FEW)
    if variance < _NO_VARIANCE:
        if abs(difference) < math.sqrt(_NO_VARIANCE):
            return DelongTest(difference, variance, 0.0, 1.0, Interval(difference, difference))
        return DelongTest(difference, variance, reason="no variance in these data")
    error = math.sqrt(variance)
    z, width = difference / error, normal_quantile(level) * error
    p = math.erfc(abs(z) / math.sqrt(2))
    return DelongTest(difference, variance, z, p, Interval(difference - width, difference + width))


def variance_of_mean(
    runs: Sequence[np.ndarray], contrast: np.ndarray, labels: np.ndarray
) -> tuple[float, float] | None:
    """Mean over diseases of a contrast of several runs' AUCs, and its variance over images.

    An image's effect on the contrast of disease j is (V10 - mean V10) / sqrt(m (m - 1)) if it is one of m positives,
    (V01 - mean V01) / sqrt(n (n - 1)) if one of n negatives, with the contrast taken of its components, and 0 if the
    label is missing. The variance is the sum over images of the squared sum of their effects over J diseases, over J^2.
    The squares of one disease alone add up to S10 / m + S01 / n, DeLong's (equation 6); the products of two diseases to
    their covariance, images taken for a random sample with their labels.

    Parameters
    ----------
    runs
        Scores `[n, J]` of each.
    contrast
        `[runs]`: what each run's AUC counts.
    labels
        `[n, J]` in {0, 1, NaN}.

    Returns
    -------
    None if no disease has both classes; the variance is NaN if one that counts has fewer than two images of a class.
    """
    effects, contrasts, enough = np.zeros(len(labels)), [], True
    for j in range(labels.shape[1]):
        known = np.flatnonzero(~np.isnan(labels[:, j]))
        positive = labels[known, j] == 1
        if positive.all() or not positive.any():
            continue
        both = placements(np.stack([scores[known, j] for scores in runs], axis=1), positive)
        contrasts.append(float(both[0].mean(axis=0) @ contrast))
        for rows, components in zip((known[positive], known[~positive]), both, strict=True):
            count, value = len(rows), components @ contrast
            enough = enough and count > 1
            if count > 1:
                effects[rows] += (value - value.mean()) / math.sqrt(count * (count - 1))
    if not contrasts:
        return None
    return float(np.mean(contrasts)), float(effects @ effects) / len(contrasts) ** 2 if enough else math.nan


def placements(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's structural components V10 `[n+, m]` and V01 `[n-, m]` of scores `[n, m]`.

    V10 is the share of negatives that a positive image beats (a tie is one half), V01 the share of positives that beat
    a negative one. Sun and Xu, equations 5 to 9: a midrank among all images less that among the own class.
    """
    from scipy.stats import rankdata

    among_all, count = rankdata(scores, axis=0), int(positive.sum())
    v10 = (among_all[positive] - rankdata(scores[positive], axis=0)) / (len(positive) - count)
    v01 = 1 - (among_all[~positive] - rankdata(scores[~positive], axis=0)) / count
    return v10, v01
