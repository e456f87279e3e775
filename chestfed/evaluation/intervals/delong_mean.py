"""DeLong's variance of a mean of AUCs over diseases, and the comparison of two such means on the same images.

DeLong's test (`delong.py`) is about several scores for the *same labels*; the AUCs of several diseases
have other labels on shared images, so that an image is positive in one and negative, or missing, in another.
`variance_of_mean` takes for each image the sum of its structural components over the diseases, each as far as it moves
that disease's AUC, and from these sums the variance over images. N. A. Obuchowski (Nonparametric analysis of clustered
ROC curve data, Biometrics 53, 1997) sums the components of a cluster so; here the cluster is an image, and its members
are its diseases. For one disease it is DeLong's variance exactly.

As there, images are taken for independent, whatever their patients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chestfed.evaluation.intervals.delong import contrast_of, placements, z_test
from chestfed.evaluation.intervals.interval import Bounds, Interval, around_logit, normal_quantile

_TOO_FEW = "one image of a class, in a disease: no variance"


@dataclass(frozen=True)
class DelongMeanDifference:
    """DeLong's test of equal means of the AUCs over diseases; the fields are those of `DelongDifference`."""

    difference: float | None
    variance: float | None
    z: float | None
    p: float | None
    interval: Interval | None
    reason: str = ""


def delong_mean_interval(scores: np.ndarray, labels: np.ndarray, level: float = 0.95) -> Bounds:
    """Interval of the mean AUC over the diseases that have one, on the logit scale as `DelongAuc.logit`.

    None if the mean is 0 or 1, no disease has an AUC, or one of them has fewer than two images of a class.
    """
    found = variance_of_mean([scores], np.ones(1), labels)
    if found is None:
        return Bounds(None)
    mean, variance = found
    if math.isnan(variance):
        return Bounds(None, _TOO_FEW)
    if not 0 < mean < 1:
        return Bounds(None, f"the logit of a mean AUC of {mean:.0f}")
    return Bounds(around_logit(mean, normal_quantile(level) * math.sqrt(variance)))


def delong_difference_of_mean(
    runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], labels: np.ndarray, level: float = 0.95
) -> DelongMeanDifference:
    """Difference b minus a of the mean AUC over the diseases that have one; parameters of the function per disease."""
    found = variance_of_mean([*runs_a, *runs_b], contrast_of(len(runs_a), len(runs_b)), labels)
    if found is None:
        return DelongMeanDifference(None, None, None, None, None, "no disease has an AUC")
    difference, variance = found
    if math.isnan(variance):
        return DelongMeanDifference(difference, None, None, None, None, _TOO_FEW)
    return DelongMeanDifference(difference, variance, *z_test(difference, variance, normal_quantile(level)))


def variance_of_mean(
    runs: Sequence[np.ndarray], contrast: np.ndarray, labels: np.ndarray
) -> tuple[float, float] | None:
    """Mean over diseases of a contrast of several runs' AUCs, and its variance over images.

    An image's effect on the contrast of disease j is (V10 - mean V10) / sqrt(m (m - 1)) if it is one of m positives,
    (V01 - mean V01) / sqrt(n (n - 1)) if one of n negatives, with the contrast taken of its components, and 0 if the
    label is missing. The variance is the sum over images of the squared sum of their effects over J diseases, over J^2.
    The squares of one disease alone add up to S10 / m + S01 / n, DeLong's; the products of two diseases to their
    covariance, images taken for a random sample with their labels.

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
