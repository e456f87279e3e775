"""Every module holds its checks, and every mutant of it fails at least one."""

from __future__ import annotations

import importlib.util

import pytest

from tests.invariants.mutants import build_mutant
from tests.invariants.proofs import CHECKS, MUTANTS, fails


@pytest.mark.parametrize(("name", "number"), [(name, i) for name in CHECKS for i in range(len(CHECKS[name]))])
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
