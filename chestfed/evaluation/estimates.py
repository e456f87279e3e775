"""AUCs of a test set with their intervals, and the one form in which any number is kept: a row of a tidy frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.evaluation import metrics
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.intervals.methods import Contrast, Intervals
from chestfed.evaluation.labeled import Scored

_COUNTS = ("n", "group_n", "count", "images", "patients", "seeds", "positives", "negatives", "missing", "over_diseases")
_NUMBERS = (
    *("value", "auc", "low", "high", "sd", "paper_auc", "mean_score", "observed_rate", "auc_reference", "auc_model"),
    *("difference", "p", "p_holm", "seed_sd_reference", "seed_sd_model"),
)
#: Columns of tidy frames -> what they hold: also where some, or all, are not defined.
_KINDS: Final = dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_NUMBERS, "float64")


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
        return {"disease": self.disease, name: self.value, **ends, **self.counts, "reason": self.reason}


def auc_per_disease(found: Scored) -> dict[str, float | None]:
    """AUC of each disease; None where its images are of one class. Raises as `Scored.columns`."""
    return {column.disease: metrics.auc(column) for column in found.columns()}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of those that are defined; None if none is."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def spread_of(values: Iterable[float | None]) -> float | None:
    """Standard deviation of those that are defined; None of fewer than two."""
    defined = [value for value in values if value is not None]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else None


def auc_estimates(found: Scored, how: Intervals) -> tuple[Estimate, ...]:
    """The AUC of each disease, and at last their mean over those that have one, with 95% intervals.

    Raises `ValueError` as `Scored.columns`.
    """
    columns = found.columns()
    aucs = [metrics.auc(column) for column in columns]
    mean = mean_of(aucs)
    contrast = Contrast(found.scores[None], found.labels, found.patients, how)
    *each, of_mean = contrast.bounds([*aucs, mean])
    return (
        *(
            Estimate(column.disease, auc, bounds.interval, **column.counts, reason=column.reason or bounds.reason)
            for column, auc, bounds in zip(columns, aucs, each, strict=True)
        ),
        Estimate("mean", mean, of_mean.interval, reason=of_mean.reason if columns else ""),
    )


def tidy(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], head: Mapping[str, object] | None = None
) -> pd.DataFrame:
    """Rows as a frame of these columns: counts are whole numbers also where some are missing, what is undefined is NaN.

    `head` are columns in front that are the same in all rows.
    """
    head = head or {}
    found = pd.DataFrame([{**head, **row} for row in rows], columns=[*head, *columns])
    return found.astype({name: kind for name, kind in _KINDS.items() if name in found})


def as_csv(found: pd.DataFrame) -> str:
    """The frame at full precision; what is not defined is an empty cell."""
    return found.to_csv(index=False, lineterminator="\n")
