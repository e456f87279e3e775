"""CODASCA against its paper: invariants, and mutants that must break them."""

from __future__ import annotations

import pytest

from chestfed.learning.algorithms.coda_plus import CodaPlus
from tests.invariants import quadratic_saddle as saddle


@pytest.mark.slow
def test_coda_plus_stalls_with_long_windows() -> None:
    problems = saddle.heterogeneous(8)
    errors = {}
    for window, lr, rounds in ((1, 0.1, 400), (8, 0.05, 40), (32, 0.02, 25), (128, 0.005, 20)):
        server, _ = saddle.run(CodaPlus(window, lr, lr, output="last"), problems, rounds)
        errors[window] = saddle.distance(server, problems)
    assert errors[1] < 1e-9
    assert all(errors[window] > 0.05 for window in (8, 32, 128)), errors
