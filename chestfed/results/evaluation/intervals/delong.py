"""DeLong's variance of an AUC, or of a mean of AUCs over diseases, for one model or a contrast of several.

E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson: Comparing the areas under two or more correlated receiver operating
characteristic curves: a nonparametric approach. Biometrics 44 (1988). The placements come from midranks in
O(n log n): X. Sun, W. Xu: Fast implementation of DeLong's algorithm. IEEE Signal Processing Letters 21 (2014).

It takes images for independent. N. A. Obuchowski: Nonparametric analysis of clustered ROC curve data, Biometrics 53
(1997), sums the structural components of a patient's images first; `auc_covariance` does so if it is given patients.
The AUCs of several diseases have other labels on shared images, so that an image is positive in one and negative, or
missing, in another: for their mean the components are summed over the diseases as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from chestfed.results.evaluation.labeled import Cell, list_cells

#: V10 `[n+, m]` and V01 `[n-, m]` of a cell, each beside its images' relative share of the pairs, `[n, 1]`.
Components = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def auc_covariance(
    runs: Sequence[np.ndarray],
    labels: np.ndarray,
    contrasts: np.ndarray,
    patients: np.ndarray | None = None,
    hospitals: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Contrasts of several runs' mean AUCs over diseases, float64 `[c]`, and their covariance `[c, c]`.

    With V10 and V01 the structural components of a disease's M positive and N negative images, summed over the images
    of each of its I patients, of whom I10 have positive images and I01 negative ones, its variance is

        I10/(I10 - 1) sum(V10 - mean)^2 / M^2 + I01/(I01 - 1) sum(V01 - mean)^2 / N^2
            + 2 I/(I - 1) sum(V10 - mean)(V01 - mean) / (M N),

    Obuchowski's S10 / M + S01 / N + 2 S11 / (M N). With one image per patient it is DeLong's (equation 6). The
    covariance of two diseases is the sum over patients of the products of their terms, with the roots of their factors.

    Scores are `[n, J]` of each run, labels `[n, J]` in {0, 1, NaN}; `contrasts` `[runs, c]` say what each run's AUC
    counts. Without patients `[n]` each image is one. With hospitals `[n]` a disease's AUC is the mean of those of the H
    hospitals that count (`divide`); each has patients of its own, so the covariance is the sum of theirs over H^2.

    With strata int `[n]` the AUC is the concordant share of the pairs within strata, C / W. An image's component is its
    share of the W pairs, relative to the mean share of its class, times its V10 or V01 within its stratum less the AUC:
    a patient's terms are those of the linearized ratio, so strata may share patients, and the number of pairs of each
    is random too. Every labeled image is in a pair (`Scored.pair_within`).

    None if no disease has both classes; the covariance is NaN if one that counts has a class of one patient.
    """
    patients = np.arange(len(labels)) if patients is None else patients
    return combine_parts(list_parts(runs, labels, patients, hospitals, strata), contrasts, patients)


def list_parts(
    runs: Sequence[np.ndarray] | np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    hospitals: np.ndarray | None = None,
    strata: np.ndarray | None = None,
) -> list[tuple[Cell, Components]]:
    """The structural components of each disease, or of each at each hospital; arguments of `auc_covariance`.

    They take most of its time, and are the same for a disease and for a mean with it.
    """
    parts = []
    for cell in list_cells(labels, patients, hospitals):
        scored = np.stack([scores[cell.rows, cell.column] for scores in runs], axis=1)
        parts.append((cell, _list_components(scored, cell.positive, strata, cell.rows)))
    return parts


def combine_parts(
    parts: Sequence[tuple[Cell, Components]], contrasts: np.ndarray, patients: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The result of `auc_covariance` from the parts of the diseases that count."""
    names, patient = np.unique(patients, return_inverse=True)
    effects, extra = np.zeros((len(names), contrasts.shape[1])), 0.0
    means: dict[int, np.ndarray] = {}  # per disease
    for cell, both in parts:
        classes = cell.rows[cell.positive], cell.rows[~cell.positive]
        mean = (both[0][1] * both[0][0]).mean(axis=0)
        means[cell.column] = means.get(cell.column, 0) + cell.weight * (mean @ contrasts)
        sums, factors = np.zeros((2, *effects.shape)), []
        for place, (rows, (components, share)) in enumerate(zip(classes, both, strict=True)):
            values = cell.weight * (components @ contrasts)
            centered = share * (values - (share * values).mean(axis=0))
            np.add.at(sums[place], patient[rows], centered / len(rows))
            factors.append(_small_sample(patient[rows]))
        effects += np.tensordot(np.sqrt(factors), sums, 1)
        crossed = sums[0].T @ sums[1]
        extra = extra + (_small_sample(patient[cell.rows]) - math.sqrt(math.prod(factors))) * (crossed + crossed.T)
    if not means:
        return None
    return np.mean(list(means.values()), axis=0), (effects.T @ effects + extra) / len(means) ** 2


def _small_sample(patients: np.ndarray) -> float:
    count = len(pd.unique(patients))
    return count / (count - 1) if count > 1 else math.nan


def _list_components(
    scores: np.ndarray, positive: np.ndarray, strata: np.ndarray | None, rows: np.ndarray
) -> Components:
    """Components within strata, with shares of a class whose mean is 1.

    `strata` are of all images, `rows` int `[n]` the place of these among them.
    """
    if strata is None:
        v10, v01 = placements(scores, positive)
        return (v10, np.ones((len(v10), 1))), (v01, np.ones((len(v01), 1)))
    _, codes = np.unique(strata[rows], return_inverse=True)
    components, pairs = np.zeros(scores.shape), np.zeros((len(rows), 1))
    for code in range(int(codes.max()) + 1):
        stratum = np.flatnonzero(codes == code)
        of_class = stratum[positive[stratum]], stratum[~positive[stratum]]
        for place, values in enumerate(placements(scores[stratum], positive[stratum])):
            components[of_class[place]] = values
            pairs[of_class[place]] = len(of_class[1 - place])
    first, second = ((components[images], pairs[images] / pairs[images].mean()) for images in (positive, ~positive))
    return first, second


def placements(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong's structural components V10 `[n+, m]` and V01 `[n-, m]` of scores `[n, m]`.

    V10 is the share of negatives that a positive image beats (a tie is one half), V01 the share of positives that beat
    a negative one. As Sun and Xu, equations 5 to 9, from one order of the images by their scores, none of them NaN.
    """
    components = np.empty(scores.shape)
    for score, component in zip(scores.T, components.T, strict=True):
        order = np.argsort(score)
        ranked, is_positive = score[order], positive[order]
        starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))  # of runs of equal scores
        ends = np.append(starts[1:], len(order))
        negatives = np.append(0, np.cumsum(~is_positive))
        beaten = (negatives[starts] + negatives[ends]) / 2
        beating = 1 - ((starts + ends) / 2 - beaten) / (len(order) - negatives[-1])
        place = np.repeat(np.arange(len(starts)), ends - starts)
        component[order] = np.where(is_positive, (beaten / negatives[-1])[place], beating[place])
    return components[positive], components[~positive]
