"""LocalSGDAM, LocalSCGDAM, and the compositional gradient of a network."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from chestfed.learning.algorithms.variables import byte_count
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule, build_model, network_options
from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.leaves.compositional.local_scgdam import LocalScgdam
from chestfed.leaves.compositional.local_sgdam import LocalSgdam
from chestfed.leaves.compositional.objective import COMPOSITIONAL_AUC, CompositionalAuc
from chestfed.leaves.compositional.oracle import NetworkComposition
from tests.invariants import quadratic_saddle as saddle
from tests.learning.engines.test_network_randomness import J, make_client
from tests.leaves.compositional import quadratic_composition as composition
from tests.leaves.compositional.compositional_checks import start


def test_identity_inside_is_local_sgdam() -> None:
    problems = composition.identity(4)
    whole = composition.run(LocalScgdam(5, 0.03, 0.02, 1.0, 0.3, 0.4), problems, 6, start=start())
    plain, _ = saddle.run(
        LocalSgdam(5, 0.03, 0.02, 0.3, 0.4), [problem.outer for problem in problems], 6, start=start()
    )
    for name in ("primal", "dual", "primal_momentum", "dual_momentum"):
        torch.testing.assert_close(getattr(whole, name), getattr(plain, name), rtol=0, atol=1e-14)


def test_local_sgdam_without_memory() -> None:
    """Rates of 1: the gradient at the last point is the next step, which is plain descent ascent."""
    problem = saddle.heterogeneous(1)
    server, _ = saddle.run(LocalSgdam(7, 0.03, 0.02, 1.0, 1.0), problem, 3, start=start())
    x, y = start().primal.numpy(), start().dual.numpy()
    for _ in range(21):
        grad_x, grad_y = problem[0].gradients(x, y)
        x, y = x - 0.03 * grad_x, y + 0.02 * grad_y
    np.testing.assert_allclose(server.primal.numpy(), x, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_error_grows_with_the_window() -> None:
    errors = []
    for window in (8, 32):
        problems = saddle.heterogeneous(8)
        server, _ = saddle.run(LocalSgdam(window, 0.01, 0.01, 0.5, 0.5), problems, 100)
        errors.append(saddle.distance(LocalSgdam(1, 1, 1).current(server), problems))
    assert 0.01 < errors[0] < errors[1]


@pytest.mark.slow
def test_error_grows_with_the_rate_of_h() -> None:
    """Each client takes its gradient at its own h, which differs from the mean by the rate times its difference."""
    problems, errors = composition.heterogeneous(4), []
    for rate in (0.4, 0.1, 0.025):
        algorithm = LocalScgdam(1, 0.01, 0.01, rate, 0.5, 0.5)
        state = composition.run(algorithm, problems, 1000)
        errors.append(composition.distance(algorithm.current(state), problems))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.01)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.01)


def test_messages_have_3d_or_2d_numbers() -> None:
    x, y = start().primal.numel(), start().dual.numel()
    compositional = LocalScgdam(2, 0.1, 0.1)
    message = compositional.message(compositional.start_stage(start()))
    update, _ = compositional.local_round(
        message, compositional.start_client(start()), composition.Oracle(composition.identity(1)[0])
    )
    assert byte_count(message) == byte_count(update) == 8 * (3 * x + 2 * y)
    plain = LocalSgdam(2, 0.1, 0.1)
    message = plain.message(plain.start_stage(start()))
    update, _ = plain.local_round(message, plain.start_client(start()), saddle.heterogeneous(1)[0].torch_gradients())
    assert byte_count(message) == byte_count(update) == 8 * 2 * (x + y)


def test_networks_are_twice_differentiable() -> None:
    """In-place activations and normalization layers included."""
    for norm in ("batch", "group"):
        network = FlatModule(build_model(network_options("small", norm=norm, blocks=[1, 1]), 2, seed=1))
        generator = torch.Generator().manual_seed(3)
        data = [
            (torch.randn(4, 3, 64, 64, generator=generator), torch.tensor([[0.0, 1], [1, 0], [1, 1], [0, 0]]))
            for _ in range(2)
        ]
        objective = CompositionalAuc(AucMargin(torch.tensor([0.3, 0.4])), 0.5)
        queue = iter(data)
        draw = partial(next, queue)
        oracle = NetworkComposition(network, objective, draw, draw, lambda a, b: None, autocast=False)
        x = torch.cat([network.parameters(), torch.zeros(4)])
        gradient = oracle.pull_back(oracle.outer(oracle.inner(x), torch.zeros(2))[0])
        assert torch.isfinite(gradient).all()
        assert gradient[: network.size].norm() > 0


@pytest.mark.parametrize("hvp", ["exact", "drop"])
def test_composition_resumes_exactly(hvp: Literal["exact", "drop"]) -> None:
    objective = CompositionalAuc(AucMargin(torch.full((J,), 0.5)), rho=0.1, hvp=hvp)

    def passes(client: NetworkClient, count: int) -> list[Tensor]:
        vectors = []
        x = torch.cat([client._network.parameters(), torch.zeros(objective.extra_size)])
        with client.training(client._network.buffers()):
            for _ in range(count):
                g = client.oracle.inner(x)
                q, _ = client.oracle.outer(g, torch.zeros(J))
                vectors += [g, q.clone()]
        return vectors

    whole = passes(make_client(objective=objective, oracle=COMPOSITIONAL_AUC.oracle), 3)
    resumed = make_client(objective=objective, oracle=COMPOSITIONAL_AUC.oracle)
    resumed.seek([2])
    assert all(torch.equal(a, b) for a, b in zip(passes(resumed, 2), whole[2:], strict=True))
