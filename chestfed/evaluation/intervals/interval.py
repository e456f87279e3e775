"""An interval, and what intervals are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

#: A standard deviation of numbers in [0, 1] below this is rounding, and so is a distance of theirs from 0 or 1.
ROUNDING = 1e-12


class Interval(NamedTuple):
    """Lower and upper end of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Bounds:
    """The interval of a number, or why there is none; of a difference also the p value of the same test.

    All are empty if the number itself is not defined.
    """

    interval: Interval | None = None
    reason: str = ""
    p: float | None = None


def normal_quantile(level: float) -> float:
    """Two-sided quantile of the standard normal distribution: 1.96 for a level of 0.95."""
    return float(scipy.special.ndtri(_checked((1 + level) / 2)))


def student_width(spread: float, units: float, level: float, freedom: float | None = None) -> float:
    """Half width t s sqrt(m / (m - 1)) of an interval, with s the standard deviation of resampled values.

    Drawn from themselves, m `units` (patients) show (m - 1) / m of their variance, and their own spread is uncertain,
    which is what Student's t is for, with `freedom` degrees of freedom or, without it, m - 1: T. C. Hesterberg: What
    teachers should know about the bootstrap. The American Statistician 69 (2015).
    """
    quantile = float(scipy.special.stdtrit(freedom or units - 1, _checked((1 + level) / 2)))
    return quantile * spread * math.sqrt(units / (units - 1))


def student_p(estimate: float, spread: float, units: float) -> float:
    """Two-sided p value of a true value of 0: one less the level at which estimate ± `student_width` first holds 0.

    2 T(-|estimate| / (s sqrt(m / (m - 1)))) with T Student's distribution function for m - 1 degrees of freedom.
    """
    return 2 * float(scipy.special.stdtr(units - 1, -abs(estimate) / (spread * math.sqrt(units / (units - 1)))))


def around_logit(estimate: float, half_width: float) -> Interval:
    """Estimate ± half_width, taken to the logit scale by the delta method, and back: within 0 and 1.

    That is logit(estimate) ± half_width / (estimate (1 - estimate)); `estimate` lies strictly between 0 and 1.
    """
    logit, half = scipy.special.logit(estimate), half_width / (estimate * (1 - estimate))
    return Interval(float(scipy.special.expit(logit - half)), float(scipy.special.expit(logit + half)))


def all_of(units: float, level: float) -> float:
    """Lower end of the exact binomial interval (Clopper and Pearson) of a share where it is `units` of `units`."""
    return float(((1 - level) / 2) ** (1 / units))


def quantile_interval(
    values: np.ndarray, level: float = 0.95, bias: float = 0.0, acceleration: float = 0.0
) -> tuple[Interval, float] | None:
    """Percentile interval of resampled values, or with `bias` and `acceleration` the BCa one; and the p value of 0.

    The ends are the quantiles at Phi(bias + w / (1 - acceleration w)), with w = bias + z for the two quantiles z of the
    normal distribution: B. Efron: Better bootstrap confidence intervals. Journal of the American Statistical
    Association 82 (1987). p is one less the level at which the interval first holds 0, at least 2 / (resamples + 1).

    None if fewer than two values are defined, or all are the same, other than 0; or so are the ends. All 0: the point 0
    and a p of 1.
    """
    values = np.sort(values[~np.isnan(values)])
    if len(values) < 2 or not math.isfinite(bias):
        return None
    if np.ptp(values) < ROUNDING:
        return (Interval(0.0, 0.0), 1.0) if abs(values[0]) < ROUNDING else None
    w = bias + scipy.special.ndtri(np.array([1 - level, 1 + level]) / 2)
    low, high = np.quantile(values, scipy.special.ndtr(bias + w / (1 - acceleration * w)))
    # The shares of values below 0 and up to 0, between two values as np.quantile has it; then the formula backwards.
    zero = np.searchsorted(values, [-ROUNDING, ROUNDING])
    places = zero - [0, 1] if zero[0] < zero[1] else np.full(2, np.interp(0, values, np.arange(len(values))))
    w = scipy.special.ndtri(places / (len(values) - 1)) - bias
    with np.errstate(invalid="ignore"):
        tails = scipy.special.ndtr(np.where(np.isinf(w), w, w / (1 + acceleration * w)) - bias)
    p = min(1.0, max(2 * min(tails[1], 1 - tails[0]), 2 / (len(values) + 1)))
    return (Interval(float(low), float(high)), float(p)) if low < high else None


