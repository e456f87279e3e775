"""The in-process engine: weighting, accounting, buffers, and a client whose update is not finite."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from chestfed.algorithms.coda import Coda
from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.codasca_minimal import CodascaMinimal
from chestfed.algorithms.variables import Point
from chestfed.engines.in_process import Federation, InProcessEngine, StageEnd
from chestfed.errors import TrainingError
from tests.engines.quadratic_client import QuadraticClient
from tests.invariants import quadratic_saddle as saddle


def start(engine: InProcessEngine, problems: list[saddle.Saddle]) -> Federation:
    return engine.start_stage(saddle.origin(problems), torch.zeros(2, dtype=torch.float64))


def test_a_round_is_the_algorithms_round() -> None:
    problems = saddle.heterogeneous(3)
    weights = [0.2, 0.3, 0.5]
    method = Codasca(4, 0.03, 0.02, server_lr=1.1, prox=0.1)
    engine = InProcessEngine(method, [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)], weights)
    federation = start(engine, problems)
    for _ in range(3):
        federation, _ = engine.run_round(federation)
    expected, _ = saddle.run(method, problems, 3, weights=weights)
    assert torch.equal(federation.server.primal, expected.primal)
    assert torch.equal(federation.server.c_dual, expected.c_dual)


def test_bytes_are_those_of_the_messages_buffers_included() -> None:
    problems = saddle.heterogeneous(3, dimension=10, duals=2)
    clients = [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)]
    d, j, number = 10, 2, 8  # float64
    for method, per_message in (
        (Codasca(2, 0.01, 0.01), 2 * (d + j)),
        (CodascaMinimal(Codasca(2, 0.01, 0.01)), d + j),
        (CodaPlus(2, 0.01, 0.01), d + j),
    ):
        engine = InProcessEngine(method, clients, [1 / 3] * 3)
        federation, record = engine.run_round(start(engine, problems))
        assert record.bytes_up == record.bytes_down == 3 * number * (per_message + 2)
        assert (record.gradients, record.images) == (6, 6 * 7)
        end = engine.finish_stage(federation)
        assert end.bytes_up == (3 * number * (d + j) if isinstance(method, CodaPlus) else 0)
        assert end.bytes_down == 0


def test_coda_starts_a_stage_at_the_best_dual_variables_of_the_mean_loss() -> None:
    # One curvature along alpha at all clients, as one common p gives it.
    problems = [dataclasses.replace(problem, c=2 * np.eye(2)) for problem in saddle.heterogeneous(3)]
    weights = [0.2, 0.3, 0.5]
    engine = InProcessEngine(
        Coda(4, 0.02, 0.02), [QuadraticClient(f"c{i}", p) for i, p in enumerate(problems)], weights
    )
    federation, _ = engine.run_round(start(engine, problems))
    end = engine.finish_stage(federation)
    assert end.bytes_up == 3 * 8 * (4 + 2)
    assert (end.bytes_down, end.images) == (0, 0)
    begun = engine.restart(end.point, federation.buffers)
    primal = begun.point.primal.numpy()
    slopes = [p.gradients(primal, begun.point.dual.numpy())[1] for p in problems]
    np.testing.assert_allclose(np.average(slopes, axis=0, weights=weights), 0, atol=1e-13)
    plus = InProcessEngine(CodaPlus(4, 0.02, 0.02), engine.clients, weights)
    again = plus.finish_stage(plus.run_round(start(plus, problems))[0])
    assert torch.equal(begun.point.primal, again.point.primal)
    assert plus.restart(again.point, federation.buffers) == StageEnd(again.point, 0, 0, 0)
    number, d, j = 8, 4, 2
    assert begun.bytes_up == 3 * number * j
    assert begun.bytes_down == 3 * number * (d + j + 2)
    assert begun.images == 3 * 50


def test_buffers_loss_and_drift_are_means_over_clients() -> None:
    problems = saddle.heterogeneous(2)
    clients = [QuadraticClient("a", problems[0]), QuadraticClient("bbb", problems[1])]
    engine = InProcessEngine(CodaPlus(5, 0.02, 0.02), clients, [0.25, 0.75])
    federation, record = engine.run_round(start(engine, problems))
    assert federation.buffers.tolist() == [0.25 * 5 + 0.75 * 15] * 2
    assert record.loss == 0.25 * 1 + 0.75 * 3
    ends, slopes = [], []
    for problem in problems:
        v, alpha = np.zeros(4), np.zeros(2)
        slopes.append(np.zeros(4))
        for _ in range(5):
            grad_v, grad_alpha = problem.gradients(v, alpha)
            slopes[-1] += grad_v / 5
            v, alpha = v - 0.02 * grad_v, alpha + 0.02 * grad_alpha
        ends.append(v)
    for drift, vectors in ((record.drift, ends), (record.gradient_drift, slopes)):
        mean = (vectors[0] + vectors[1]) / 2
        assert drift == pytest.approx(np.mean([((vector - mean) ** 2).sum() for vector in vectors]), rel=1e-12)


def test_an_update_that_is_not_finite_names_the_client_and_changes_nothing() -> None:
    problems = saddle.heterogeneous(2)
    clients = [QuadraticClient("good", problems[0]), QuadraticClient("sick", problems[1], poison_at=7 * 6)]
    engine = InProcessEngine(Codasca(5, 0.02, 0.02), clients, [0.5, 0.5])
    federation, _ = engine.run_round(start(engine, problems))
    kept = federation.server.primal.clone()
    with pytest.raises(TrainingError, match=r"client 'sick': its update is not finite .* Lower federated\.local_lr"):
        engine.run_round(federation)
    assert torch.equal(federation.server.primal, kept)
    assert isinstance(engine.current(federation), Point)
