"""An interval, and what intervals are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

#: Description of `logit_interval` in tables.
OTHER_NUMBERS = "95%, patient-clustered bootstrap, Student's t on the logit scale"
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


def student_quantile(freedom: float, level: float = 0.95) -> float:
    """Two-sided quantile of Student's distribution: 2.78 for 4 degrees of freedom.

    Raises `ValueError` for a level outside 0 to 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"the level must lie between 0 and 1, not {level:g}")
    return float(scipy.special.stdtrit(freedom, (1 + level) / 2))


def around_logit(estimate: float, half_width: float) -> Interval:
    """Estimate ± half_width, taken to the logit scale by the delta method, and back: within 0 and 1.

    That is logit(estimate) ± half_width / (estimate (1 - estimate)); `estimate` lies strictly between 0 and 1.
    """
    logit, half = scipy.special.logit(estimate), half_width / (estimate * (1 - estimate))
    return Interval(float(scipy.special.expit(logit - half)), float(scipy.special.expit(logit + half)))


def clopper_lower(units: float, level: float) -> float:
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
    influence = np.concatenate(
        [(len(estimates) - 1) / len(estimates) * (estimates.mean() - estimates) for estimates in left_out]
    )
    square = float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * square**1.5) if square > ROUNDING**2 else 0.0
    return quantile_interval(values, level, float(scipy.special.ndtri(below)), acceleration)


def logit_interval(value: float, values: np.ndarray, units: float, level: float = 0.95) -> Interval | None:
    """Interval of a share, such as the AUPRC, from its resampled values `[resamples]`; NaN is left out.

    logit(value) ± t s sqrt(m / (m - 1)) / (value (1 - value)), carried back, with s the standard deviation of the
    values and t of m - 1 degrees of freedom. Drawn from themselves, m `units` (patients) show (m - 1) / m of their
    variance, and their own spread is uncertain: T. C. Hesterberg: What teachers should know about the bootstrap. The
    American Statistician 69 (2015). A value of 0 or 1 has the exact binomial interval of none, or all, of m.

    None if fewer than two values are defined, m is below 2, or all resamples have the same value within 0 and 1.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2 or units < 2:
        return None
    if value >= 1 - ROUNDING:
        return Interval(clopper_lower(units, level), 1.0)
    if value <= ROUNDING:
        return Interval(0.0, 1 - clopper_lower(units, level))
    spread = float(values.std(ddof=1))
    width = student_quantile(units - 1, level) * spread * math.sqrt(units / (units - 1))
    return None if spread < ROUNDING else around_logit(value, width)
