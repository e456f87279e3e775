"""Evaluation of one model on one test set as tidy frames: all metrics, subgroups, reliability curves.

A number never stands alone: each has the protocol, n, n+ and n- beside it. A disease with images of one class has none
where a pair of classes is needed, and the reason; a mean says over how many diseases it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from chestfed.results.evaluation import metrics
from chestfed.results.evaluation.calibration import NO_PROBABILITIES, calibration, reliability
from chestfed.results.evaluation.estimates import Estimate, auc_estimates, auc_per_disease, mean_of, tidy
from chestfed.results.evaluation.intervals.bootstrap import enough_resamples
from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients
from chestfed.results.evaluation.intervals.interval import Interval, logit_interval
from chestfed.results.evaluation.intervals.methods import NO_VARIANCE, ONE_PATIENT, Intervals
from chestfed.results.evaluation.labeled import (
    LEAST_PATIENTS,
    NO_DISEASE_COUNTS,
    Column,
    Scored,
    find_counted,
    number_names,
)
from chestfed.results.evaluation.metrics import MAX_FPR, SHARE, OperatingPoint
from chestfed.results.evaluation.protocols import Protocol
from chestfed.results.evaluation.resampled_metrics import resampled_metrics

Values = Sequence[object] | np.ndarray | pd.Series | pd.Categorical

#: The numbers that have a mean over the diseases. The first has an interval by the method that is asked for, the next
#: five one from the bootstrap, in the order of `RESAMPLED`.
MAIN = (
    "auc",
    *("auprc", f"partial_auc_fpr_{MAX_FPR}"),
    *(f"sensitivity_at_specificity_{SHARE}", f"specificity_at_sensitivity_{SHARE}"),
    *("brier", "ece"),
)
_BRIER_PARTS = ("reliability", "resolution", "uncertainty", "within_bins")
#: Columns that say what a number is over, and those that stand behind it.
_OVER = ("disease", "n", "positives", "negatives", "missing", "positive_patients", "negative_patients", "in_mean")
_OF_GROUP = ("column", "group", "group_n")
_ENDS = ("low", "high", "over_diseases", "reason")
#: Name of the group of images without a value of a subgroup's column.
MISSING = "missing"
#: Name of the row of a column whose pairs of images are of one group alone.
WITHIN = "within"
#: Remarks in tables of groups: on a disease with few patients, and on pairs within groups.
FEW = (
    f"few: in this group, or another one of its column that has a mean, fewer than {LEAST_PATIENTS} patients have the "
    "disease or are without it; all means of a column's groups are over the same diseases, the others"
)
PAIRS = (
    "within: share of concordant pairs among those whose two images are of one group (obuchowski), below it the AUC "
    "over all pairs; where that is higher, the rest comes from telling the groups apart"
)


@dataclass(frozen=True)
class Summary:
    """Result of `summarize`."""

    protocol: Protocol
    units: int  #: n, labeled or not
    patients: int
    intervals: Intervals
    diseases: tuple[str, ...]
    #: One row per disease and number, then one per mean: what it is over, `metric`, `value`, `low`, `high`, `reason`.
    #: Parts of the operating points and of the Brier score follow those of `MAIN`.
    metrics: pd.DataFrame
    #: One row per `column`, `group` (or `WITHIN`) and disease, and per group's mean: the AUC. Empty without columns.
    subgroups: pd.DataFrame
    reliability: pd.DataFrame  #: one row per point of each disease's reliability curve

    def row(self, disease: str, metric: str = "auc") -> pd.Series:
        """One number of a disease, or of `mean`."""
        return self.metrics[(self.metrics["disease"] == disease) & (self.metrics["metric"] == metric)].iloc[0]


def summarize(
    scored: Scored,
    protocol: Protocol,
    how: Intervals,
    columns: Mapping[str, Values] | None = None,
    *,
    probabilities: bool = True,
) -> Summary:
    """All metrics of a test set.

    Raises `ValueError` as `Scored.columns` and `calibration`, or if a column of values has another length.

    Other names of the patients, such as keyed ones, give the same summary. `how` makes the intervals of the AUCs, also
    of their mean and in subgroups. Those of the other numbers are always `logit_interval`, of no more than
    `enough_resamples`. `columns` maps the name of a subgroup column to its values `[n]`. A categorical column keeps the
    order of its categories; other values are sorted. Images without a value come last, as a subgroup of their own.
    `probabilities`: the scores are in [0, 1], with a calibration. Otherwise they are an order.
    """
    scored = replace(scored, patients=number_names(scored.patients))
    *aucs, mean = auc_estimates(scored, how)
    every = scored.columns()
    resamples = enough_resamples(how.resamples, len(scored.scores))
    rows: list[dict[str, Any]] = []
    for number, (column, auc) in enumerate(zip(every, aucs, strict=True)):
        drawn = resampled_metrics(column, number, resamples, how.seed)
        units = count_effective_patients(scored.labels[:, [number]], scored.patients)
        rows += _metrics(column, auc, drawn, units, probabilities=probabilities)
    for metric in MAIN:
        values = [row["value"] for row in rows if row["metric"] == metric and row["in_mean"]]
        defined = len(values) - values.count(None)
        average = mean if metric == "auc" else Estimate("mean", mean_of(values))
        has = any(row["value"] is not None for row in rows if row["metric"] == metric)
        reason = average.reason if defined else NO_DISEASE_COUNTS if has else "no disease has it"
        over = {"metric": metric, "n": len(scored.labels), "over_diseases": defined, "reason": reason}
        rows.append(average.record() | over)
    points = [
        _over(column) | asdict(point) for column in (every if probabilities else ()) for point in reliability(column)
    ]
    head = {"protocol": protocol}
    return Summary(
        protocol,
        len(scored.scores),
        len(np.unique(scored.patients)),
        how,
        tuple(scored.diseases),
        tidy(rows, [*_OVER, "metric", "value", *_ENDS], head),
        tidy(_subgroups(scored, columns or {}, how), [*_OF_GROUP, *_OVER, "auc", *_ENDS, "auc_all_pairs"], head),
        tidy(points, [*_OVER, "mean_score", "observed_rate", "count"], head),
    )


def age_bands(ages: np.ndarray) -> pd.Categorical:
    """Band that each age `[n]` in years falls into, in their order; NaN stays missing."""
    edges, names = [-np.inf, 40, 60, 80, np.inf], ["<40", "40-59", "60-79", ">=80"]
    return pd.cut(np.asarray(ages, float), edges, right=False, labels=names)


def group_columns(rows: pd.DataFrame, *, by_image: bool) -> pd.DataFrame:
    """Sex, band of age (never an age) and, with `by_image`, view and named groups of rows `[n]` of a site table.

    Those of which nothing is known are left out.
    """
    columns = pd.DataFrame({"sex": rows["sex"].array, "age": age_bands(rows["age"].to_numpy())})
    if by_image:
        columns["view"] = rows["view"].cat.remove_unused_categories().array
        for name in (str(name) for name in rows if str(name).startswith("group_")):
            columns[name.removeprefix("group_")] = rows[name].cat.remove_unused_categories().array
    return columns.dropna(axis="columns", how="all")


@dataclass(frozen=True)
class GroupAucs:
    """AUCs of one group of a column, or over the pairs within its groups."""

    column: str
    group: str  #: a value, `MISSING`, or `WITHIN`
    rows: np.ndarray  #: bool `[n]`: the images of the group, or those that are in a pair
    estimates: tuple[Estimate, ...]  #: of each disease, and of their mean
    #: Of `WITHIN`: the AUC over all pairs, and as `mean` its mean over the diseases of the mean within.
    all_pairs: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """Head of its line in tables."""
        return name_group(self.column, self.group)


def name_group(column: str, group: str) -> str:
    """Head of a group's line in tables."""
    return f"{WITHIN} {column}" if group == WITHIN else f"{column} {group}"


