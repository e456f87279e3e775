"""Power of a test set: the smallest difference of two models' AUCs that it can show.

Before training the variance of a difference is that of a binormal model. The scores of negative images are N(0, 1) and
those of positive images N(m, 1) under both models, m = sqrt(2) Phi^-1(AUC), and the two models' scores of an image have
the correlation r within a class. With h = Phi^-1(AUC) and Phi2(h, h; c) the bivariate normal distribution of
correlation c, the variance of the structural components of the difference is the same in both classes,

    s^2 = 2 (Phi2(h, h; 1/2) - Phi2(h, h; r/2)),

and that of the difference is s^2 (1/n+ + 1/n-): DeLong's, without the term in 1/(n+ n-). Phi2(h, h; c) is
Phi(h) - 2 T(h, sqrt((1 - c) / (1 + c))) with Owen's T (Annals of Mathematical Statistics 27, 1956). Differences of
diseases count as uncorrelated. The chance of another training seed is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy import special

#: Assumed before training: the AUC of both models, and the correlation of their scores within a class.
AUC, CORRELATION = 0.8, 0.8
#: Power of `detectable_difference`, and level of the two-sided test.
POWER, LEVEL = 0.8, 0.05


def difference_error(
    counts: Iterable[tuple[int, int]], auc: float = AUC, correlation: float = CORRELATION
) -> float | None:
    """Standard error of the difference of two models' mean AUCs, in the binormal model of this module.

    `counts` are the positive and the negative images of each disease; a disease without both has no AUC and is left
    out. One image counts as one patient. None if no disease has both classes.

    Raises `ValueError` if `auc` is not in (0, 1) or `correlation` not in [-1, 1].
    """
    if not 0 < auc < 1 or not -1 <= correlation <= 1:
        raise ValueError(f"auc must lie in (0, 1) and correlation in [-1, 1], not {auc} and {correlation}")
    both = [(positives, negatives) for positives, negatives in counts if positives and negatives]
    if not both:
        return None
    components = 2 * (_both_below(auc, 0.5) - _both_below(auc, correlation / 2))
    variance = sum(components * (1 / positives + 1 / negatives) for positives, negatives in both)
    return math.sqrt(variance) / len(both)


def detectable_difference(error: float, freedom: float) -> float:
    """The smallest true difference that the two-sided t test at `LEVEL` sees with `POWER`.

    The standard error is estimated with so many degrees of freedom. With a true difference d, t is distributed as the
    noncentral one of noncentrality d / error: D. B. Owen: The power of Student's t-test. Journal of the American
    Statistical Association 60 (1965). That the wrong side may be significant is left out.
    """
    from scipy import optimize  # takes a quarter of a second to import

    limit = float(special.stdtrit(freedom, 1 - LEVEL / 2))
    return error * float(
        optimize.brentq(lambda ratio: float(special.nctdtr(freedom, ratio, limit)) - (1 - POWER), 0.0, 10 * limit)
    )


def _both_below(auc: float, correlation: float) -> float:
    """Phi2(h, h; correlation) with Phi(h) = auc."""
    slope = math.sqrt((1 - correlation) / (1 + correlation))
    return auc - 2 * float(special.owens_t(float(special.ndtri(auc)), slope))
