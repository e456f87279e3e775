"""Every module holds its checks, and every mutant of it fails at least one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.invariants.mutants import build_mutant
from tests.invariants.proofs import CHECKS, MUTANTS, fails

#: Rounds to the optimum take seconds. Every night: that each state is that of the numpy reference is looked at always,
#: and so are all checks of every mutant.
LONG = (
    "check_it_stalls_but_no_further_than_its_step",
    "check_the_identities_of_the_fixed_point",
    "check_the_optimum_is_reached_on_irregular_graphs",
    "check_the_optimum_is_reached_by_random_single_edges",
    "check_scaffold_reaches_the_optimum_at_every_window",
    "check_local_sgdam_reaches_the_optimum_with_a_window_of_one",
    "check_local_scgdam_reaches_the_optimum_with_a_window_of_one",
    "check_the_global_optimum_is_reached_at_every_window",
)


def list_checks() -> Iterator[object]:
    for name, checks in CHECKS.items():
        for number, check in enumerate(checks):
            yield pytest.param(name, number, marks=[pytest.mark.slow] if check.__name__ in LONG else [])


@pytest.mark.parametrize(("name", "number"), list_checks())
def test_a_module_holds_its_checks(name: str, number: int) -> None:
    CHECKS[name][number](importlib.import_module(f"chestfed.{name}"))


@pytest.mark.parametrize(("name", "mutant"), [(name, mutant) for name in MUTANTS for mutant in MUTANTS[name]])
def test_a_mutant_fails_at_least_one_check(name: str, mutant: str) -> None:
    module = build_mutant(f"chestfed.{name}", *MUTANTS[name][mutant])
    assert any(fails(check, module) for check in CHECKS[name]), f"no check noticed: {mutant}"


def test_modules_with_checks_have_mutants() -> None:
    """What has none is held by the contract alone, see tests/testing/test_algorithms.py."""
    assert set(CHECKS) == set(MUTANTS)
    assert all(importlib.util.find_spec(f"chestfed.{name}") for name in CHECKS)
