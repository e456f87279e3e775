"""Rounds that go on without clients: whose answers are missing, and what the server keeps meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import TrainingError
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.minimization.scaffold import Scaffold
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.messages.requests import Request, Work
from chestfed.learning.engines.server import Absent, Federation, ServerEngine
from tests.cases import assert_refused
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient

K = 4
SHARES = [0.1, 0.2, 0.3, 0.4]


class FaultyFleet(LocalFleet):
    """Of some clients the work is done and its answer lost, which is what being late comes to."""

    late: Sequence[int] = ()

    def ask(self, requests: Mapping[int, Request], enough: int | None = None) -> dict[int, Any]:
        answers = super().ask(requests, enough)
        if enough is None or not isinstance(next(iter(requests.values())), Work):
            return answers
        there = {number: answer for number, answer in answers.items() if number not in self.late}
        return there if len(there) >= enough else answers  # one that waits for more gets them all


def build_engine(rule: Any, weights: Sequence[float], absent: Absent = "drop", **client: Any) -> ServerEngine:
    problems = saddle.heterogeneous(K, duals=0 if isinstance(rule, Scaffold) else 2)
    clients = [QuadraticClient(f"c{number}", problem, **client) for number, problem in enumerate(problems)]
    return ServerEngine(rule, FaultyFleet.of(clients, rule), weights, absent=absent)


def started(engine: ServerEngine) -> Federation:
    duals = 0 if isinstance(engine.algorithm, Scaffold) else 2
    return engine.start_stage(saddle.origin(saddle.heterogeneous(K, duals=duals)), torch.zeros(2, dtype=torch.float64))


def controls(engine: ServerEngine, state: Federation, name: str) -> np.ndarray:
    """The weighted mean of the clients' control variates, at the turns that the server has taken in."""
    hosts = engine.fleet.hosts  # type: ignore[attr-defined]
    variates = [getattr(host.snapshots[int(turn)].state, name) for host, turn in zip(hosts, state.turns, strict=True)]
    return np.average([variate.numpy() for variate in variates], axis=0, weights=engine.weights)


rules = st.sampled_from([Codasca(5, 0.03, 0.02, server_lr=1.1, prox=0.1), Scaffold(5, 0.03, 1.2)])
absences = st.lists(st.sets(st.integers(0, K - 1), max_size=K - 1).map(sorted), min_size=1, max_size=6)


@given(rules, absences, st.sampled_from([[1 / K] * K, SHARES]))
def test_control_variate_stays_the_mean(rule: Any, absences: list[list[int]], weights: list[float]) -> None:
    engine = build_engine(rule, weights)
    state = started(engine)
    names = {"c_primal": "c_primal", "c_dual": "c_dual"} if isinstance(rule, Codasca) else {"control": "control"}
    for late in absences:
        engine.fleet.late = late  # type: ignore[attr-defined]
        state, record = engine.run_round(state)
        assert record.absent == tuple(f"c{number}" for number in late)
        for ours, local_name in names.items():
            np.testing.assert_allclose(
                getattr(state.server, ours), controls(engine, state, local_name), rtol=0, atol=1e-11
            )


def test_absent_clients_leave_the_others() -> None:
    rule = Codasca(5, 0.03, 0.02)
    engine = build_engine(rule, SHARES)
    state, _ = engine.run_round(started(engine))
    engine.fleet.late = [1, 3]  # type: ignore[attr-defined]
    message, after = engine.algorithm.message(state.server), [0, 2]
    hosts = engine.fleet.hosts  # type: ignore[attr-defined]
    before = [host.snapshots[2].state for host in hosts]
    problems = saddle.heterogeneous(K)
    ends = [rule.local_round(message, before[k], problems[k].torch_gradients())[0].primal.numpy() for k in after]
    following, _ = engine.run_round(state)
    expected = np.average(ends, axis=0, weights=[SHARES[k] for k in after])
    np.testing.assert_allclose(following.server.primal.numpy(), expected, rtol=0, atol=1e-12)
    assert following.turns.tolist() == [3, 2, 3, 2]
    assert hosts[1].snapshots[2].state is before[1]  # what it computed meanwhile does not count


def test_codasca_is_exact_with_absences() -> None:
    engine = build_engine(Codasca(8, 0.05, 0.05), [1 / K] * K)
    state = started(engine)
    for number in range(150):
        engine.fleet.late = [number % K] if number % 3 == 0 else []  # type: ignore[attr-defined]
        state, _ = engine.run_round(state)
    assert saddle.distance(engine.current(state), saddle.heterogeneous(K)) < 1e-4


@pytest.mark.parametrize(("absent", "late", "missing"), [("wait", [1], 0), (3, [1], 1), (3, [1, 2], 0)])
def test_policy_sets_the_answers_needed(absent: Absent, late: list[int], missing: int) -> None:
    engine = build_engine(Codasca(2, 0.02, 0.02), SHARES, absent)
    engine.fleet.late = late  # type: ignore[attr-defined]
    _, record = engine.run_round(started(engine))
    assert len(record.absent) == missing


def test_client_with_nan_update_is_dropped() -> None:
    for absent, good in (("drop", True), (4, False)):
        engine = build_engine(Codasca(5, 0.02, 0.02), SHARES, absent)  # type: ignore[arg-type]
        engine.fleet.hosts[2].client._poison_at = 7 * 6  # type: ignore[attr-defined]
        state, _ = engine.run_round(started(engine))
        if good:
            assert engine.run_round(state)[1].absent == ("c2",)
        else:
            with assert_refused(TrainingError, "not finite", client="c2"):
                engine.run_round(state)
