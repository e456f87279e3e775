"""Robust means of updates: against NumPy and SciPy, with hostile clients, and where they are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import trim_mean

from chestfed.core.errors import ConfigError, TrainingError
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.variables import Point, mean_of, named_tensors
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.server import ServerEngine
from chestfed.learning.exchange.aggregation import RobustMean, RobustRule, clip_changes, trimmed_mean
from chestfed.learning.exchange.exchange import Exchange
from chestfed.learning.exchange.step import Arrived, Package
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.experiment.rules import check_runs
from tests.cases import assert_refused
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient
from tests.studies.training.test_resume_algorithms import make_pipeline

MATRICES = st.integers(1, 7).flatmap(
    lambda rows: arrays(np.float64, (rows, 4), elements=st.floats(-1e6, 1e6, allow_subnormal=False))
)


@given(MATRICES, st.integers(0, 3), st.randoms())
def test_trimmed_mean_equals_scipy(values, trim, chance) -> None:  # type: ignore[no-untyped-def]
    count = len(values)
    tensors = [torch.from_numpy(row) for row in values]
    chance.shuffle(tensors)
    trim = min(trim, (count - 1) // 2)
    expected = trim_mean(values, (trim + 0.5) / count if trim else 0.0, axis=0)
    np.testing.assert_allclose(trimmed_mean(tensors, trim), expected, rtol=1e-9, atol=1e-6)
    median = trimmed_mean(tensors, (count - 1) // 2)
    np.testing.assert_allclose(median, np.median(values, axis=0), rtol=1e-9, atol=1e-6)


@given(MATRICES)
def test_changes_are_clipped_at_their_median(values: np.ndarray) -> None:
    tensors, start = [torch.from_numpy(row) for row in values], torch.full((4,), 0.5, dtype=torch.float64)
    before = [float((tensor - start).norm()) for tensor in tensors]
    for tensor, norm, cut in zip(tensors, before, clip_changes(tensors, start), strict=True):
        assert float((cut - start).norm()) <= np.median(before) * (1 + 1e-9) + 1e-9
        assert norm > np.median(before) or torch.equal(cut, tensor)


@pytest.mark.parametrize("rule", ["norm_clipping", "median", "trimmed_mean"])
def test_equal_updates_stay(rule: RobustRule) -> None:
    update, sent = Point(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5])), Point(torch.zeros(3), torch.zeros(1))
    parts, before = [Package(update, torch.ones(2))] * 5, Package(sent, torch.zeros(2))
    arrived = RobustMean(rule).at_server(Arrived(parts, [0.2] * 5, before))
    (output,) = arrived.parts
    torch.testing.assert_close(named_tensors(mean_of([output.update], arrived.weights)), named_tensors(update))
    torch.testing.assert_close(output.buffers, torch.ones(2))
    unequal = Arrived([*parts[:1], before], [0.3, 0.7], before)
    plain = Exchange().at_server(unequal)
    assert (plain.parts, plain.weights) == (unequal.parts, unequal.weights)
    with assert_refused(TrainingError, "too few updates", needed=5, received=4):
        RobustMean("trimmed_mean", 2).at_server(Arrived(parts[:4], [0.25] * 4, before))


class _Flipped(CodaPlus):
    """A client that sends its change backwards and many times as long."""

    def local_round(self, message, client, gradients):  # type: ignore[no-untyped-def, override]
        update, client = super().local_round(message, client, gradients)
        primal = message.primal - 20 * (update.primal - message.primal)
        return Point(primal, message.dual - 20 * (update.dual - message.dual)), client


def _distance(hostile: int, *steps: RobustMean) -> float:
    """From the optimum of the five clients, which have one and the same problem, after 60 rounds."""
    problems = saddle.heterogeneous(5)[:1] * 5
    rules = [(_Flipped if number < hostile else CodaPlus)(4, 0.05, 0.05, output="average") for number in range(5)]
    hosts = [
        Host(QuadraticClient(f"c{number}", problem), lambda stage, rule=rule: rule)  # type: ignore[misc]
        for number, (problem, rule) in enumerate(zip(problems, rules, strict=True))
    ]
    rule, exchange = CodaPlus(4, 0.05, 0.05, output="last"), Exchange(steps)
    engine = ServerEngine(rule, LocalFleet(hosts), [0.2] * 5, exchange=exchange)
    state = engine.start_stage(saddle.origin(problems), torch.zeros(2, dtype=torch.float64))
    for _ in range(60):
        state, _ = engine.run_round(state)
        assert torch.isfinite(state.buffers).all()
    return saddle.distance(engine.current(state), problems)


def test_hostile_clients_keep_the_optimum() -> None:
    honest = _distance(0)
    for rule, trim in (("median", 1), ("trimmed_mean", 2)):
        assert _distance(2, RobustMean(rule, trim)) == pytest.approx(honest, abs=1e-9)  # type: ignore[arg-type]
    assert _distance(1, RobustMean("trimmed_mean", 1)) == pytest.approx(honest, abs=1e-9)
    start = saddle.distance(saddle.origin(saddle.heterogeneous(5)[:1]), saddle.heterogeneous(5)[:1])
    assert honest < 0.2 * start
    assert _distance(1, RobustMean("norm_clipping")) < 0.5 * start
    assert _distance(1) > 10 * start


def _pipeline(algorithm: str, *more: str) -> Pipeline:
    return make_pipeline(
        algorithm, f"methods=[{{algorithm: {algorithm}}}]", *(f"federated.{setting}" for setting in more)
    )


def test_robust_mean_names_the_run() -> None:
    assert identity(_pipeline("fedavg", "aggregation=median"))["federated"]["aggregation"] == "median"
    for algorithm in ("codasca", "codasca_minimal", "scaffold", "coda", "local_scgdam", "centralized"):
        with assert_refused(ConfigError, "invalid value", key="methods"):
            _pipeline(algorithm, "aggregation=norm_clipping")
    with assert_refused(ConfigError, "invalid value", key="methods"):
        _pipeline("fedavg", "aggregation=median", "weights=images")
    with assert_refused(ConfigError, "invalid value", key="methods"):
        _pipeline("fedavg", "trim=1")
    with assert_refused(ConfigError, "invalid configuration", keys=["federated.trim"]):
        check_runs([_pipeline("fedavg", "aggregation=trimmed_mean", "trim=2")])
