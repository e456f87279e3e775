"""Number of test patients and training seeds that a study needs, before it is run.

The test is that of a finished study (`training_seeds.seeds_test`), its power that of `compute_power`. Two variances
decide: that of the difference over test patients, which more patients make smaller in proportion, and that over
training seeds, which more seeds divide. Both come from a pilot study of two or more seeds, or from assumptions: the
binormal model of `power` for the patients, and a standard deviation for the seeds.

With m comparisons the first step of Holm's correction tests at 0.05 / m, so the power given here, that of each
comparison at this level, is a lower bound of what Holm's procedure has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from chestfed.results.evaluation import power
from chestfed.results.evaluation.labeled import LEAST_PATIENTS, NO_DISEASE_COUNTS
from chestfed.results.evaluation.training_seeds import MOST_SEEDS, SeedsTest, compute_power

#: Assumed without a pilot: the standard deviation over training seeds of the difference of two models' mean AUCs.
SEED_DEVIATION: Final = 0.02
#: Test sets larger than this many times the planned one are not considered.
MOST_TIMES: Final = 1000.0


@dataclass(frozen=True)
class Assumptions:
    """Assumptions on which the power of a study rests, for a test set of the planned size."""

    counts: tuple[tuple[int, int], ...]  #: patients with positive and with negative images, of each disease
    patient_variance: float  #: of the difference of the mean AUCs, over test patients
    seed_deviation: float  #: standard deviation of that difference over training seeds
    freedom: float  #: degrees of freedom of the patient variance
    source: str  #: where these come from, for readers

    def __post_init__(self) -> None:
        if not self.patient_variance >= 0 or not self.seed_deviation >= 0 or not self.freedom >= 1:
            raise ValueError(
                "a plan needs variances of 0 or more and a degree of freedom: "
                f"{self.patient_variance}, {self.seed_deviation}, {self.freedom}"
            )


def assume(
    counts: Sequence[tuple[int, int]],
    auc: float = power.AUC,
    correlation: float = power.CORRELATION,
    seed_deviation: float = SEED_DEVIATION,
    design_effect: float = 1.0,
) -> Assumptions:
    """Assumptions without a pilot.

    `counts` are the patients with positive and with negative images of each disease, `auc` and `correlation` as in
    `power.difference_error`. `design_effect` is how much larger the variance is because a patient has several images.

    Diseases that do not count in a mean (`LEAST_PATIENTS`) are left out. Raises `ValueError` if none is left, or a
    value is out of its range.
    """
    both = tuple(pair for pair in counts if min(pair) >= LEAST_PATIENTS)
    error = power.difference_error(both, auc, correlation)
    if not design_effect > 0:
        raise ValueError(f"the design effect must be above 0, not {design_effect}")
    if error is None:
        raise ValueError(f"of the test patients {NO_DISEASE_COUNTS}: there is no mean AUC to plan for")
    source = (
        f"assumed: AUC {auc:g}, correlation of the models' scores {correlation:g}, SD over seeds {seed_deviation:g}"
    )
    return Assumptions(both, error**2 * design_effect, seed_deviation, count_freedom(both), source)


def learn(pilot: SeedsTest, counts: Sequence[tuple[int, int]]) -> Assumptions:
    """Assumptions from the test of a pilot study on a test set of `counts` patients.

    The pilot's two variances are taken for the true ones. Few seeds know the variance over seeds badly: with three it
    may be four times as large as it looks, or a quarter of it.

    Raises `ValueError` if the pilot has fewer than two seeds, or no variance.
    """
    seeds = len(pilot.of_seeds)
    if seeds < 2 or not pilot.error or pilot.seeds_share is None:
        raise ValueError("a pilot needs two or more training seeds, and a variance between them")
    variance = pilot.error**2
    deviation = math.sqrt(variance * pilot.seeds_share * seeds)
    both = tuple((positives, negatives) for positives, negatives in counts)
    return Assumptions(both, variance * (1 - pilot.seeds_share), deviation, pilot.freedom, f"pilot of {seeds} seeds")


def compute_study_power(
    assumptions: Assumptions, difference: float, seeds: int, times: float = 1.0, comparisons: int = 1
) -> float:
    """The chance to see a true `difference` with `seeds` and a test set `times` as large as the planned one.

    Raises `ValueError` with fewer than two seeds: one seed has no test.
    """
    return _power_curve(assumptions, seeds, times, comparisons)(difference)


def find_detectable(assumptions: Assumptions, seeds: int, times: float = 1.0, comparisons: int = 1) -> float:
    """The smallest true difference that is seen with a chance of `power.POWER`."""
    from scipy import optimize

    chance = _power_curve(assumptions, seeds, times, comparisons)
    scale = math.sqrt(assumptions.patient_variance / times + assumptions.seed_deviation**2 / seeds)
    return (
        float(optimize.brentq(lambda difference: chance(difference) - power.POWER, 0.0, 1e5 * scale)) if scale else 0.0
    )


def find_times(assumptions: Assumptions, difference: float, seeds: int, comparisons: int = 1) -> float | None:
    """Find how many times as many patients as planned show `difference`; None if no number does with these seeds."""
    low, high = 1 / MOST_TIMES, MOST_TIMES

    def is_seen(times: float) -> bool:
        return compute_study_power(assumptions, difference, seeds, times, comparisons) >= power.POWER

    if not is_seen(high):
        return None
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high


def find_seeds(assumptions: Assumptions, difference: float, times: float = 1.0, comparisons: int = 1) -> int | None:
    """The training seeds that show `difference` with this test set; None if no number does."""
    few, many = 1, 2
    while compute_study_power(assumptions, difference, many, times, comparisons) < power.POWER:
        few, many = many, 2 * many
        if few >= MOST_SEEDS:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        enough = compute_study_power(assumptions, difference, middle, times, comparisons) >= power.POWER
        few, many = (few, middle) if enough else (middle, many)
    return many


def tabulate(
    assumptions: Assumptions,
    difference: float,
    seeds: Sequence[int],
    times: Sequence[float] = (0.25, 0.5, 1, 2, 4, 8, 16),
    comparisons: int = 1,
) -> pd.DataFrame:
    """Power and the detectable difference of every size of the test set with every number of seeds, one row each.

    Columns: times, positives and negatives (the largest of any disease), seeds, power, detectable.
    """
    rows = []
    for factor in times:
        largest = [math.ceil(max(values) * factor) for values in zip(*assumptions.counts, strict=True)]
        for count in seeds:
            chance = compute_study_power(assumptions, difference, count, factor, comparisons)
            rows.append((factor, *largest, count, chance, find_detectable(assumptions, count, factor, comparisons)))
    return pd.DataFrame(rows, columns=["times", "positives", "negatives", "seeds", "power", "detectable"])


def _power_curve(assumptions: Assumptions, seeds: int, times: float, comparisons: int) -> Callable[[float], float]:
    """The chance to see a difference, by the difference."""
    if seeds < 2 or not times > 0 or comparisons < 1:
        raise ValueError(f"power needs two or more seeds, a test set and a comparison: {seeds}, {times}, {comparisons}")
    freedom = max(1.0, (assumptions.freedom + 1) * times - 1)
    patients = assumptions.patient_variance / times
    return compute_power(assumptions.seed_deviation**2, patients, freedom, seeds, power.LEVEL / comparisons)


def count_freedom(counts: Sequence[tuple[int, int]]) -> float:
    """Degrees of freedom of a mean's variance, from the patients of both classes of each disease, two or more.

    One less than the effective patients of a mean, by Satterthwaite (`count_effective_patients`).
    """
    variances = [1 / positives + 1 / negatives for positives, negatives in counts]
    pooled = sum(variances) ** 2 / sum(v**2 / (min(pair) - 1) for v, pair in zip(variances, counts, strict=True))
    return min(pooled, min(sum(pair[i] for pair in counts) for i in (0, 1)) - 1)