def list_groups(columns: Mapping[str, Values], images: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """Every value that occurs in each column, with its rows, bool `[n]`; the order is that of `summarize`."""
    for name, values in columns.items():
        if len(values) != images:
            raise ValueError(f"{len(values)} values of {name} do not fit {images} images")
        column = pd.Categorical(pd.Series(values))
        for code, group in [*enumerate(column.categories), (-1, MISSING)]:
            if (rows := column.codes == code).any():
                yield name, str(group), rows


def _metrics(
    column: Column, auc: Estimate, drawn: np.ndarray, units: float, *, probabilities: bool
) -> Iterator[dict[str, Any]]:
    """The numbers of one disease: those of `MAIN`, then the parts of its operating points and Brier score."""
    nothing = auc.reason if auc.value is None else ""
    nothing = nothing if len(column.score) else "no labeled image"

    def row(metric: str, value: float | None, interval: Interval | None = None, reason: str = "") -> dict[str, Any]:
        low, high = interval or (None, None)
        return _over(column) | {"metric": metric, "value": value, "low": low, "high": high, "reason": reason}

    points = {
        f"at_specificity_{SHARE}": metrics.sensitivity_at_specificity(column),
        f"at_sensitivity_{SHARE}": metrics.specificity_at_sensitivity(column),
        "youden": metrics.youden(column),
    }
    at_specificity, at_sensitivity, _ = points.values()
    calibrated = calibration(column) if probabilities else None
    resampled = (
        metrics.average_precision(column),
        metrics.partial_auc(column),
        None if at_specificity is None else at_specificity.sensitivity,
        None if at_sensitivity is None else at_sensitivity.specificity,
        None if calibrated is None else calibrated.brier,
    )
    yield row("auc", auc.value, auc.interval, nothing or auc.reason)
    for metric, value, values in zip(MAIN[1:6], resampled, drawn, strict=True):
        interval = None if value is None else logit_interval(value, values, units)
        if value is None:
            reason = nothing or NO_PROBABILITIES
        elif interval is None and len(values) > 1:
            why = ONE_PATIENT if units < 2 else NO_VARIANCE
            reason = f"{column.reason}: no interval" if column.reason else why
        else:
            reason = ""
        yield row(metric, value, interval, reason)
    for metric in MAIN[6:]:
        yield row(metric, getattr(calibrated, metric, None), None, "" if calibrated else nothing or NO_PROBABILITIES)
    for name, point in points.items():
        for part in (part.name for part in fields(OperatingPoint)):
            yield row(f"{name}.{part}", getattr(point, part, None), None, "" if point else nothing)
    for part in _BRIER_PARTS:
        yield row(
            f"brier.{part}", getattr(calibrated, part, None), None, "" if calibrated else nothing or NO_PROBABILITIES
        )


def estimate_groups(scored: Scored, columns: Mapping[str, Values], how: Intervals) -> Iterator[GroupAucs]:
    """Each value of each column with its AUCs; a large group gets fewer resamples.

    The last of a column with several values is `WITHIN`: the AUCs over pairs of images of one value, with the images
    that are in a pair. An image without a value is in none.

    The means of a column's groups are over the same diseases, so that they can be compared: those that count in every
    group where any does (`find_counted`).

    A subgroup's AUC compares its positives with its own negatives only. So a difference between subgroups can come from
    how hard their negatives are as much as from the model, and a score that is shifted as a whole in one subgroup is
    not seen at all. `WITHIN` compares as they do, and its difference from the AUC over all pairs is what the model gets
    from telling the groups apart.
    """
    every = list(list_groups(columns, len(scored.labels)))
    for name, values in columns.items():
        groups = [(group, rows) for column, group, rows in every if column == name]
        parts = [scored.where(rows) for _, rows in groups]
        counted = [find_counted(part.labels, part.patients, part.hospitals) for part in parts]
        common = np.all([part for part in counted if part.any()], axis=0)
        for (group, rows), part in zip(groups, parts, strict=True):
            enough = replace(how, resamples=enough_resamples(how.resamples, int(rows.sum())))
            yield GroupAucs(name, group, rows, auc_estimates(part, enough, common))
        paired = scored.pair_within(values)
        in_pair = ~np.isnan(paired.labels).all(axis=1)
        if len(groups) > 1 and in_pair.any():
            within, plain = auc_estimates(paired, how), auc_per_disease(scored)
            mean = mean_of(plain[estimate.disease] for estimate in within[:-1] if estimate.in_mean)
            yield GroupAucs(name, WITHIN, in_pair, within, {**plain, "mean": mean})


def _subgroups(scored: Scored, columns: Mapping[str, Values], how: Intervals) -> Iterator[dict[str, Any]]:
    for group in estimate_groups(scored, columns, how):
        images, defined = int(group.rows.sum()), sum(estimate.in_mean for estimate in group.estimates[:-1])
        head = {"column": group.column, "group": group.group, "group_n": images}
        for estimate in group.estimates:
            n = {"n": images, "over_diseases": defined} if estimate.disease == "mean" else {"n": estimate.images}
            none = {} if defined or estimate.disease != "mean" else {"reason": NO_DISEASE_COUNTS}
            pairs = {"auc_all_pairs": group.all_pairs.get(estimate.disease)}
            yield {**head, **estimate.record("auc"), **n, **none, **pairs}


def _over(column: Column) -> dict[str, Any]:
    """Columns on the images that a number of a disease is over."""
    positives, negatives = column.patient_counts
    return {
        "disease": column.disease,
        "n": len(column.positive),
        **column.counts,
        "positive_patients": positives,
        "negative_patients": negatives,
        "in_mean": column.in_mean,
    }
