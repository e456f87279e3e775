"""Paired comparison of two models on the same test images.

Both see the same images, so their AUCs are correlated and the difference is surer than two separate intervals suggest.
The interval and the p value are about the choice of test patients, for these trained models; how much another training
seed would change a model is another thing, to be read from the spread over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from chestfed.evaluation.auc import auc_per_disease
from chestfed.evaluation.intervals.bootstrap import (
    difference_interval,
    jointly_resampled_aucs,
    mean_over_diseases,
    resampled_aucs,
)
from chestfed.evaluation.intervals.degrees_of_freedom import units_of_mean, units_per_disease
from chestfed.evaluation.intervals.delong import delong_difference_per_disease
from chestfed.evaluation.intervals.delong_mean import delong_difference_of_mean
from chestfed.evaluation.intervals.interval import Interval


@dataclass(frozen=True)
class Run:
    """What one model, trained once or with several seeds, made of the test images.

    Attributes
    ----------
    scores
        One array `[n, J]` per seed.
    labels
        `[n, J]` in {0, 1, NaN}.
    patients
        `[n]`, any values that identify a patient.
    """

    scores: Sequence[np.ndarray]
    labels: np.ndarray
    patients: np.ndarray


@dataclass(frozen=True)
class MeanDifference:
    """Difference b minus a of the mean AUC over the diseases that have one; all None if none has.

    `interval`, `p`, `z` and `delong_p` are as those of `DiseaseDifference`. `p_holm` and `delong_p_holm` are corrected
    for the other comparisons' means, if there are any (`holm_over_comparisons`).
    """

    mean_a: float | None
    mean_b: float | None
    difference: float | None
    interval: Interval | None
    p: float | None
    p_holm: float | None
    z: float | None
    delong_p: float | None
    delong_p_holm: float | None
    reason: str = ""


@dataclass(frozen=True)
class DiseaseDifference:
    """Difference b minus a of one disease's AUC (mean over seeds).

    Attributes
    ----------
    interval, p
        From the patient-clustered bootstrap: `difference_interval`. p is below 0.05 exactly where the interval at 95%
        leaves out 0.
    p_holm
        p after Holm's correction over the diseases of the comparison (or of several, see `holm_over_comparisons`).
    z, delong_p, delong_p_holm
        DeLong's test, which takes images for independent.
    reason
        Why values are None.
    """

    disease: str
    auc_a: float | None
    auc_b: float | None
    difference: float | None
    interval: Interval | None
    p: float | None
    p_holm: float | None
    z: float | None
    delong_p: float | None
    delong_p_holm: float | None
    positives: int
    negatives: int
    missing: int
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """Model b against model a."""

    diseases: tuple[DiseaseDifference, ...]
    mean: MeanDifference
    resamples: int


def compare(
    a: Run, b: Run, diseases: Sequence[str], resamples: int = 2000, seed: int = 0, level: float = 0.95
) -> Comparison:
    """Model b minus model a: per disease and in the mean, with intervals and tests.

    A disease is compared on the draws of `resampled_aucs`, the mean on those of `jointly_resampled_aucs`; both models
    and all their seeds get the same draws.

    Raises
    ------
    ValueError
        If the runs differ in labels or patients, a run has no seed, or scores do not fit the labels.
    """
    _same_images(a, b)
    for scores in (*a.scores, *b.scores):
        auc_per_disease(scores, a.labels, diseases)  # refuses what is not a score or label, and says which
    runs, seeds_a = np.stack([*a.scores, *b.scores]), len(a.scores)
    separate = _difference(resampled_aucs(runs, a.labels, a.patients, resamples, seed), seeds_a)
    joint = _difference(jointly_resampled_aucs(runs, a.labels, a.patients, resamples, seed), seeds_a)
    units = units_per_disease(a.labels, a.patients)

    found = []
    for j, delong in enumerate(delong_difference_per_disease(a.scores, b.scores, a.labels, diseases, level)):
        between, p, reason = _tested(delong.difference, separate[:, j], int(units[j]), level)
        found.append(
            DiseaseDifference(
                delong.disease,
                delong.auc_a,
                delong.auc_b,
                delong.difference,
                between,
                p,
                None,
                delong.z,
                delong.p,
                None,
                delong.positives,
                delong.negatives,
                delong.missing,
                reason or delong.reason,
            )
        )
    mean = _mean(found, joint, a, b, level)
    (comparison,) = holm_over_comparisons([Comparison(tuple(found), mean, resamples)])
    return comparison


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P values after Holm's step-down correction, in the same order; None stays and does not count.

    The i-th smallest of m (i from 0) becomes the largest of (m - k) p_k over k <= i, at most 1.
    S. Holm: A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6 (1979).
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for i, (p, place) in enumerate(known):
        largest = max(largest, (len(known) - i) * p)
        corrected[place] = min(1.0, largest)
    return corrected


def holm_over_comparisons(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons, their p values corrected: over all diseases of all of them, the means among themselves."""
    every = [difference for comparison in comparisons for difference in comparison.diseases]
    bootstrap, delong = holm([d.p for d in every]), holm([d.delong_p for d in every])
    corrected = iter(replace(d, p_holm=p, delong_p_holm=q) for d, p, q in zip(every, bootstrap, delong, strict=True))
    means = [comparison.mean for comparison in comparisons]
    of_means = zip(holm([mean.p for mean in means]), holm([mean.delong_p for mean in means]), strict=True)
    return [
        replace(c, mean=replace(c.mean, p_holm=p, delong_p_holm=q), diseases=tuple(next(corrected) for _ in c.diseases))
        for c, (p, q) in zip(comparisons, of_means, strict=True)
    ]


