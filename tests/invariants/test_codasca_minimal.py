"""CODASCA with half the communication takes the same steps."""

from __future__ import annotations

from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.codasca_minimal import CodascaMinimal
from chestfed.learning.algorithms.variables import byte_count
from tests.invariants import quadratic_saddle as saddle


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
