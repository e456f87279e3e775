"""Decisions at a threshold: confusion matrix with its shares, and net benefit over thresholds (the decision curve).

An image is called positive if its probability is at least the threshold. Net benefit weighs a false positive by the
odds of the threshold, `TP / n - FP / n * t / (1 - t)`: A. J. Vickers, E. B. Elkin: Decision curve analysis: a novel
method for evaluating prediction models. Medical Decision Making 26 (2006). It depends on the share of positives in the
test set, and the probabilities have to be calibrated for t to mean what it says.

All numbers here are ratios of sums over images, which are sums over patients. Their intervals are over patients, by the
method in use: with `obuchowski` the variance of a ratio of clustered data, N. A. Obuchowski: On the comparison of
correlated proportions for clustered data. Statistics in Medicine 17 (1998); with `bca` and `percentile` the draws of
the bootstrap. Patients with and without a positive image are strata in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import nearest_hint
from chestfed.results.evaluation.estimates import tidy
from chestfed.results.evaluation.intervals.bootstrap import enough_resamples, stratified_draws
from chestfed.results.evaluation.intervals.interval import (
    ROUNDING,
    Interval,
    around_logit,
    bca_interval,
    clopper_lower,
    quantile_interval,
    student_quantile,
)
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Column, Scored, number_names

#: The thresholds of the decision curve.
CURVE: Final = tuple(round(number / 100, 2) for number in range(1, 100))
#: Where all of it is said, for tables and papers.
REFERENCE: Final = "Vickers and Elkin, Medical Decision Making 26 (2006)"
_SHARES: Final = ("sensitivity", "specificity", "ppv", "npv")
_COUNTS: Final = ("true_positives", "false_positives", "false_negatives", "true_negatives")
_OVER: Final = ("disease", "n", "positives", "negatives", "threshold")


@dataclass(frozen=True)
class Decisions:
    """What thresholds come to on one test set.

    `confusion` has one row per disease, at its own threshold: counts of images, and with `_low` and `_high`
    sensitivity, specificity, PPV, NPV and net benefit. `curve` has one row per disease and threshold of `CURVE`: the
    net benefit of the model with its interval, and that of calling every image (`net_benefit_all`); calling none has 0.
    """

    thresholds: Mapping[str, float]  #: disease -> threshold
    confusion: pd.DataFrame
    curve: pd.DataFrame


def decide(scored: Scored, thresholds: Mapping[str, float], how: Intervals) -> Decisions:
    """The decisions of a model whose scores are probabilities; with an image of one class a number may be missing.

    Raises `ValueError` if a threshold is not strictly between 0 and 1, or a disease has none.
    """
    for disease in scored.diseases:
        if disease not in thresholds or not 0 < thresholds[disease] < 1:
            raise ValueError(f"threshold of {disease}: give a probability between 0 and 1")
    scored = replace(scored, patients=number_names(scored.patients))
    rows: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    for number, column in enumerate(scored.columns()):
        sample = _Sample(column, number, how)
        at = thresholds[column.disease]
        rows.append(_over(column, at) | _confuse(sample, at))
        points += ({**_over(column, at), **_benefit(sample, at)} for at in CURVE)
    shares = [f"{name}{end}" for name in (*_SHARES, "net_benefit") for end in ("", "_low", "_high")]
    curve = ["net_benefit", "net_benefit_low", "net_benefit_high", "net_benefit_all"]
    return Decisions(
        {name: thresholds[name] for name in scored.diseases},
        tidy(rows, [*_OVER, *_COUNTS, *shares, "net_benefit_all"]).astype(dict.fromkeys(shares, float)),
        tidy(points, [*_OVER, *curve]).astype(dict.fromkeys(curve, float)),
    )


class _Sample:
    """The labeled images of one disease as sums over patients, and how intervals of their ratios are made."""

    def __init__(self, column: Column, number: int, how: Intervals) -> None:
        self.column, self.how = column, how
        self.names, self.patient = np.unique(column.patient, return_inverse=True)
        positive = np.zeros(len(self.names), bool)
        positive[self.patient[column.positive]] = True
        self.strata = [part for part in (positive, ~positive) if part.any()]
        self.counts = None if how.method == "obuchowski" or not len(column.score) else self._draw(number)

    def _draw(self, number: int) -> np.ndarray:
        """How often each patient is drawn in each resample, float64 `[resamples, patients]`."""
        resamples = enough_resamples(self.how.resamples, len(self.column.score))
        place, draws = stratified_draws(self.column.positive, self.column.patient, resamples, self.how.seed, number)
        counts = np.concatenate([drawn for _, drawn in draws]) if resamples else np.zeros((0, len(self.names)))
        order = np.zeros(len(self.names), int)
        order[self.patient] = place
        return counts[:, order].astype(float)

    def ratio(self, above: np.ndarray, below: np.ndarray, *, share: bool) -> tuple[float | None, Interval | None]:
        """Sum of `above` over that of `below`, both float `[m]`, and its interval; a `share` lies within 0 and 1."""
        tops, bottoms = (np.bincount(self.patient, part, len(self.names)) for part in (above, below))
        total = bottoms.sum()
        if not total:
            return None, None
        value, units = float(tops.sum() / total), int((bottoms > 0).sum())
        if units < 2:
            return value, None
        if share and not ROUNDING < value < 1 - ROUNDING:
            least = clopper_lower(units, 0.95)
            return value, Interval(least, 1.0) if value > 0.5 else Interval(0.0, 1 - least)
        return value, self._bound(value, tops, bottoms, units, share=share)

    def _bound(
        self, value: float, tops: np.ndarray, bottoms: np.ndarray, units: int, *, share: bool
    ) -> Interval | None:
        if self.counts is None:
            influence = (tops - value * bottoms) / bottoms.sum()
            parts = [influence[stratum] for stratum in self.strata if stratum.sum() > 1]
            error = math.sqrt(sum(len(part) * part.var(ddof=1) for part in parts))
            width = student_quantile(units - 1) * error
            if error < ROUNDING:
                return None
            return around_logit(value, width) if share else Interval(value - width, value + width)
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = (self.counts @ tops) / (self.counts @ bottoms)
            each = (tops.sum() - tops) / (bottoms.sum() - bottoms)
        if self.how.method == "percentile":
            found = quantile_interval(drawn)
        else:
            left_out = [each[stratum & np.isfinite(each)] for stratum in self.strata]
            found = bca_interval(value, drawn, [part for part in left_out if len(part)])
        return None if found is None else found[0]


def _confuse(sample: _Sample, threshold: float) -> dict[str, Any]:
    column = sample.column
    called, positive = column.score >= threshold, column.positive
    counts = [called & positive, called & ~positive, ~called & positive, ~called & ~positive]
    true_called, _, _, true_spared = (part.astype(float) for part in counts)
    ratios = {
        "sensitivity": (true_called, positive),
        "specificity": (true_spared, ~positive),
        "ppv": (true_called, called),
        "npv": (true_spared, ~called),
    }
    row: dict[str, Any] = {name: int(part.sum()) for name, part in zip(_COUNTS, counts, strict=True)}
    for name, (above, below) in ratios.items():
        row |= _number(name, *sample.ratio(above, below.astype(float), share=True))
    return row | _benefit(sample, threshold)


def _benefit(sample: _Sample, threshold: float) -> dict[str, Any]:
    """Net benefit of the model, and of calling every image; nothing without an image of either class."""
    column, odds = sample.column, threshold / (1 - threshold)
    if column.reason:
        return {}
    worth = np.where(column.positive, 1.0, -odds)
    every = np.ones(len(worth))
    benefit = _number("net_benefit", *sample.ratio(worth * (column.score >= threshold), every, share=False))
    return benefit | {"net_benefit_all": float(worth.mean())}


def _number(name: str, value: float | None, interval: Interval | None) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _over(column: Column, threshold: float) -> dict[str, Any]:
    images = {"n": len(column.positive), "positives": column.positives, "negatives": column.negatives}
    return {"disease": column.disease, **images, "threshold": threshold}


def read_thresholds(texts: Sequence[str], diseases: Sequence[str]) -> dict[str, float]:
    """Thresholds of `0.2` for every disease, and `edema=0.1` for one.

    Raises `ValueError` with the text that cannot be read.
    """
    return dict(_read(texts, diseases))


def _read(texts: Sequence[str], diseases: Sequence[str]) -> Iterator[tuple[str, float]]:
    for text in sorted(texts, key=lambda text: "=" in text):
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 < value < 1:
            raise ValueError(f"{text}: give a probability between 0 and 1, such as 0.2, or edema=0.1 for one disease")
        if equals and name not in diseases:
            known = f"{nearest_hint([name], diseases)}; it has {', '.join(diseases)}"
            raise ValueError(f"{text}: the model has no {name}{known}")
        yield from ((disease, value) for disease in ([name] if equals else diseases))
