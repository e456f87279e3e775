"""Everything that is said of one model on one test set: all metrics per disease, means, subgroups; as data and as CSV.

A number never stands alone: each has the protocol, n, n+ and n- beside it. A disease with images of one class has None
where a pair of classes is needed, and the reason; a mean says over how many diseases it is.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chestfed.evaluation.auc import DiseaseAuc, auc_per_disease
from chestfed.evaluation.calibration import (
    DiseaseCalibration,
    DiseaseReliability,
    calibration_per_disease,
    reliability_per_disease,
    uncalibrated,
)
from chestfed.evaluation.intervals.auc_intervals import NO_VARIANCE, ONE_PATIENT, Method, auc_intervals
from chestfed.evaluation.intervals.bootstrap import enough_resamples
from chestfed.evaluation.intervals.degrees_of_freedom import units_per_disease
from chestfed.evaluation.intervals.interval import Bounds, Interval
from chestfed.evaluation.labelled import numbered
from chestfed.evaluation.metrics import (
    OperatingPoint,
    average_precision_per_disease,
    partial_auc_per_disease,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
    youden_points,
)
from chestfed.evaluation.protocols import Protocol
from chestfed.evaluation.resampled_metrics import resampled_metrics, share_interval
from chestfed.evaluation.subgroups import Subgroup, auc_per_subgroup

if TYPE_CHECKING:
    import pandas as pd

#: What the intervals of the AUCs are, for tables; those of the other numbers are the first with either.
METHODS: dict[Method, str] = {
    "bootstrap": "95%, patient-clustered bootstrap, Student's t on the logit scale",
    "delong": "95%, DeLong's variance on the logit scale, units taken for independent",
}

#: Fixed share of the operating points, and end of the partial AUC.
SHARE, MAX_FPR = 0.9, 0.1

_PARTIAL = f"partial_auc_fpr_{MAX_FPR}"
_SENSITIVITY, _SPECIFICITY = f"sensitivity_at_specificity_{SHARE}", f"specificity_at_sensitivity_{SHARE}"


@dataclass(frozen=True)
class DiseaseSummary:
    """One disease.

    Attributes
    ----------
    bounds
        Intervals by the names of `values`, for those numbers that can have one.
    reason
        Why values that need both classes are None.
    """

    disease: str
    auc: DiseaseAuc
    bounds: dict[str, Bounds]
    auprc: float | None
    partial_auc: float | None
    at_specificity: OperatingPoint
    at_sensitivity: OperatingPoint
    youden: OperatingPoint
    calibration: DiseaseCalibration
    reliability: DiseaseReliability
    reason: str

    def values(self) -> dict[str, float | None]:
        """The plain numbers, by the names that the files use."""
        return {
            "auc": self.auc.auc,
            "auprc": self.auprc,
            _PARTIAL: self.partial_auc,
            _SENSITIVITY: self.at_specificity.sensitivity,
            _SPECIFICITY: self.at_sensitivity.specificity,
            "brier": self.calibration.brier,
            "ece_equal_width": self.calibration.ece_equal_width,
            "ece_equal_mass": self.calibration.ece_equal_mass,
        }

    def interval(self, name: str) -> Interval | None:
        """Of one of `values`; None also for a number that never has one."""
        return self.bounds[name].interval if name in self.bounds else None


@dataclass(frozen=True)
class Mean:
    """Mean of one number over the `diseases` diseases that have it; None if none has. Only the AUC's has bounds."""

    value: float | None
    bounds: Bounds
    diseases: int


@dataclass(frozen=True)
class Summary:
    """What `summarise` finds. `units` is n, labelled or not; `subgroups` has one entry per column."""

    protocol: Protocol
    units: int
    patients: int
    method: Method
    diseases: tuple[DiseaseSummary, ...]
    means: dict[str, Mean]
    subgroups: dict[str, list[Subgroup]]


