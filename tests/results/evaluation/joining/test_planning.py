"""Plans of studies: against simulated ones, and the answers against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from chestfed.results.evaluation import power
from chestfed.results.evaluation.comparison import Difference, compare
from chestfed.results.evaluation.joining.planning import (
    SEED_DEVIATION,
    Assumptions,
    assume,
    compute_study_power,
    find_detectable,
    find_seeds,
    find_times,
    learn,
    tabulate,
)
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.training_seeds import seeds_test

COUNTS = [(60, 142), (40, 162), (30, 172)]


def test_planned_sizes_have_the_power() -> None:
    plan = assume(COUNTS, seed_deviation=0.02)
    seeds = find_seeds(plan, 0.05, times=2)
    assert seeds is not None
    assert compute_study_power(plan, 0.05, seeds, 2) >= power.POWER > compute_study_power(plan, 0.05, seeds - 1, 2)
    times = find_times(plan, 0.04, 5)
    assert times is not None
    assert compute_study_power(plan, 0.04, 5, times) >= power.POWER > compute_study_power(plan, 0.04, 5, times / 1.02)


def test_detectable_difference_is_just_seen() -> None:
    plan = assume(COUNTS)
    for comparisons in (1, 5):
        difference = find_detectable(plan, 5, comparisons=comparisons)
        chance = compute_study_power(plan, difference, 5, comparisons=comparisons)
        assert chance == pytest.approx(power.POWER, abs=1e-6)


def test_power_grows_with_sizes() -> None:
    plan = assume(COUNTS, seed_deviation=0.03)
    first = compute_study_power(plan, 0.04, 3)
    assert compute_study_power(plan, 0.05, 3) > first
    assert compute_study_power(plan, 0.04, 5) > first
    assert compute_study_power(plan, 0.04, 3, times=2) > first
    assert compute_study_power(plan, 0.04, 3, comparisons=5) < first
    assert compute_study_power(assume(COUNTS, seed_deviation=0.03, design_effect=2), 0.04, 3) < first


def test_what_seeds_hide_no_patients_show() -> None:
    plan = assume(COUNTS, seed_deviation=0.1)
    assert find_times(plan, 0.02, 2) is None
    large = Assumptions(((50, 50),), 0.01, 0.001, 40, "test")
    assert find_seeds(large, 0.02) is None


def test_table_has_every_size_and_seed() -> None:
    table = tabulate(assume(COUNTS), 0.05, seeds=(2, 5), times=(1, 4))
    assert table[["times", "seeds"]].to_numpy().tolist() == [[1, 2], [1, 5], [4, 2], [4, 5]]
    assert table["positives"].tolist() == [60, 60, 240, 240]
    assert table["power"].between(0, 1).all()
    assert table["power"].iloc[3] > table["power"].iloc[1]


def test_a_pilot_gives_back_its_variances() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((150, 2)) < 0.3) * 1.0
    common = rng.standard_normal((150, 2))
    runs = [[q * labels + common + 0.5 * rng.standard_normal((150, 2)) for _ in range(3)] for q in (1.0, 1.5)]
    pilot = seeds_test(*runs, labels, np.arange(150))
    plan = learn(pilot, [(45, 105)])
    assert plan.patient_variance + plan.seed_deviation**2 / 3 == pytest.approx(pilot.error**2, rel=1e-12)
    assert plan.seed_deviation == pytest.approx(np.std(pilot.of_seeds, ddof=1), rel=1e-9)


@pytest.mark.parametrize("counts", [[], [(1, 50)], [(0, 10)]])
def test_a_plan_without_patients_is_refused(counts: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="no disease has 10 patients"):
        assume(counts)


def test_one_seed_has_no_power() -> None:
    with pytest.raises(ValueError, match="two or more seeds"):
        compute_study_power(assume(COUNTS), 0.05, 1)


def advise_one_seed(seed: int, difference: float, positives: int, n: int) -> tuple[Difference, float]:
    """The advice of one training seed of two binormal models with this true difference; and its standard error."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) < positives).astype(float)[:, None]
    both, shifts = 0.8**0.5 * rng.standard_normal((n, 1)), np.sqrt(2) * special.ndtri([0.8, 0.8 + difference])
    scores = [shift * labels + both + 0.2**0.5 * rng.standard_normal((n, 1)) for shift in shifts]
    *_, mean = compare(*([Scored(each, labels, np.arange(n), ("edema",))] for each in scores), advise=True)
    assert mean.interval is not None
    return mean, (mean.interval.high - mean.interval.low) / 2 / stats.t.ppf(0.975, positives - 1)


