"""AUCs of a test set with their intervals, and the one form in which any number is kept: a row of a tidy frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.results.evaluation.intervals.interval import Interval, around_logit
from chestfed.results.evaluation.intervals.methods import Contrast, Intervals
from chestfed.results.evaluation.labeled import (
    NO_DISEASE_COUNTS,
    Column,
    Scored,
    divide,
    find_counted,
    find_counted_in_all,
    group_splits,
    put_beside,
)
from chestfed.results.evaluation.splits import Splits
from chestfed.results.evaluation.training_seeds import estimate_contrast

_COUNTS = (
    "n",
    "group_n",
    "count",
    "images",
    "patients",
    "hospitals",
    "seeds",
    *("split", "splits"),
    *("positives", "negatives", "missing", "positive_patients", "negative_patients"),
    "over_diseases",
    *("k", "window", "seed", "left_out", "seeds_reference", "seeds_model", "seeds_needed"),
)
_NUMBERS = (
    *(
        "value",
        "auc",
        "auc_all_pairs",
        "low",
        "high",
        "sd",
        "paper_auc",
        "mean_score",
        "observed_rate",
        "auc_reference",
        "auc_model",
    ),
    *("difference", "p", "p_holm", "seed_sd_reference", "seed_sd_model", "detectable"),
)
#: Columns of tidy frames -> what they hold: also where some, or all, are not defined.
KINDS: Final = dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_NUMBERS, "float64")


@dataclass(frozen=True)
class Estimate:
    """The AUC of one disease, or of their `mean`."""

    disease: str
    #: value, interval: None if it is not defined; `reason` says why.
    value: float | None
    interval: Interval | None = None
    #: positives, negatives, missing: images that it is over; None for a mean.
    positives: int | None = None
    negatives: int | None = None
    missing: int | None = None
    reason: str = ""
    #: hospitals: whose own AUCs it is the mean of; None: one AUC over all pairs of images. left_out: the others
    #: (`divide`). Of the mean over diseases: hospitals with an AUC of any disease, and those without.
    hospitals: int | None = None
    left_out: int = 0
    #: Hospitals that do not count in a mean, each with its patients with a positive and with a negative image.
    few_at: tuple[tuple[str, int, int], ...] = ()
    #: Patients with a positive and with a negative image; None for a mean, and in results of version 0.2 and before.
    positive_patients: int | None = None
    negative_patients: int | None = None
    in_mean: bool = True  #: whether it counts in the mean over the diseases (`LEAST_PATIENTS`)

    @property
    def counts(self) -> dict[str, int | None]:
        """Positive, negative and missing images by these names."""
        return {"positives": self.positives, "negatives": self.negatives, "missing": self.missing}

    @property
    def images(self) -> int | None:
        """n, the labeled images; None for a mean."""
        return None if self.positives is None or self.negatives is None else self.positives + self.negatives

    def record(self, name: str = "value") -> dict[str, Any]:
        """As a row of a tidy frame, the value in the column `name`."""
        low, high = self.interval or (None, None)
        ends = {"low": low, "high": high}
        number = {name: getattr(self, name) for name in ("hospitals", "positive_patients", "negative_patients")}
        number |= {"in_mean": self.in_mean and self.value is not None}
        return {"disease": self.disease, name: self.value, **ends, **self.counts, **number, "reason": self.reason}


def compute_auc(column: Column) -> float | None:
    """Area under the ROC curve; ties count one half. With hospitals the mean of their own areas (`Column.parts`).

    With strata the share of concordant pairs among those of one stratum.
    """
    areas = [_compute_area(part) for part in column.parts()]
    return float(np.mean(areas)) if areas else None


def _compute_area(part: Column) -> float:
    from sklearn.metrics import auc, roc_curve  # as roc_auc_score, without its checks, which double the time

    if part.stratum is None:
        return float(auc(*roc_curve(part.positive, part.score)[:2]))
    strata = [replace(part.take(part.stratum == code), stratum=None) for code in np.unique(part.stratum)]
    pairs = [stratum.positives * stratum.negatives for stratum in strata]
    return float(np.average([_compute_area(stratum) for stratum in strata], weights=pairs))


def average_roc(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates of the ROC curve; with hospitals the mean true rate at each false one.

    The area under it is `compute_auc`. Raises `ValueError` if there is none.
    """
    from sklearn.metrics import roc_curve

    curves = [roc_curve(part.positive, part.score)[:2] for part in column.parts()]
    if len(curves) == 1:
        return curves[0]
    rates = np.unique(np.concatenate([false for false, _ in curves]))
    # Where a curve is vertical, np.interp takes its upper end, and from the other side its lower one.
    lower = np.mean([np.interp(-rates, -false[::-1], true[::-1]) for false, true in curves], axis=0)
    upper = np.mean([np.interp(rates, false, true) for false, true in curves], axis=0)
    return np.repeat(rates, 2), np.stack([lower, upper], axis=1).ravel()


def compute_mean(scored: Scored, aucs: Mapping[str, float | None]) -> float | None:
    """The mean of the AUCs of `auc_per_disease` over the diseases that count; None if none does."""
    counted = find_counted(scored.labels, scored.patients, scored.hospitals)
    return mean_of(auc for auc, counts in zip(aucs.values(), counted, strict=True) if counts)


