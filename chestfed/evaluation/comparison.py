"""Paired comparison of two models on the same test images.

Both see the same images, so their AUCs are correlated and the difference is surer than two separate intervals suggest.
The interval and the p value are about the choice of test patients, for these trained models; how much another training
seed would change a model is another thing, to be read from the spread over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from chestfed.evaluation.estimates import auc_per_disease, mean_of
from chestfed.evaluation.intervals.bootstrap import jointly_resampled_aucs, mean_over_diseases, resampled_aucs
from chestfed.evaluation.intervals.degrees_of_freedom import units_of_mean, units_per_disease
from chestfed.evaluation.intervals.delong import DelongTest, delong_test
from chestfed.evaluation.intervals.interval import Interval, difference_interval
from chestfed.evaluation.labeled import Scored


@dataclass(frozen=True)
class Difference:
    """Model b minus model a: the AUC (mean over seeds) of one disease, or the `mean` over the diseases that have one.

    Attributes
    ----------
    interval, p
        From the patient-clustered bootstrap, of one test: `difference_interval`. p is below 0.05 exactly where the
        interval at 95% leaves out 0.
    p_holm, delong_p_holm
        The p values after Holm's correction: `holm_over_comparisons`. The interval is not corrected.
    z, delong_p
        DeLong's test, which takes images for independent.
    positives, negatives, missing
        Images; None for the mean.
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
    positives: int | None = None
    negatives: int | None = None
    missing: int | None = None
    reason: str = ""


def compare(a: Sequence[Scored], b: Sequence[Scored], resamples: int = 2000, seed: int = 0) -> tuple[Difference, ...]:
    """Model b minus model a, each given once per seed: per disease, and at last the mean.

    A disease is compared on the draws of `resampled_aucs`, the mean on those of `jointly_resampled_aucs`; both models
    and all their seeds get the same draws.

    Raises
    ------
    ValueError
        If the runs differ in labels, patients or diseases, a model has no run, or scores do not fit the labels.
    """
    if not a or not b:
        raise ValueError("a model without scores cannot be compared")
    first = a[0]
    for other in (*a[1:], *b):
        _check_same_images(first, other)
    labels, patients = first.labels, first.patients
    aucs_a, aucs_b = _mean_over_seeds(a), _mean_over_seeds(b)
    both = [name for name, auc in aucs_a.items() if auc is not None and aucs_b[name] is not None]
    runs = np.stack([one.scores for one in (*a, *b)])
    separate = _difference(resampled_aucs(runs, labels, patients, resamples, seed), len(a))
    joint = _difference(jointly_resampled_aucs(runs, labels, patients, resamples, seed), len(a))
    scores_a, scores_b = runs[: len(a)], runs[len(a) :]
    units, found = units_per_disease(labels, patients), []
    for j, column in enumerate(first.columns()):
        name, its = column.disease, slice(j, j + 1)
        delong = delong_test(list(scores_a[..., its]), list(scores_b[..., its]), labels[:, its])
        if column.reason:
            delong = DelongTest(reason=column.reason)
        one = _tested(name, aucs_a[name], aucs_b[name], separate[:, j], int(units[j]), delong)
        positives, negatives, missing = column.counts
        found.append(replace(one, positives=positives, negatives=negatives, missing=missing))
    mean_a, mean_b = (mean_of(aucs[name] for name in both) for aucs in (aucs_a, aucs_b))
    delong = delong_test(list(scores_a), list(scores_b), labels) if both else DelongTest()
    of_mean = mean_over_diseases(joint)
    found.append(_tested("mean", mean_a, mean_b, of_mean, units_of_mean(labels, patients), delong, ", in a disease"))
    return holm_over_comparisons([found])[0]


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


def holm_over_comparisons(comparisons: Sequence[Sequence[Difference]]) -> list[tuple[Difference, ...]]:
    """The same comparisons, their p values corrected: over all diseases of all of them, the means among themselves."""
    every = [one for comparison in comparisons for one in comparison]
    for means in (False, True):
        places = [place for place, one in enumerate(every) if (one.disease == "mean") == means]
        corrected = zip(
            places, holm([every[n].p for n in places]), holm([every[n].delong_p for n in places]), strict=True
        )
        for place, p, delong_p in corrected:
            every[place] = replace(every[place], p_holm=p, delong_p_holm=delong_p)
    rest = iter(every)
    return [tuple(islice(rest, len(comparison))) for comparison in comparisons]


def _check_same_images(a: Scored, b: Scored) -> None:
    if list(a.diseases) != list(b.diseases):
        raise ValueError(f"the runs differ in their diseases: {', '.join(a.diseases)} and {', '.join(b.diseases)}")
    if a.labels.shape != b.labels.shape:
        raise ValueError(f"the runs differ in the shape of their labels: {a.labels.shape} and {b.labels.shape}")
    both_missing = np.isnan(a.labels) & np.isnan(b.labels)
    if (unequal := np.argwhere((a.labels != b.labels) & ~both_missing)).size:
        row, column = unequal[0]
        raise ValueError(
            f"the runs differ in {len(unequal)} labels, first in row {row}, disease {column}: "
            f"{a.labels[row, column]} and {b.labels[row, column]}"
        )
    if len(a.patients) != len(b.patients):
        raise ValueError(f"the runs' patients differ in length: {len(a.patients)} and {len(b.patients)}")
    others = np.flatnonzero(np.asarray(a.patients) != np.asarray(b.patients))
    if others.size:
        raise ValueError(f"the runs differ in the patients of {len(others)} rows, first of row {others[0]}")


def _mean_over_seeds(runs: Sequence[Scored]) -> dict[str, float | None]:
    """Mean AUC of each disease, which all seeds have or none."""
    each = [auc_per_disease(run) for run in runs]
    return {name: mean_of(aucs[name] for aucs in each) for name in each[0]}


def _difference(aucs: np.ndarray, seeds_a: int) -> np.ndarray:
    """Mean over b's seeds less that over a's: `[resamples, J]` from `[runs, resamples, J]`."""
    return aucs[seeds_a:].mean(axis=0) - aucs[:seeds_a].mean(axis=0)


def _tested(
    disease: str,
    a: float | None,
    b: float | None,
    resampled: np.ndarray,
    units: float,
    delong: DelongTest,
    where: str = "",
) -> Difference:
    """A difference with its interval and tests, or why there are none."""
    difference = None if a is None or b is None else b - a
    found = None if difference is None else difference_interval(difference, resampled, units)
    interval, p = found or (None, None)
    reason = ""
    if difference is not None and found is None:
        if units < 2:
            reason = f"one patient with an image of a class{where}: no interval"
        elif len(resampled) >= 2:
            enough = np.isfinite(resampled).sum() >= 2
            reason = f"{'no variance in these data' if enough else 'hardly a resample with both classes'}: no interval"
    tests = (p, p, delong.z, delong.p, delong.p)
    return Difference(disease, a, b, difference, interval, *tests, reason=reason or delong.reason)
