"""CODASCA against its paper: invariants, and mutants that must break them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from chestfed.algorithms import codasca
from chestfed.algorithms.coda_plus import CodaPlus
from tests.invariants import quadratic_saddle as saddle
from tests.invariants.codasca_checks import CHECKS
from tests.invariants.mutants import CODASCA_MUTANTS, mutant_of


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_codasca(check: Callable[[ModuleType], None]) -> None:
    check(codasca)


@pytest.mark.parametrize("name", CODASCA_MUTANTS)
def test_a_mutant_of_codasca_fails_at_least_one_check(name: str) -> None:
    mutant = mutant_of("chestfed.algorithms.codasca", *CODASCA_MUTANTS[name])
    for check in CHECKS:
        try:
            check(mutant)
        except (AssertionError, ZeroDivisionError):
            return
    pytest.fail(f"no check noticed: {name}")


def test_coda_plus_stalls_on_heterogeneous_clients_when_the_window_grows() -> None:
    problems = saddle.heterogeneous(8)
    errors = {}
    for window, lr, rounds in ((1, 0.1, 600), (8, 0.05, 200), (32, 0.02, 160), (128, 0.005, 160)):
        server, _ = saddle.run(CodaPlus(window, lr, lr, output="last"), problems, rounds)
        errors[window] = saddle.distance(server, problems)
    assert errors[1] < 1e-9
    assert all(errors[window] > 0.05 for window in (8, 32, 128)), errors