def _same_images(a: Run, b: Run) -> None:
    if not len(a.scores) or not len(b.scores):
        raise ValueError("a run without scores cannot be compared")
    if len(a.patients) != len(a.labels) or len(b.patients) != len(b.labels):
        raise ValueError("a run's patients and labels differ in length")
    if a.labels.shape != b.labels.shape:
        raise ValueError(f"the runs differ in the shape of their labels: {a.labels.shape} and {b.labels.shape}")
    both_missing = np.isnan(a.labels) & np.isnan(b.labels)
    if (unequal := np.argwhere((a.labels != b.labels) & ~both_missing)).size:
        row, column = unequal[0]
        raise ValueError(
            f"the runs differ in {len(unequal)} labels, first in row {row}, disease {column}: "
            f"{a.labels[row, column]} and {b.labels[row, column]}"
        )
    others = np.flatnonzero(np.asarray(a.patients) != np.asarray(b.patients))
    if others.size:
        raise ValueError(f"the runs differ in the patients of {len(others)} rows, first of row {others[0]}")


def _difference(aucs: np.ndarray, seeds_a: int) -> np.ndarray:
    """Mean over b's seeds less that over a's: `[resamples, J]` from `[runs, resamples, J]`."""
    return aucs[seeds_a:].mean(axis=0) - aucs[:seeds_a].mean(axis=0)


def _mean(
    differences: Sequence[DiseaseDifference], resampled: np.ndarray, a: Run, b: Run, level: float
) -> MeanDifference:
    pairs = [(d.auc_a, d.auc_b) for d in differences if d.auc_a is not None and d.auc_b is not None]
    if not pairs:
        return MeanDifference(None, None, None, None, None, None, None, None, None)
    mean_a, mean_b = (float(value) for value in np.mean(pairs, axis=0))
    difference, units = mean_b - mean_a, units_of_mean(a.labels, a.patients)
    between, p, reason = _tested(difference, mean_over_diseases(resampled), units, level, ", in a disease")
    delong = delong_difference_of_mean(a.scores, b.scores, a.labels, level)
    return MeanDifference(
        mean_a, mean_b, difference, between, p, None, delong.z, delong.p, None, reason or delong.reason
    )


def _tested(
    difference: float | None, resampled: np.ndarray, units: float, level: float, where: str = ""
) -> tuple[Interval | None, float | None, str]:
    """Interval and p value of a difference, or why there is none; nothing at all without a difference."""
    if difference is None:
        return None, None, ""
    found = difference_interval(difference, resampled, units, level)
    if found is not None:
        return *found, ""
    if units < 2:
        return None, None, f"one patient with an image of a class{where}: no interval"
    if len(resampled) < 2:
        return None, None, ""
    if np.isfinite(resampled).sum() < 2:
        return None, None, "hardly a resample with both classes: no interval"
    return None, None, "no variance in these data: no interval"
