"""Every module holds its checks, and every mutant of it fails at least one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import chestfed
from tests.invariants.mutants import mutant_of
from tests.invariants.proofs import CHECKS, MUTANTS, fails


@pytest.mark.parametrize(("name", "number"), [(name, i) for name in CHECKS for i in range(len(CHECKS[name]))])
def test_a_module_holds_its_checks(name: str, number: int) -> None:
    CHECKS[name][number](importlib.import_module(f"chestfed.{name}"))


@pytest.mark.parametrize(("name", "mutant"), [(name, mutant) for name in MUTANTS for mutant in MUTANTS[name]])
def test_a_mutant_fails_at_least_one_check(name: str, mutant: str) -> None:
    module = mutant_of(f"chestfed.{name}", *MUTANTS[name][mutant])
    assert any(fails(check, module) for check in CHECKS[name]), f"no check noticed: {mutant}"


def test_every_algorithm_and_objective_has_checks_and_mutants() -> None:
    root = Path(chestfed.__file__).parent
    rules = {
        f"{folder}.{file.stem}" for folder in ("algorithms", "objectives") for file in (root / folder).glob("*.py")
    }
    rules -= {"algorithms.__init__", "objectives.__init__", "algorithms.variables", "objectives.compositional"}
    rules |= {"engines.compositional", "engines.in_process"}
    assert set(CHECKS) == set(MUTANTS) == rules