def bca_interval(
    value: float, values: np.ndarray, left_out: Sequence[np.ndarray], level: float = 0.95
) -> tuple[Interval, float] | None:
    """Bias-corrected and accelerated interval of resampled values: `quantile_interval`.

    `value` is the estimate on the test set itself; resampled values that equal it count one half as below it.
    `left_out` is the estimate without each patient, one array per stratum that patients were drawn within.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return None
    below = ((values < value - ROUNDING).mean() + (values <= value + ROUNDING).mean()) / 2
    influence = np.concatenate([(len(its) - 1) / len(its) * (its.mean() - its) for its in left_out])
    square = float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * square**1.5) if square > ROUNDING**2 else 0.0
    return quantile_interval(values, level, float(scipy.special.ndtri(below)), acceleration)


def logit_interval(
    value: float, values: np.ndarray, units: float, level: float = 0.95, freedom: float | None = None
) -> Interval | None:
    """Interval of a number in [0, 1] from the spread of its resampled values, on the logit scale.

    logit(value) ± t s sqrt(m / (m - 1)) / (value (1 - value)), with s the standard deviation of the resampled values, m
    the number of `units` and t the quantile of Student's distribution with `freedom` degrees; carried back to the scale
    of the number. The logit keeps it within 0 and 1 and undoes most of the skewness; the factor and t are those of a
    mean of m values. Where the number is 0 or 1, the logit ends and the resamples mostly agree: it is then the exact
    binomial interval of none, or all, of m.

    `value` is the estimate on the test set itself; `values` are its resampled ones, `[resamples]`; NaN is left out. m
    is `units_per_disease`, or `units_of_mean` for a mean; `freedom` such as `freedom_per_disease` or `freedom_of_mean`,
    m - 1 without it.

    None if fewer than two values are defined, m is below 2, or all resamples have the same value within 0 and 1.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2 or units < 2:
        return None
    if value >= 1 - ROUNDING:
        return Interval(all_of(units, level), 1.0)
    if value <= ROUNDING:
        return Interval(0.0, 1 - all_of(units, level))
    spread = float(values.std(ddof=1))
    return None if spread < ROUNDING else around_logit(value, student_width(spread, units, level, freedom))


def difference_interval(
    difference: float, values: np.ndarray, units: float, level: float = 0.95
) -> tuple[Interval, float] | None:
    """Interval of a difference of AUCs, and the two-sided p value of no difference that goes with it.

    difference ± t s sqrt(m / (m - 1)) with s the standard deviation of the resampled differences and m the number of
    `units`; p = 2 T(-|difference| / (s sqrt(m / (m - 1)))). Both are of the same t with m - 1 degrees
    of freedom, so p is below 1 - level exactly where the interval leaves out 0. Counting the resamples beyond 0 instead
    would give p a floor of 2 / (resamples + 1), which a correction for many comparisons lifts above 0.05.

    The parameters are those of `logit_interval`.

    None if fewer than two values are defined, or m is below 2, or all resamples have the same difference, other than 0:
    such data do not show how surely. The same difference of 0 in all, as of a model and itself, is the point 0 and a p
    of 1.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2 or units < 2:
        return None
    spread = float(values.std(ddof=1))
    if spread < ROUNDING:
        return (Interval(0.0, 0.0), 1.0) if abs(difference) < ROUNDING else None
    width = student_width(spread, units, level)
    return Interval(difference - width, difference + width), student_p(difference, spread, units)


def _checked(share: float) -> float:
    if not 0.5 < share < 1:
        raise ValueError(f"the level must lie between 0 and 1, not {2 * share - 1:g}")
    return share
