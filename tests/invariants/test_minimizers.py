"""SCAFFOLD, FedProx, FedAvg and LocalSGDM against their papers."""

from __future__ import annotations

import pytest
import torch

from chestfed.learning.algorithms.minimization.fedprox import FedProx
from chestfed.learning.algorithms.minimization.local_sgdm import LocalSgdm
from chestfed.learning.algorithms.minimization.scaffold import Client, Scaffold, State
from chestfed.learning.algorithms.variables import byte_count
from tests.invariants import quadratic_saddle as saddle
from tests.invariants.minimizers_checks import problems, start


def test_plain_variants_equal_fedavg() -> None:
    average, _ = saddle.run(FedProx(6, 0.03), problems(), 5, start=start())
    momentum, _ = saddle.run(LocalSgdm(6, 0.03, beta=0.0), problems(), 5, start=start())
    assert torch.equal(average.primal, momentum.primal)
    # SCAFFOLD whose control variates are held at zero.
    method, server = Scaffold(6, 0.03), Scaffold(6, 0.03).start_stage(start())
    zero = torch.zeros_like(server.control)
    for _ in range(5):
        updates = [method.local_round(server, Client(zero), problem.torch_gradients())[0] for problem in problems()]
        moved = method.server_round(server, updates, [0.25] * 4)
        server = State(moved.primal, zero, moved.dual)
    torch.testing.assert_close(server.primal, average.primal, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_fedavg_stalls_on_unequal_clients() -> None:
    for method in (FedProx(32, 0.02), FedProx(32, 0.02, mu=0.1), LocalSgdm(32, 0.002)):
        server, _ = saddle.run(method, problems(8), 40)
        assert saddle.distance(method.current(server), problems(8)) > 0.05


def test_client_order_changes_nothing() -> None:
    weights = [0.1, 0.2, 0.3, 0.4]
    for method in (Scaffold(5, 0.03), FedProx(5, 0.03, 0.2), LocalSgdm(5, 0.01)):
        forward, _ = saddle.run(method, problems(), 4, weights=weights)
        backward, _ = saddle.run(method, problems()[::-1], 4, weights=weights[::-1])
        torch.testing.assert_close(forward.primal, backward.primal, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("method", "numbers"), [(Scaffold(2, 0.1), 8), (LocalSgdm(2, 0.1), 8), (FedProx(2, 0.1), 4)])
def test_messages_have_2d_or_d_numbers(method: Scaffold | LocalSgdm | FedProx, numbers: int) -> None:
    message = method.message(method.start_stage(start()))
    update, _ = method.local_round(message, method.start_client(start()), problems()[0].torch_gradients())  # type: ignore[arg-type]
    assert byte_count(message) == byte_count(update) == 8 * numbers
