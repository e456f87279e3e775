"""Cyclic participation: groups of clients take part in a fixed, repeating schedule."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms.coda_plus import CodaPlus
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.server import ServerEngine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.experiment.rules import check_runs, make_participant_sampler
from chestfed.studies.experiment.stage_2 import Federated
from tests.cases import assert_refused
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.quadratic_client import QuadraticClient

DIGITS = bundled("pipelines") / "digits_ih.yaml"


def make_settings(clients: int) -> Federated:
    """Two stages of three rounds, groups of two clients."""
    more = {"clients_per_round": 2, "participation": "cyclic", "window": 5, "stages": 2, "stage_steps": 15}
    return Federated.model_validate({"algorithm": {"name": "coda_plus", "prox": 0.1}, **more})


def test_all_clients_together_need_no_sampler() -> None:
    assert make_participant_sampler(make_settings(2), 1, 0, 2) is None


def test_cyclic_rounds_equal_numpy() -> None:
    """CODA+ with one group of two a round, two stages, weights of its own, to 1e-12 in float64."""
    problems, lr, dual_lr, prox = saddle.heterogeneous(4), 0.03, 0.02, 0.1
    settings, weights = make_settings(4), [0.1, 0.2, 0.3, 0.4]
    point = saddle.origin(problems)
    v, alpha = np.zeros(4), np.zeros(2)
    turn = 0
    for stage in (0, 1):
        method = CodaPlus(5, lr / 3**stage, dual_lr / 3**stage, prox=prox, output="last")
        clients = [QuadraticClient(f"c{i}", problem) for i, problem in enumerate(problems)]
        sampler = make_participant_sampler(settings, 1, stage, 4)
        engine = ServerEngine(method, LocalFleet.of(clients, method), weights, stage=stage, participants=sampler)
        state, reference = engine.start_stage(point, torch.zeros(2, dtype=torch.float64)), v.copy()
        for _ in range(3):
            state, _ = engine.run_round(state)
            group = [[0, 1], [2, 3]][turn % 2]
            turn += 1
            ends = []
            for k in group:
                w, a = v.copy(), alpha.copy()
                for _ in range(5):
                    slope, dual_slope = problems[k].gradients(w, a)
                    w = w - lr / 3**stage * (slope + prox * (w - reference))
                    a = a + dual_lr / 3**stage * dual_slope
                ends.append((w, a))
            share = np.array([weights[k] for k in group]) / sum(weights[k] for k in group)
            v = share[0] * ends[0][0] + share[1] * ends[1][0]
            alpha = share[0] * ends[0][1] + share[1] * ends[1][1]
        point = engine.current(state)
    np.testing.assert_allclose(point.primal.numpy(), v, rtol=0, atol=1e-12)
    np.testing.assert_allclose(point.dual.numpy(), alpha, rtol=0, atol=1e-12)


def test_incomplete_groups_are_refused() -> None:
    words = ["federated.participation=cyclic", "federated.clients_per_round=2"]
    pipeline = load_pipeline(DIGITS, words, methods=["fedavg"])
    with assert_refused(ConfigError, "invalid configuration", keys=["federated.participation"]):
        check_runs([pipeline.resolve()])  # five clients
    with assert_refused(ConfigError, "invalid value"):
        load_pipeline(DIGITS, words[:1], methods=["fedavg"])
    with assert_refused(ConfigError, "invalid value"):
        load_pipeline(DIGITS, words, methods=["codasca_minimal"])
    plain = load_pipeline(DIGITS, words[1:], methods=["fedavg"]).resolve()
    assert "participation" not in identity(plain)["federated"]
    assert identity(pipeline.resolve())["federated"]["participation"] == "cyclic"


@pytest.mark.parametrize("algorithm", ["coda_plus", "codasca", "fedxl1", "fedavg"])
def test_methods_with_turns_take_a_cycle(algorithm: str) -> None:
    words = ["federated.participation=cyclic", "federated.clients_per_round=1"]
    check_runs([load_pipeline(DIGITS, words, methods=[algorithm]).resolve()])
