"""A summary as plain data and as CSV; every number has the protocol, n, n+ and n- beside it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from chestfed.evaluation.auc import DiseaseAuc
from chestfed.evaluation.intervals.interval import Bounds, Interval
from chestfed.evaluation.metrics import OperatingPoint
from chestfed.evaluation.subgroups import Subgroup
from chestfed.evaluation.summary import METHODS, SHARE, DiseaseSummary, Summary


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
