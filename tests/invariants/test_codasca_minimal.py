"""CODASCA with half the communication takes the same steps."""

from __future__ import annotations

import pytest
import torch

from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.codasca_minimal import CodascaMinimal
from chestfed.algorithms.variables import byte_count
from tests.invariants import quadratic_saddle as saddle


@pytest.mark.parametrize("server_lr", [1.0, 1.3])
@pytest.mark.parametrize("dual_lr", [0.02, torch.tensor([0.02, 0.05], dtype=torch.float64)])
def test_the_iterates_are_those_of_the_published_messages(server_lr: float, dual_lr: float | torch.Tensor) -> None:
    problems, weights = saddle.heterogeneous(4), [0.1, 0.2, 0.3, 0.4]
    rule = Codasca(5, 0.03, dual_lr, server_lr=server_lr, prox=0.2)
    published, _ = saddle.run(rule, problems, 12, weights=weights)
    minimal, _ = saddle.run(CodascaMinimal(rule), problems, 12, weights=weights)
    torch.testing.assert_close(minimal.primal, published.primal, rtol=0, atol=1e-12)
    torch.testing.assert_close(minimal.dual, published.dual, rtol=0, atol=1e-12)


def test_half_the_bytes_are_sent_either_way() -> None:
    problems = saddle.heterogeneous(2)
    rule = Codasca(2, 0.03, 0.02)
    sizes = []
    for method in (rule, CodascaMinimal(rule)):
        server, client = method.start_stage(saddle.origin(problems)), method.start_client(saddle.origin(problems))
        message = method.message(server)
        update, _ = method.local_round(message, client, problems[0].torch_gradients())
        sizes.append((byte_count(message), byte_count(update)))
    assert sizes[0] == (2 * sizes[1][0], 2 * sizes[1][1])
