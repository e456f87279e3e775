"""Paired comparison of two models on the same test images.

Both see the same images, so their AUCs are correlated and the difference is surer than two separate intervals suggest.
Of models that were trained with the same two or more seeds, interval and p are about test patients and training seeds
together (`training_seeds.seeds_test`). Of one model each they are about the choice of test patients, for these two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from chestfed.results.evaluation import power
from chestfed.results.evaluation.estimates import auc_per_disease, compute_spread, mean_of
from chestfed.results.evaluation.intervals import DEFAULT
from chestfed.results.evaluation.intervals.interval import Bounds, Interval
from chestfed.results.evaluation.intervals.methods import Contrast, Intervals, MethodName
from chestfed.results.evaluation.joining.planning import (
    SEED_DEVIATION,
    Assumptions,
    find_detectable,
    find_seeds,
    find_times,
    learn,
)
from chestfed.results.evaluation.labeled import (
    NO_DISEASE_COUNTS,
    Scored,
    find_counted_in_all,
    group_splits,
    put_beside,
    put_together,
)
from chestfed.results.evaluation.splits import Splits
from chestfed.results.evaluation.training_seeds import ENOUGH_SEEDS, SeedsTest, seeds_test

#: Seeds that are tried where the patients are too few, and a small number does not suffice.
_MORE_SEEDS = (10, 20, 50, 100)
#: Why a disease has no interval over splits.
NOT_IN_EVERY_SPLIT = "no image of a class in one of the splits: no interval"
#: Why models of one training seed each have an interval and no p value.
ONE_SEED = "one training seed, no test: another seed gives another difference"


@dataclass(frozen=True)
class Difference:
    """Model b minus model a: the AUC (mean over seeds) of one disease, or the `mean` over those that have one."""

    disease: str
    auc_reference: float | None
    auc_model: float | None
    difference: float | None = None
    #: interval, p: of one test: `seeds_test` with several seeds, else that of the interval's method (`METHODS`). p is
    #: below 0.05 exactly where the interval at 95% leaves out 0, which ends at -1 and 1 at the latest.
    interval: Interval | None = None
    p: float | None = None
    #: Standard deviations of the AUC over the seeds of each; None with one seed.
    seed_sd_reference: float | None = None
    seed_sd_model: float | None = None
    #: positives, negatives, missing: images; None for the mean.
    positives: int | None = None
    negatives: int | None = None
    missing: int | None = None
    reason: str = ""  #: why values are None
    #: The difference of each training seed that both models have; None where an AUC is not defined.
    of_seeds: tuple[float | None, ...] = ()
    #: Smallest difference, of a mean, that these patients and seeds show with 80% power.
    detectable: float | None = None
    #: seeds_needed, times_needed: of such a mean, the seeds that show a difference such as this with these patients, or
    #: where no number does, with how many times as many; infinite if no number that is tried does. Both None if that
    #: was not computed. Of one seed the standard deviation over seeds is assumed (`planning.SEED_DEVIATION`).
    seeds_needed: int | None = None
    times_needed: float | None = None
    in_mean: bool = True  #: of a disease: whether it counts in the mean
    #: Diseases, of a mean, without each of which the interval would lie otherwise to 0: above, around or below it.
    turns_without: tuple[str, ...] = ()

    def untested(self, why: str) -> Difference:
        """Without its p value; the interval stays."""
        return replace(self, p=None, reason=self.reason or why)


def compare(
    a: Sequence[Scored],
    b: Sequence[Scored],
    resamples: int = 2000,
    seed: int = 0,
    untested: str = "",
    interval: MethodName = DEFAULT,
    *,
    advise: bool = False,
) -> tuple[Difference, ...]:
    """Model b minus model a, each given once per training seed and split: per disease, and at last the mean.

    As many runs of both, two or more, are of the same splits and training seeds in the same order: `seeds_test`. A
    disease counts in the mean if it does in every split. Otherwise the
    method is `interval`'s; a bootstrap has the same draws for both models. `untested` says
    why there are to be no p values, but intervals over test patients alone. `advise`: with the seeds or the patients
    that the mean needs, which takes a second.

    Raises `ValueError` if the runs differ in labels, patients, hospitals or diseases, a model has no run, or scores do
    not fit the labels.
    """
    if not a or not b:
        raise ValueError("a model without scores cannot be compared")
    contrast, first = _put_beside(a, b, Intervals(interval, resamples, seed))
    counted = contrast.counted
    assert counted is not None
    each_a, each_b = ([_all_aucs(run, counted) for run in runs] for runs in (a, b))
    over_seeds = len(a) == len(b) > 1 and not untested
    means = [[mean_of(aucs[name] for aucs in each) for name in each[0]] for each in (each_a, each_b)]
    values = [_minus(y, x) for x, y in zip(*means, strict=True)]
    bounds = [Bounds()] * len(values) if over_seeds else contrast.bounds(values)
    columns, differences = {column.disease: column for column in first.columns()}, []
    defined = [j for j in range(len(values) - 1) if values[j] is not None and counted[j]]
    for place, (name, value) in enumerate(zip(each_a[0], values, strict=True)):
        column = columns.get(name)
        difference = Difference(name, means[0][place], means[1][place], value, bounds[place].interval, bounds[place].p)
        sd_reference, sd_model = (compute_spread(aucs[name] for aucs in each) for each in (each_a, each_b))
        difference = replace(difference, seed_sd_reference=sd_reference, seed_sd_model=sd_model)
        difference = replace(difference, reason=bounds[place].reason or (NO_DISEASE_COUNTS if value is None else ""))
        if over_seeds:
            if value is not None and any(aucs[name] is None for aucs in each_a):
                difference = replace(difference, reason=NOT_IN_EVERY_SPLIT)
            elif value is not None:
                difference = _test_over_seeds(difference, contrast, place, defined if name == "mean" else [place])
            pairs = zip(each_a, each_b, strict=True)
            difference = replace(difference, of_seeds=tuple(_minus(y[name], x[name]) for x, y in pairs))
        if column is not None:
            positives, negatives, missing = column.counts.values()
            difference = replace(difference, positives=positives, negatives=negatives, missing=missing)
            reason = column.reason or difference.reason
            difference = replace(difference, reason=reason, in_mean=bool(counted[place]) and value is not None)
        difference = _within_bounds(difference if over_seeds else _with_detectable(difference, contrast))
        differences.append(difference.untested(untested) if untested else difference)
    *diseases, mean = differences
    turns = _find_turns(contrast, values, defined, over_seeds=over_seeds)
    mean = replace(mean, turns_without=tuple(first.diseases[j] for j in turns))
    return (*diseases, _advise(mean, contrast, defined, over_seeds=over_seeds) if advise else mean)


def _put_beside(a: Sequence[Scored], b: Sequence[Scored], how: Intervals) -> tuple[Contrast, Scored]:
    """Both models with the columns of every split side by side, and one run of each split below each other.

    Resamples of several splits would not be of the same patients: their intervals are those of the default.
    """
    splits_a, splits_b = group_splits(a), group_splits(b)
    if list(splits_a) != list(splits_b):
        raise ValueError(f"the runs differ in the splits of the patients: {[*splits_a]} and {[*splits_b]}")
    for number, members in splits_a.items():
        for other in (*members[1:], *splits_b[number]):
            _check_same_images(members[0], other)
    of_each = [members[0] for members in splits_a.values()]
    counted = find_counted_in_all(of_each)
    each = [put_beside(parts) for splits in (splits_a, splits_b) for parts in zip(*splits.values(), strict=True)]
    seeds, count, first = len(a) // len(splits_a), len(splits_a), each[0]
    how = how if count == 1 else replace(how, method=DEFAULT)
    given = np.stack([run.scores for run in each]), first.labels, first.patients, how, seeds, first.hospitals, counted
    return Contrast(*given, count, a[0].rotation), put_together(of_each)


def _advise(mean: Difference, contrast: Contrast, counted: Sequence[int], *, over_seeds: bool) -> Difference:
    """With the seeds that show a mean such as this, or else the patients."""
    if mean.interval is None or not mean.difference or not mean.detectable:
        return mean
    if contrast.splits > 1:
        return mean
    seeds, size = contrast.seeds_a, abs(mean.difference)
    if over_seeds:
        assumed = learn(_test_seeds(contrast, counted), ())
    else:
        error, freedom = contrast.estimate_error(len(contrast.units) - 1)
        assumed = Assumptions((), error**2, SEED_DEVIATION, freedom, "assumed")
    needed = find_seeds(assumed, size)
    if needed is not None:
        return replace(mean, seeds_needed=needed)
    for count in (max(seeds, ENOUGH_SEEDS), *(more for more in _MORE_SEEDS if more > seeds)):
        if (times := find_times(assumed, size, count)) is not None:
            return replace(mean, seeds_needed=count, times_needed=times)
    return replace(mean, times_needed=math.inf)


def _test_seeds(contrast: Contrast, columns: Sequence[int]) -> SeedsTest:
    """The test over seeds of the mean over these diseases."""
    chosen = contrast.expand(columns)
    runs, seeds = [scores[:, chosen] for scores in contrast.runs], contrast.seeds_a
    given = contrast.labels[:, chosen], contrast.patients, contrast.hospitals
    return seeds_test(runs[:seeds], runs[seeds:], *given, Splits(contrast.splits, contrast.rotation))


def _find_turns(
    contrast: Contrast, values: Sequence[float | None], counted: Sequence[int], *, over_seeds: bool
) -> Iterator[int]:
    """The diseases without which the interval of the mean lies otherwise to 0: a jackknife over the diseases.

    By the test over seeds, or by Obuchowski's interval, whatever the method of the intervals: it takes no resamples.
    """

    def locate(columns: Sequence[int]) -> int | None:
        if over_seeds:
            interval = _test_seeds(contrast, columns).interval
        else:
            interval = contrast.bound_part(columns, float(np.mean([values[j] for j in columns])))
        return None if interval is None else (interval.low > 0) - (interval.high < 0)

    whole = locate(counted) if len(counted) > 1 else None
    for left_out in counted if whole is not None else ():
        side = locate([j for j in counted if j != left_out])
        if side is not None and side != whole:
            yield left_out


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P values after Holm's step-down correction, in the same order; None and NaN stay and do not count.

    The i-th smallest of m (i from 0) becomes the largest of (m - k) p_k over k <= i, at most 1.
    S. Holm: A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6 (1979).
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None and not np.isnan(p))
    corrected = list(p_values)
    largest = 0.0
    for i, (p, place) in enumerate(known):
        largest = max(largest, (len(known) - i) * p)
        corrected[place] = min(1.0, largest)
    return corrected


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
    if (a.hospitals is None) != (b.hospitals is None):
        raise ValueError("one run has the mean of the hospitals' AUCs, the other one AUC over the images of all")
    if a.hospitals is not None and not np.array_equal(np.asarray(a.hospitals), np.asarray(b.hospitals)):
        raise ValueError("the runs differ in the hospitals of their images")


def _all_aucs(run: Scored, counted: np.ndarray) -> dict[str, float | None]:
    """AUC of each disease, and `mean` over those that count: None where the labels give none."""
    aucs = auc_per_disease(run)
    return {**aucs, "mean": mean_of(auc for auc, counts in zip(aucs.values(), counted, strict=True) if counts)}


def _minus(b: float | None, a: float | None) -> float | None:
    return None if a is None or b is None else b - a


def _test_over_seeds(difference: Difference, contrast: Contrast, place: int, columns: Sequence[int]) -> Difference:
    """With interval and p over test patients, training seeds and splits together, or with the reason for neither.

    The mean also has what these seeds could show. `columns` are the diseases that the difference is over.
    """
    if contrast.units[place] < 2:
        return replace(difference, reason=contrast.too_few(place))
    test = _test_seeds(contrast, columns)
    difference = replace(difference, interval=test.interval, p=test.p, reason=test.reason)
    if difference.disease != "mean" or not test.error or test.seeds_share is None:
        return difference
    if contrast.splits > 1:
        return replace(difference, detectable=power.detectable_difference(test.error, test.total_freedom))
    return replace(difference, detectable=find_detectable(learn(test, ()), contrast.seeds_a))


def _with_detectable(difference: Difference, contrast: Contrast) -> Difference:
    """A mean of models of one seed with the smallest difference that its patients show."""
    if difference.disease != "mean" or difference.interval is None:
        return difference
    error, freedom = contrast.estimate_error(len(contrast.units) - 1)
    return replace(difference, detectable=power.detectable_difference(error, freedom))


def _within_bounds(difference: Difference) -> Difference:
    """With an interval within -1 and 1. The AUC of the reference, an estimate itself, bounds no difference."""
    if difference.interval is None:
        return difference
    low, high = difference.interval
    return replace(difference, interval=Interval(max(-1.0, low), min(1.0, high)))
