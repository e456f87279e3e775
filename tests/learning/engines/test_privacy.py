"""Client-level differential privacy: sensitivity, noise, the accountant's figures, and where it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from scipy.stats import kstest

from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.variables import Point, mean_of, named_tensors
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.server import ServerEngine
from chestfed.learning.exchange.exchange import Exchange
from chestfed.learning.exchange.noise import Noise, epsilon
from chestfed.learning.exchange.step import Arrived, Package
from chestfed.studies.experiment.rules import check_runs
from chestfed.studies.training.loop import Trained
from tests.cases import assert_refused
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient
from tests.studies.training.test_resume_algorithms import make_pipeline, train

ROWS = st.integers(2, 5).flatmap(
    lambda clients: arrays(np.float64, (clients, 6), elements=st.floats(-1e3, 1e3, allow_subnormal=False))
)
SENT = Point(torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64))


def point(row: np.ndarray) -> Point:
    return Point(torch.from_numpy(row[:4].copy()), torch.from_numpy(row[4:].copy()))


def noisy_mean(step: Noise, updates: list[Point], weights: list[float], sent: Point, *place: int) -> Point:
    """What the server's step takes in place of the updates."""
    none = torch.zeros(0)
    parts = [Package(update, none) for update in updates]
    (part,) = step.at_server(Arrived(parts, weights, Package(sent, none), place or (0, 0))).parts  # type: ignore[arg-type]
    result: Point = part.update
    return result


def vector(record: Point) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in named_tensors(record).values()])


@given(ROWS, st.floats(1e-3, 1e4), st.integers(0, 4), st.booleans())
def test_client_moves_the_mean_by_its_clip(rows, clip, who, uneven) -> None:  # type: ignore[no-untyped-def]
    updates, silent = [point(row) for row in rows], Noise(clip, 0.0)
    who %= len(updates)
    weights = [1 / len(updates)] * len(updates)
    if uneven:
        weights = [weight / 2 for weight in weights[:-1]]
        weights.append(1 - sum(weights))
    without = [SENT if number == who else update for number, update in enumerate(updates)]
    moved = vector(noisy_mean(silent, updates, weights, SENT)) - vector(noisy_mean(silent, without, weights, SENT))
    assert float(moved.norm()) <= clip * weights[who] * (1 + 1e-9) + 1e-9


def test_clipping_keeps_short_changes() -> None:
    updates = [point(np.arange(6.0)), point(np.ones(6))]
    weights = [0.25, 0.75]
    kept = noisy_mean(Noise(1e9, 0.0), updates, weights, SENT)
    torch.testing.assert_close(vector(kept), vector(mean_of(updates, weights)))
    change = vector(noisy_mean(Noise(0.5, 0.0), updates[:1], [1.0], SENT)) - vector(SENT)
    expected = vector(updates[0]) - vector(SENT)
    torch.testing.assert_close(change, 0.5 * expected / expected.norm())


@pytest.mark.parametrize("seed", [3, None])
def test_noise_is_normal_in_every_tensor(seed: int | None) -> None:
    start = Point(torch.zeros(100_000), torch.zeros(100_000))
    noisy = noisy_mean(Noise(clip=0.5, noise_multiplier=3.0, seed=seed), [start] * 2, [0.7, 0.3], start)
    for tensor in (noisy.primal, noisy.dual):
        assert kstest(tensor.numpy() / (0.5 * 3.0 * 0.7), "norm").pvalue > 1e-6
    assert abs(float((noisy.primal * noisy.dual).mean())) < 0.02  # they are no copies of each other
    again = noisy_mean(Noise(0.5, 3.0, seed), [start] * 2, [0.7, 0.3], start)
    other = noisy_mean(Noise(0.5, 3.0, seed), [start] * 2, [0.7, 0.3], start, 0, 1)
    assert torch.equal(noisy.primal, again.primal) == (seed is not None)
    assert not torch.equal(noisy.primal, other.primal)


