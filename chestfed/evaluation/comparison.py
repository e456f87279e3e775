"""Paired comparison of two models on the same test images.

Both see the same images, so their AUCs are correlated and the difference is surer than two separate intervals suggest.
Of models that were trained with the same two or more seeds, interval and p are about test patients and training seeds
together (`training_seeds.seeds_test`). Of one model each they are about the choice of test patients, for these two.
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
from chestfed.evaluation.training_seeds import seeds_test

#: Why models of one training seed each have an interval and no p value.
ONE_SEED = "one training seed, no test: another seed gives another difference; run --seeds 3 or more"


@dataclass(frozen=True)
class Difference:
    """Model b minus model a: the AUC (mean over seeds) of one disease, or the `mean` over the diseases that have one.

    Attributes
    ----------
    interval, p
        Of one test: `seeds_test` with several seeds, else `difference_interval`, from the patient-clustered bootstrap.
        p is below 0.05 exactly where the interval at 95% leaves out 0.
    p_holm, delong_p_holm
        The p values after Holm's correction: `holm_over_comparisons`. The interval is not corrected.
    z, delong_p
        DeLong's test, which takes images for independent and knows of no seeds: of one model each.
    positives, negatives, missing
        Images; None for the mean.
    reason
        Why values are None.
    of_seeds
        The difference of each training seed that both models have; None where an AUC is not defined.
    """

    disease: str
    auc_a: float | None
    auc_b: float | None
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None
    p_holm: float | None = None
    z: float | None = None
    delong_p: float | None = None
    delong_p_holm: float | None = None
    positives: int | None = None
    negatives: int | None = None
    missing: int | None = None
    reason: str = ""
    of_seeds: tuple[float | None, ...] = ()

    def untested(self, why: str) -> Difference:
        """Without its p values; the interval stays."""
        nothing = dict.fromkeys(("p", "p_holm", "z", "delong_p", "delong_p_holm"))
        return replace(self, **nothing, reason=self.reason or why)  # type: ignore[arg-type]


def compare(
    a: Sequence[Scored], b: Sequence[Scored], resamples: int = 2000, seed: int = 0, untested: str = ""
) -> tuple[Difference, ...]:
    """Model b minus model a, each given once per training seed: per disease, and at last the mean.

    As many runs of both, two or more, are of the same training seeds in the same order. Otherwise a disease is compared
    on the draws of `resampled_aucs`, the mean on those of `jointly_resampled_aucs`; both models get the same draws.
    `untested` says why there are to be no p values, but intervals over test patients alone.

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
    each_a, each_b = ([_all_aucs(run) for run in runs] for runs in (a, b))
    runs = np.stack([one.scores for one in (*a, *b)])
    scores_a, scores_b = list(runs[: len(a)]), list(runs[len(a) :])
    by_seeds = len(a) == len(b) > 1 and not untested
    resamples = 0 if by_seeds else resamples
    separate = _difference(resampled_aucs(runs, labels, patients, resamples, seed), len(a))
    joint = _difference(jointly_resampled_aucs(runs, labels, patients, resamples, seed), len(a))
    defined = [j for j, name in enumerate(first.diseases) if each_a[0][name] is not None]
    units, found = units_per_disease(labels, patients), []
    for j, column in enumerate([*first.columns(), None]):
        name, its = ("mean", defined) if column is None else (column.disease, [j])
        own, drawn = labels[:, its], mean_over_diseases(joint) if column is None else separate[:, j]
        unit = units_of_mean(labels, patients) if column is None else int(units[j])
        auc_a, auc_b = (mean_of(aucs[name] for aucs in each) for each in (each_a, each_b))
        one = Difference(name, auc_a, auc_b)
        if auc_a is not None and auc_b is not None:
            one = replace(one, difference=auc_b - auc_a)
            rows_a, rows_b = ([scores[:, its] for scores in runs] for runs in (scores_a, scores_b))
            if by_seeds:
                one = _over_seeds(one, rows_a, rows_b, own, patients, unit)
            else:
                one = _over_patients(one, drawn, unit, delong_test(rows_a, rows_b, own))
        if by_seeds:
            pairs = zip(each_a, each_b, strict=True)
            one = replace(one, of_seeds=tuple(_minus(y[name], x[name]) for x, y in pairs))
        if column is not None:
            positives, negatives, missing = column.counts
            one = replace(one, positives=positives, negatives=negatives, missing=missing)
            one = replace(one, reason=column.reason or one.reason)
        found.append(one.untested(untested) if untested else one)
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


def _all_aucs(run: Scored) -> dict[str, float | None]:
    """AUC of each disease, and `mean`: None where the labels give none."""
    aucs = auc_per_disease(run)
    return {**aucs, "mean": mean_of(aucs.values())}


def _minus(b: float | None, a: float | None) -> float | None:
    return None if a is None or b is None else b - a


def _difference(aucs: np.ndarray, seeds_a: int) -> np.ndarray:
    """Mean over b's seeds less that over a's: `[resamples, J]` from `[runs, resamples, J]`."""
    return aucs[seeds_a:].mean(axis=0) - aucs[:seeds_a].mean(axis=0)


def _over_patients(one: Difference, resampled: np.ndarray, units: float, delong: DelongTest) -> Difference:
    """With its interval and tests over test patients, or why there are none."""
    assert one.difference is not None
    found = difference_interval(one.difference, resampled, units)
    interval, p = found or (None, None)
    reason = delong.reason
    if found is None and units < 2:
        reason = _one_patient(one)
    elif found is None and len(resampled) >= 2:
        enough = np.isfinite(resampled).sum() >= 2
        reason = f"{'no variance in these data' if enough else 'hardly a resample with both classes'}: no interval"
    return replace(one, interval=interval, p=p, z=delong.z, delong_p=delong.p, reason=reason)


def _over_seeds(
    one: Difference,
    runs_a: Sequence[np.ndarray],
    runs_b: Sequence[np.ndarray],
    labels: np.ndarray,
    patients: np.ndarray,
    units: float,
) -> Difference:
    """With interval and p over test patients and training seeds together, or why there are none."""
    if units < 2:
        return replace(one, reason=_one_patient(one))
    found = seeds_test(runs_a, runs_b, labels, patients)
    return replace(one, interval=found.interval, p=found.p, reason=found.reason)


def _one_patient(one: Difference) -> str:
    return f"one patient with an image of a class{', in a disease' if one.disease == 'mean' else ''}: no interval"
