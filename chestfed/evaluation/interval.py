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


def around_logit(estimate: float, half_width: float) -> Interval:
    """Estimate ± half_width, taken to the logit scale by the delta method, and back: within 0 and 1.

    That is logit(estimate) ± half_width / (estimate (1 - estimate)); `estimate` lies strictly between 0 and 1.
    """
    logit, half = math.log(estimate / (1 - estimate)), half_width / (estimate * (1 - estimate))
    return Interval(_expit(logit - half), _expit(logit + half))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