def test_noise_differs_by_round_and_repeats() -> None:
    problems = saddle.heterogeneous(3)
    rule = CodaPlus(2, 0.05, 0.05, output="last")
    clients = [QuadraticClient(f"c{number}", problem, buffers=0) for number, problem in enumerate(problems)]

    def rounds(*steps: Noise) -> list[torch.Tensor]:
        engine = ServerEngine(rule, LocalFleet.of(clients, rule), [1 / 3] * 3, exchange=Exchange(steps))
        state = engine.start_stage(saddle.origin(problems), torch.zeros(0, dtype=torch.float64))
        points = []
        for _ in range(2):
            state, _ = engine.run_round(state)
            points.append(engine.current(state).primal)
        return points

    exact, noisy, again = (rounds(options) for options in (Noise(1e6, 0.0), Noise(1e6, 1e-8, 1), Noise(1e6, 1e-8, 1)))
    torch.testing.assert_close(exact, rounds())
    assert all(map(torch.equal, noisy, again))
    first, second = (result - other for result, other in zip(noisy, exact, strict=True))
    assert 0 < float(first.norm()) < 1
    assert float((second - first).norm()) > 0.1 * float(first.norm())


def compute_gaussian_epsilon(mean: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism: Balle, Wang, ICML 2018, Theorem 8."""

    def excess(value: float) -> float:
        return float(ndtr(mean / 2 - value / mean) - np.exp(value + log_ndtr(-mean / 2 - value / mean)) - delta)

    return float(brentq(excess, 0, 1000))


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (1.0, 10), (4.0, 100), (20.0, 200), (0.5, 8)])
def test_budget_is_above_one_gaussian(multiplier: float, rounds: int) -> None:
    pytest.importorskip("opacus", reason="needs chestfed[privacy]")
    exact = compute_gaussian_epsilon(rounds**0.5 / multiplier, 1e-5)
    assert exact <= epsilon(multiplier, rounds, 1e-5) <= 1.15 * exact


def test_accountant_equals_the_2020_census() -> None:
    pytest.importorskip("opacus", reason="needs chestfed[privacy]")
    # The persons' file of the 2020 redistricting data: rho = 2.56 of zero-concentrated privacy, published as epsilon
    # 17.14 at delta 1e-10. A Gaussian mechanism has rho = 1 / (2 z^2).
    assert epsilon((2 * 2.56) ** -0.5, 1, 1e-10) == pytest.approx(17.14, rel=2e-3)


PRIVATE = ("federated.privacy.clip=1", "federated.privacy.noise_multiplier=2")


def test_missing_noise_is_refused() -> None:
    pytest.importorskip("opacus", reason="needs chestfed[privacy]")
    for algorithm in ("codasca", "scaffold", "coda", "local_scgdam", "centralized", "pdmm"):
        with assert_refused(ConfigError, "invalid value", key="methods"):
            make_pipeline(algorithm, f"methods=[{{algorithm: {algorithm}}}]", *PRIVATE)
    for setting in ("absent=drop", "aggregation=median"):
        with assert_refused(ConfigError, "invalid value", key="methods"):
            make_pipeline("fedavg", *PRIVATE, f"federated.{setting}")
    private = make_pipeline("fedavg", *PRIVATE)
    check_runs([private])
    assert private.model.norm == "group"
    with assert_refused(ConfigError, "invalid configuration", keys=["model.norm"]):
        check_runs([make_pipeline("fedavg", *PRIVATE, "model.norm=batch")])


def test_study_reports_the_budget_per_round(tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="needs chestfed[privacy]")

    def last(folder: str, noise: str) -> Trained:
        return train(make_pipeline("fedavg", *PRIVATE, f"federated.privacy.noise={noise}"), tmp_path / folder)

    first, again, secret = last("one", "seed"), last("again", "seed"), last("secret", "secret")
    spent = [entry["epsilon"] for entry in first.history]
    assert spent == [epsilon(2.0, number, 1e-5) for number in range(1, len(spent) + 1)]
    assert torch.equal(first.point.primal, again.point.primal)
    assert not torch.equal(first.point.primal, secret.point.primal)