def test_advice_takes_students_t_once() -> None:
    """The interval's t is not in the standard error that the test with more seeds starts from."""
    mean, error = advise_one_seed(0, 0.05, 12, 60)
    assert mean.difference is not None
    assert mean.seeds_needed is not None
    assert mean.times_needed is not None
    plan, given = Assumptions((), error**2, SEED_DEVIATION, 11, ""), (abs(mean.difference), mean.seeds_needed)
    chances = [compute_study_power(plan, *given, times) for times in (mean.times_needed, mean.times_needed / 1.02)]
    assert chances[1] < power.POWER <= chances[0]


@pytest.mark.campaign
@pytest.mark.parametrize(("difference", "positives", "n"), [(0.06, 70, 202), (0.06, 14, 60)])
def test_advice_has_power_in_simulation(
    difference: float, positives: int, n: int, save_figures: Callable[[str, Any], None]
) -> None:
    """1,000 studies as advised by a run whose difference and standard error are about the true ones."""
    runs = [advise_one_seed(seed, difference, positives, n) for seed in range(60)]
    usual = float(np.mean([error**2 for _, error in runs])) ** 0.5

    def stray(run: tuple[Difference, float]) -> float:
        return abs((run[0].difference or 0.0) / difference - 1) + abs(run[1] / usual - 1)

    mean, _ = min(runs, key=stray)
    times, seeds = mean.times_needed or 1.0, mean.seeds_needed or 0
    simulated = simulated_power(difference, seeds, SEED_DEVIATION, 1000, round(n * times), round(positives * times))
    save_figures(f"advice, {difference} {positives} {n}", [seeds, times, simulated])
    assert simulated == pytest.approx(power.POWER, abs=0.04)


def simulated_power(
    difference: float, seeds: int, deviation: float, studies: int, n: int = 202, positives: int = 70
) -> float:
    """The share of simulated studies whose test rejects: binormal scores, one disease, one image per patient."""
    shift = np.sqrt(2) * special.ndtri(0.8)
    better = np.sqrt(2) * special.ndtri(0.8 + difference)
    # An AUC's slope in the shift turns a deviation of the AUC into one of the shift.
    slope = np.exp(-(shift**2) / 4) / np.sqrt(4 * np.pi)
    rejected = 0
    for study in range(studies):
        rng = np.random.default_rng([7, study])
        labels = (np.arange(n) < positives).astype(float)[:, None]
        both = 0.8**0.5 * rng.standard_normal((n, 1))
        each = [0.2**0.5 * rng.standard_normal((n, 1)) for _ in range(2)]
        runs = []
        for model, middle in enumerate((shift, better)):
            moves = deviation / slope / np.sqrt(2) * rng.standard_normal(seeds)
            runs.append([(middle + move) * labels + both + each[model] for move in moves])
        p = seeds_test(runs[0], runs[1], labels, np.arange(n)).p
        rejected += p is not None and p < 0.05
    return rejected / studies


@pytest.mark.slow
def test_power_is_that_of_simulated_studies() -> None:
    plan = assume([(70, 132)], seed_deviation=0.02)
    assert simulated_power(0.05, 3, 0.02, 150) == pytest.approx(compute_study_power(plan, 0.05, 3), abs=0.12)


@pytest.mark.campaign
@pytest.mark.parametrize(("difference", "seeds", "deviation"), [(0.03, 5, 0.01), (0.05, 3, 0.02), (0.05, 10, 0.04)])
def test_planned_power_holds_in_simulation(
    difference: float, seeds: int, deviation: float, save_figures: Callable[[str, Any], None]
) -> None:
    """1,000 simulated studies each."""
    planned = compute_study_power(assume([(70, 132)], seed_deviation=deviation), difference, seeds)
    simulated = simulated_power(difference, seeds, deviation, 1000)
    save_figures(f"planning, {difference} {seeds} {deviation}", [planned, simulated])
    assert simulated == pytest.approx(planned, abs=0.06)
