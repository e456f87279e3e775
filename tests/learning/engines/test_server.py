"""The engine with a server: weighting, accounting, buffers, and a client whose update is not finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.coda import Coda
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.engine import StageEnd
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.server import Federation, ServerEngine
from tests.cases import assert_refused
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient


def build_engine(method: Any, clients: list[QuadraticClient], weights: list[float]) -> ServerEngine:
    return ServerEngine(method, LocalFleet.of(clients, method), weights)


def start(engine: ServerEngine, problems: list[saddle.Saddle]) -> Federation:
    return engine.start_stage(saddle.origin(problems), torch.zeros(2, dtype=torch.float64))


def test_a_round_is_the_algorithms_round() -> None:
    problems = saddle.heterogeneous(3)
    weights = [0.2, 0.3, 0.5]
    method = Codasca(4, 0.03, 0.02, server_lr=1.1, prox=0.1)
    engine = build_engine(method, [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)], weights)
    federation = start(engine, problems)
    for _ in range(3):
        federation, _ = engine.run_round(federation)
    expected, _ = saddle.run(method, problems, 3, weights=weights)
    assert torch.equal(federation.server.primal, expected.primal)
    assert torch.equal(federation.server.c_dual, expected.c_dual)


def test_coda_restarts_at_the_best_duals() -> None:
    # One curvature along alpha at all clients, as one common p gives it.
    problems = [dataclasses.replace(problem, c=2 * np.eye(2)) for problem in saddle.heterogeneous(3)]
    weights = [0.2, 0.3, 0.5]
    clients = [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)]
    engine = build_engine(Coda(4, 0.02, 0.02), clients, weights)
    federation, _ = engine.run_round(start(engine, problems))
    end = engine.finish_stage(federation)
    assert end.bytes_up == 3 * 8 * (4 + 2) + 3 * 8 * 2
    begun = engine.restart(end)
    primal = begun.point.primal.numpy()
    slopes = [p.gradients(primal, begun.point.dual.numpy())[1] for p in problems]
    np.testing.assert_allclose(np.average(slopes, axis=0, weights=weights), 0, atol=1e-13)
    plus = build_engine(CodaPlus(4, 0.02, 0.02), clients, weights)
    again = plus.finish_stage(plus.run_round(start(plus, problems))[0])
    assert torch.equal(begun.point.primal, again.point.primal)
    assert plus.restart(again) == StageEnd(again.point, again.buffers, 0, 0, 0, again.turns, again.shared)


def test_nan_update_names_its_client() -> None:
    problems = saddle.heterogeneous(2)
    clients = [QuadraticClient("good", problems[0]), QuadraticClient("sick", problems[1], poison_at=7 * 6)]
    engine = build_engine(Codasca(5, 0.02, 0.02), clients, [0.5, 0.5])
    federation, _ = engine.run_round(start(engine, problems))
    primal = federation.server.primal.clone()
    with assert_refused(TrainingError, "not finite", client="sick"):
        engine.run_round(federation)
    assert torch.equal(federation.server.primal, primal)
    assert isinstance(engine.current(federation), Point)


@pytest.mark.parametrize("count", [2, 3])
def test_outsized_update_names_its_client(count: int) -> None:
    problems = saddle.heterogeneous(count)
    clients = [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)]
    engine = build_engine(CodaPlus(4, 0.02, 0.02), clients, [1 / count] * count)
    federation, _ = engine.run_round(start(engine, problems))
    before = federation.server.primal.clone()
    honest = engine.fleet.ask

    def scaled(requests: Any, enough: int | None = None) -> Any:
        answers = honest(requests, enough)
        update = dataclasses.replace(answers[1].update, primal=answers[1].update.primal * 1e6)
        return {**answers, 1: dataclasses.replace(answers[1], update=update)}

    engine.fleet.ask = scaled  # type: ignore[method-assign]
    with assert_refused(TrainingError, "update too long", client="c1"):
        engine.run_round(federation)
    assert torch.equal(federation.server.primal, before)
