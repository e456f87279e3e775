"""An interval, and what intervals are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Interval:
    """Lower and upper end of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Bounds:
    """The interval of a number, or why there is none. Both are empty if the number itself is not defined."""

    interval: Interval | None
    reason: str = ""


def normal_quantile(level: float) -> float:
    """Two-sided quantile of the standard normal distribution: 1.96 for a level of 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"the level must lie between 0 and 1, not {level}")
    return NormalDist().inv_cdf((1 + level) / 2)


def student_quantile(level: float, freedom: float) -> float:
    """Two-sided quantile of Student's t with `freedom` degrees of freedom: 2.09 for 0.95 and 19."""
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"the level must lie between 0 and 1, not {level}")
    return float(stdtrit(freedom, (1 + level) / 2))


def student_width(spread: float, units: float | None, level: float, freedom: float | None = None) -> float:
    """Half width t s sqrt(m / (m - 1)) of an interval, with s the standard deviation of resampled values.

    Drawn from themselves, m `units` (patients) show (m - 1) / m of their variance, and their own spread is uncertain,
    which is what Student's t is for, with `freedom` degrees of freedom or, without it, m - 1: T. C. Hesterberg: What
    teachers should know about the bootstrap. The American Statistician 69 (2015). None for many units: a normal
    quantile and no factor.
    """
    if units is None:
        return normal_quantile(level) * spread
    return student_quantile(level, freedom or units - 1) * spread * math.sqrt(units / (units - 1))


def student_p(estimate: float, spread: float, units: float) -> float:
    """Two-sided p value of a true value of 0: one less the level at which estimate ± `student_width` first holds 0.

    2 T(-|estimate| / (s sqrt(m / (m - 1)))) with T Student's distribution function for m - 1 degrees of freedom.
    """
    from scipy.special import stdtr

    return 2 * float(stdtr(units - 1, -abs(estimate) / (spread * math.sqrt(units / (units - 1)))))


def around_logit(estimate: float, half_width: float) -> Interval:
    """Estimate ± half_width, taken to the logit scale by the delta method, and back: within 0 and 1.

    That is logit(estimate) ± half_width / (estimate (1 - estimate)); `estimate` lies strictly between 0 and 1.
    """
    logit, half = math.log(estimate / (1 - estimate)), half_width / (estimate * (1 - estimate))
    return Interval(_expit(logit - half), _expit(logit + half))


def all_of(units: float, level: float) -> float:
    """Lower end of the exact binomial interval (Clopper and Pearson) of a share where it is `units` of `units`."""
    return float(((1 - level) / 2) ** (1 / units))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