def summarise(
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    diseases: Sequence[str],
    protocol: Protocol,
    *,
    method: Method = "bootstrap",
    resamples: int = 2000,
    seed: int = 0,
    columns: Mapping[str, Sequence[object] | np.ndarray | pd.Series | pd.Categorical] | None = None,
    probabilities: bool = True,
) -> Summary:
    """All metrics of scores `[n, J]` against labels `[n, J]` in {0, 1, NaN}.

    Parameters
    ----------
    patients
        `[n]`, any values that identify a patient: other names, such as keyed ones, give the same summary.
    method
        The intervals of the AUCs, also of their mean and in subgroups. Those of the other numbers are bootstrap
        intervals with either.
    resamples
        Of the intervals of the AUCs; the others take no more than `enough_resamples`.
    columns
        Name of a subgroup column -> its values `[n]`.
    probabilities
        Whether the scores are: in [0, 1], with a calibration. Otherwise they are an order.

    Raises
    ------
    ValueError
        As `auc_per_disease` and `calibration_per_disease`.
    """
    patients = numbered(patients)
    aucs = auc_per_disease(scores, labels, diseases)
    intervals = auc_intervals(aucs, scores, labels, patients, method, resamples, seed)
    if probabilities:
        calibrations = calibration_per_disease(scores, labels, diseases)
        calibrated = list(zip(calibrations, reliability_per_disease(scores, labels, diseases), strict=True))
    else:
        calibrated = uncalibrated(scores, labels, diseases)
    found = []
    for parts in zip(
        aucs,
        intervals.diseases,
        average_precision_per_disease(scores, labels, diseases),
        partial_auc_per_disease(scores, labels, diseases, MAX_FPR),
        sensitivity_at_specificity(scores, labels, diseases, SHARE),
        specificity_at_sensitivity(scores, labels, diseases, SHARE),
        youden_points(scores, labels, diseases),
        calibrated,
        strict=True,
    ):
        auc, bounds, auprc, partial, at_specificity, at_sensitivity, youden, (calibration, curve) = parts
        nothing = auc.positives + auc.negatives == 0
        reason = "no labelled image" if nothing else auc.reason
        found.append(
            DiseaseSummary(
                auc.disease,
                auc,
                {"auc": bounds},
                auprc.value,
                partial.value,
                at_specificity,
                at_sensitivity,
                youden,
                calibration,
                curve,
                reason,
            )
        )
    others = _other_bounds(found, scores, labels, patients, enough_resamples(resamples, len(scores)), seed)
    found = [replace(one, bounds=one.bounds | more) for one, more in zip(found, others, strict=True)]
    means = {name: _mean([one.values()[name] for one in found]) for name in (found[0].values() if found else ())}
    if found:
        means["auc"] = replace(means["auc"], bounds=intervals.mean)
    groups = {
        name: auc_per_subgroup(
            scores,
            labels,
            diseases,
            values,  # type: ignore[arg-type]
            patients,
            method=method,
            resamples=resamples,
            seed=seed,
        )
        for name, values in (columns or {}).items()
    }
    return Summary(protocol, len(scores), len(np.unique(patients)), method, tuple(found), means, groups)


def as_json(summary: Summary) -> dict[str, Any]:
    """The summary as plain data; what is not defined is null, an infinite threshold is `infinity`."""
    protocol = summary.protocol
    return {
        "protocol": protocol,
        "n": summary.units,
        "patients": summary.patients,
        "interval": METHODS[summary.method],
        "interval_of_other_numbers": METHODS["bootstrap"],
        "diseases": {one.disease: {"protocol": protocol, **_disease(one)} for one in summary.diseases},
        "mean": {
            name: {
                "value": mean.value,
                "interval": _pair(mean.bounds.interval),
                "diseases": mean.diseases,
                "of": len(summary.diseases),
                "protocol": protocol,
                "n": summary.units,
            }
            for name, mean in summary.means.items()
        },
        "subgroups": {
            name: [{"value": group.value, "protocol": protocol, "n": group.images, **_group(group)} for group in groups]
            for name, groups in summary.subgroups.items()
        },
    }


#: First columns of the CSV files, which say what a number is over.
_HEAD = ("protocol", "disease", "n", "positives", "negatives", "missing")


def metrics_csv(summary: Summary, head: Mapping[str, object]) -> str:
    """One line per disease and number, and per mean; `head` are columns that are the same in all lines."""
    rows = []
    for one in summary.diseases:
        over = _over(summary, one.disease, one.auc)
        for name, value in one.values().items():
            bounds = one.bounds.get(name, Bounds(None))
            reason = one.reason or one.calibration.reason if value is None else bounds.reason
            rows.append([*over, name, value, *_ends(bounds), "", reason])
        for name, point in _points(one).items():
            for part in ("threshold", "sensitivity", "specificity", "ppv", "npv"):
                value = getattr(point, part)
                rows.append([*over, f"{name}.{part}", value, "", "", "", point.reason and one.reason])
    for name, mean in summary.means.items():
        over = [summary.protocol, "mean", summary.units, None, None, None]
        reason = mean.bounds.reason if mean.diseases else "no disease has it"
        rows.append([*over, name, mean.value, *_ends(mean.bounds), mean.diseases, reason])
    return _csv([*_HEAD, "metric", "value", "low", "high", "over_diseases", "reason"], rows, head)


def subgroups_csv(summary: Summary, head: Mapping[str, object]) -> str:
    """One line per subgroup and disease, and per subgroup's mean; `group_n` is the size of the subgroup."""
    rows = []
    for column, groups in summary.subgroups.items():
        for group in groups:
            start = [column, group.value, group.images]
            for auc, bounds in zip(group.diseases, group.intervals.diseases, strict=True):
                numbers = [auc.auc, *_ends(bounds), ""]
                rows.append([*start, *_over(summary, auc.disease, auc), *numbers, auc.reason or bounds.reason])
            defined = sum(auc.auc is not None for auc in group.diseases)
            over = [summary.protocol, "mean", group.images, None, None, None]
            reason = group.intervals.mean.reason if defined else "no disease has an AUC here"
            rows.append([*start, *over, group.mean, *_ends(group.intervals.mean), defined, reason])
    names = ["column", "group", "group_n", *_HEAD, "auc", "low", "high", "over_diseases", "reason"]
    return _csv(names, rows, head)


