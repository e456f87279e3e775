"""Everything that is said of one model on one test set: all metrics per disease, means, subgroups.

A number never stands alone: each has the protocol, n, n+ and n- beside it. A disease with images of one class has None
where a pair of classes is needed, and the reason; a mean says over how many diseases it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from chestfed.evaluation.labeled import numbered
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
    """What `summarize` finds. `units` is n, labeled or not; `subgroups` has one entry per column."""

    protocol: Protocol
    units: int
    patients: int
    method: Method
    diseases: tuple[DiseaseSummary, ...]
    means: dict[str, Mean]
    subgroups: dict[str, list[Subgroup]]


def summarize(
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
    found, mean_bounds = _diseases(scores, labels, patients, diseases, method, resamples, seed, probabilities)
    others = _other_bounds(found, scores, labels, patients, enough_resamples(resamples, len(scores)), seed)
    found = [replace(one, bounds=one.bounds | more) for one, more in zip(found, others, strict=True)]
    means = {name: _mean([one.values()[name] for one in found]) for name in (found[0].values() if found else ())}
    if found:
        means["auc"] = replace(means["auc"], bounds=mean_bounds)
    options: dict[str, Any] = {"method": method, "resamples": resamples, "seed": seed}
    groups = {
        name: auc_per_subgroup(scores, labels, diseases, values, patients, **options)  # type: ignore[arg-type]
        for name, values in (columns or {}).items()
    }
    return Summary(protocol, len(scores), len(np.unique(patients)), method, tuple(found), means, groups)


def _diseases(
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    diseases: Sequence[str],
    method: Method,
    resamples: int,
    seed: int,
    probabilities: bool,
) -> tuple[list[DiseaseSummary], Bounds]:
    """Every disease, with the bounds of its AUC only; and the bounds of the mean AUC."""
    aucs = auc_per_disease(scores, labels, diseases)
    intervals = auc_intervals(aucs, scores, labels, patients, method, resamples, seed)
    if probabilities:
        calibrations = calibration_per_disease(scores, labels, diseases)
        calibrated = list(zip(calibrations, reliability_per_disease(scores, labels, diseases), strict=True))
    else:
        calibrated = uncalibrated(scores, labels, diseases)
    parts = zip(
        aucs,
        intervals.diseases,
        average_precision_per_disease(scores, labels, diseases),
        partial_auc_per_disease(scores, labels, diseases, MAX_FPR),
        sensitivity_at_specificity(scores, labels, diseases, SHARE),
        specificity_at_sensitivity(scores, labels, diseases, SHARE),
        youden_points(scores, labels, diseases),
        calibrated,
        strict=True,
    )
    found = [
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
            reason=auc.reason if auc.positives + auc.negatives else "no labeled image",
        )
        for auc, bounds, auprc, partial, at_specificity, at_sensitivity, youden, (calibration, curve) in parts
    ]
    return found, intervals.mean


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