def auc_per_disease(scored: Scored) -> dict[str, float | None]:
    """AUC of each disease; None where its images are of one class. Raises as `Scored.columns`."""
    return {column.disease: compute_auc(column) for column in scored.columns()}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of those that are defined; None if none is."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def compute_spread(values: Iterable[float | None]) -> float | None:
    """Standard deviation of those that are defined; None of fewer than two."""
    defined = [value for value in values if value is not None]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else None


def auc_estimates(scored: Scored, how: Intervals, counted: np.ndarray | None = None) -> tuple[Estimate, ...]:
    """The AUC of each disease, and at last their mean, with 95% intervals.

    The mean is over those that count (`find_counted`), or over the given ones of them, bool `[J]`. Raises `ValueError`
    as `Scored.columns`. With strata the intervals are Obuchowski's, whatever the method.
    """
    columns = scored.columns()
    how = how if scored.strata is None else replace(how, method="obuchowski")
    aucs = [compute_auc(column) for column in columns]
    of_labels = find_counted(scored.labels, scored.patients, scored.hospitals)
    counted = of_labels & (True if counted is None else counted)
    mean = mean_of(value for value, counts in zip(aucs, counted, strict=True) if counts)
    contrast = Contrast(
        scored.scores[None], scored.labels, scored.patients, how, 0, scored.hospitals, counted, strata=scored.strata
    )
    *each, of_mean = contrast.bounds([*aucs, mean])
    estimates = [
        Estimate(
            column.disease,
            value,
            bounds.interval,
            positives=column.positives,
            negatives=column.negatives,
            missing=column.missing,
            reason=column.reason or bounds.reason,
            positive_patients=column.patient_counts[0],
            negative_patients=column.patient_counts[1],
            in_mean=bool(counts),
        )
        for column, value, bounds, counts in zip(columns, aucs, each, counted, strict=True)
    ]
    reason = NO_DISEASE_COUNTS if mean is None else of_mean.reason
    estimates.append(Estimate("mean", mean, of_mean.interval, reason=reason if columns else ""))
    return tuple(estimates) if scored.hospitals is None else _count_hospitals(estimates, scored, scored.hospitals)


def bound_over_runs(runs: Sequence[Scored], values: Sequence[float | None]) -> list[Interval | None]:
    """Intervals of a model's mean AUCs over seeds and splits of the patients: of each disease, and of the mean.

    `values` are these AUCs, the mean over the diseases that count in every split. None where a split has none, a class
    has fewer than two patients, or an AUC is 0 or 1. By `estimate_contrast`, on the logit scale as `auc_estimates`.
    """
    groups = group_splits(runs)
    beside = [put_beside(parts) for parts in zip(*groups.values(), strict=True)]
    first, splits = beside[0], Splits(len(groups), runs[0].rotation)
    counted = find_counted_in_all([part[0] for part in groups.values()])
    given = first.scores[None], first.labels, first.patients
    contrast = Contrast(*given, Intervals(), 0, first.hospitals, counted, splits.count)
    intervals: list[Interval | None] = []
    for place, value in enumerate(values):
        columns = contrast.columns(place)
        scores, interval = [run.scores[:, columns] for run in beside], None
        if value is not None and 0 < value < 1 and contrast.units[place] >= 2:
            with suppress(ValueError):  # a split without an AUC
                shared = first.labels[:, columns], first.patients, first.hospitals
                test = estimate_contrast([scores], [1.0], *shared, splits=splits)
                width = 0.0 if test.interval is None else test.interval.high - test.difference
                interval = around_logit(value, width) if width else None
        intervals.append(interval)
    return intervals


def _count_hospitals(estimates: Sequence[Estimate], scored: Scored, hospitals: np.ndarray) -> tuple[Estimate, ...]:
    """The estimates with the hospitals that they are the mean of, and those that do not count."""
    cells, names = divide(scored.labels, scored.patients, hospitals), pd.unique(np.asarray(hospitals))
    columns = [[cell for cell in cells if cell.column == j] for j in range(scored.labels.shape[1])]
    few = [
        tuple((str(name), *cell.patients) for name, cell in zip(names, column, strict=True) if not cell.counts)
        for column in columns
    ]
    used = [{cell.hospital for cell in column if cell.weight} for column in columns]
    return tuple(
        replace(estimate, hospitals=len(here), left_out=len(names) - len(here), few_at=few_at)
        for estimate, here, few_at in zip(estimates, [*used, set().union(*used)], [*few, ()], strict=True)
    )


def tidy(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], head: Mapping[str, object] | None = None
) -> pd.DataFrame:
    """Rows as a frame of these columns: counts are whole numbers also where some are missing, what is undefined is NaN.

    `head` are columns in front that are the same in all rows.
    """
    head = head or {}
    frame = pd.DataFrame([{**head, **row} for row in rows], columns=[*head, *columns])
    return frame.astype({name: kind for name, kind in KINDS.items() if name in frame})


def as_csv(frame: pd.DataFrame) -> str:
    """The frame at full precision; what is not defined is an empty cell."""
    return frame.to_csv(index=False, lineterminator="\n")