def reliability_csv(summary: Summary, head: Mapping[str, object]) -> str:
    """One line per point of each disease's reliability curve."""
    rows = [
        [*_over(summary, one.disease, one.auc), point.mean_score, point.observed_rate, point.count]
        for one in summary.diseases
        for point in one.reliability.bins
    ]
    return _csv([*_HEAD, "mean_score", "observed_rate", "count"], rows, head)


def _other_bounds(
    found: Sequence[DiseaseSummary],
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    resamples: int,
    seed: int,
) -> list[dict[str, Bounds]]:
    """Of each disease, the bounds of the numbers beside the AUC."""
    resampled = resampled_metrics(scores, labels, patients, resamples, seed, share=SHARE, max_fpr=MAX_FPR)
    draws = {
        "auprc": resampled.auprc,
        _PARTIAL: resampled.partial_auc,
        _SENSITIVITY: resampled.sensitivity,
        _SPECIFICITY: resampled.specificity,
        "brier": resampled.brier,
    }
    units = units_per_disease(labels, patients)
    return [
        {name: _bounds(one, one.values()[name], drawn[:, j], int(units[j])) for name, drawn in draws.items()}
        for j, one in enumerate(found)
    ]


def _bounds(one: DiseaseSummary, value: float | None, drawn: np.ndarray, units: int) -> Bounds:
    interval = None if value is None else share_interval(value, drawn, units)
    if value is None or interval is not None or len(drawn) < 2:
        return Bounds(interval)
    if one.auc.reason:
        return Bounds(None, f"{one.auc.reason}: no interval")
    return Bounds(None, ONE_PATIENT if units < 2 else NO_VARIANCE)


def _mean(values: Sequence[float | None]) -> Mean:
    defined = [value for value in values if value is not None]
    return Mean(float(np.mean(defined)) if defined else None, Bounds(None), len(defined))


def _points(one: DiseaseSummary) -> dict[str, OperatingPoint]:
    return {
        f"at_specificity_{SHARE}": one.at_specificity,
        f"at_sensitivity_{SHARE}": one.at_sensitivity,
        "youden": one.youden,
    }


def _disease(one: DiseaseSummary) -> dict[str, Any]:
    auc, calibration = one.auc, one.calibration
    parts = ("reliability", "resolution", "uncertainty", "within_bins")
    return {
        "n": auc.positives + auc.negatives,
        "positives": auc.positives,
        "negatives": auc.negatives,
        "missing": auc.missing,
        **({"reason": one.reason} if one.reason else {}),
        **one.values(),
        **({"no_calibration": calibration.reason} if calibration.reason else {}),
        **{f"{name}_interval": _pair(bounds.interval) for name, bounds in one.bounds.items()},
        "operating_points": {name: _point(point) for name, point in _points(one).items()},
        "brier_parts": {part: getattr(calibration, part) for part in parts},
        "reliability_curve": [asdict(point) for point in one.reliability.bins],
    }


def _point(point: OperatingPoint) -> dict[str, Any]:
    plain = asdict(point)
    del plain["disease"], plain["missing"], plain["reason"]
    if point.threshold is not None and math.isinf(point.threshold):
        plain["threshold"] = "infinity"
    return plain


def _group(group: Subgroup) -> dict[str, Any]:
    return {
        "mean_auc": group.mean,
        "mean_auc_interval": _pair(group.intervals.mean.interval),
        "over_diseases": sum(auc.auc is not None for auc in group.diseases),
        "diseases": {
            auc.disease: {
                "auc": auc.auc,
                "auc_interval": _pair(bounds.interval),
                "n": auc.positives + auc.negatives,
                "positives": auc.positives,
                "negatives": auc.negatives,
                "missing": auc.missing,
                **({"reason": auc.reason} if auc.reason else {}),
            }
            for auc, bounds in zip(group.diseases, group.intervals.diseases, strict=True)
        },
    }


def _over(summary: Summary, disease: str, auc: DiseaseAuc) -> list[object]:
    counts = [auc.positives + auc.negatives, auc.positives, auc.negatives, auc.missing]
    return [summary.protocol, disease, *counts]


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]], head: Mapping[str, object]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, *header])
    for row in rows:
        cells = ["" if cell is None else repr(cell) if isinstance(cell, float) else cell for cell in row]
        writer.writerow([*head.values(), *cells])
    return out.getvalue()


def _ends(bounds: Bounds) -> list[object]:
    return ["", ""] if bounds.interval is None else [bounds.interval.low, bounds.interval.high]


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
