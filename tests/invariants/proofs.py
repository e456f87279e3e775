"""Every module that holds a rule, with the checks that it must hold and the mutants that must fail one of them.

Those of a leaf stand in `tests/leaves/NAME/proofs.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tests import leaves
from tests.invariants import (
    averaging_checks,
    codasca_checks,
    dual_step_checks,
    engine_checks,
    method_checks,
    minimizers_checks,
    objective_checks,
    pairs_checks,
    participation_checks,
    partition_checks,
    seeing_checks,
)
from tests.invariants.mutants import CODASCA_MUTANTS

Check = Callable[[ModuleType], None]

_CHECKS: dict[str, list[Check]] = {
    "algorithms.codasca": codasca_checks.CHECKS,
    "algorithms.declaration": dual_step_checks.CHECKS,
    **{f"algorithms.{name}": checks for name, checks in averaging_checks.CHECKS.items()},
    **{f"algorithms.{name}": checks for name, checks in minimizers_checks.CHECKS.items()},
    **method_checks.CHECKS,
    "engines.client": seeing_checks.CHECKS,
    "engines.server": engine_checks.CHECKS,
    **{f"objectives.{name}": checks for name, checks in objective_checks.CHECKS.items()},
    "objectives.pairs": pairs_checks.CHECKS,
}

_MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    "algorithms.codasca": CODASCA_MUTANTS,
    "algorithms.declaration": dual_step_checks.MUTANTS,
    **{f"algorithms.{name}": mutants for name, mutants in averaging_checks.MUTANTS.items()},
    **{f"algorithms.{name}": mutants for name, mutants in minimizers_checks.MUTANTS.items()},
    **method_checks.MUTANTS,
    "engines.client": seeing_checks.MUTANTS,
    "engines.server": engine_checks.MUTANTS,
    **{f"objectives.{name}": mutants for name, mutants in objective_checks.MUTANTS.items()},
    "objectives.pairs": pairs_checks.MUTANTS,
}

_OF_LEAVES = {
    f"leaves.{file.parent.name}": importlib.import_module(f"tests.leaves.{file.parent.name}.proofs")
    for file in sorted(Path(leaves.__path__[0]).glob("*/proofs.py"))
}

#: module below `chestfed` -> its checks.
CHECKS: dict[str, list[Check]] = {
    **{f"learning.{name}": checks for name, checks in _CHECKS.items()},
    **{f"{leaf}.{name}": checks for leaf, proofs in _OF_LEAVES.items() for name, checks in proofs.CHECKS.items()},
    "data.sites.partition": partition_checks.CHECKS,
    "studies.experiment.rules": participation_checks.CHECKS,
}
#: module -> name of a mutant -> (text in the source, its replacement).
MUTANTS: dict[str, dict[str, tuple[str, str]]] = {
    **{f"learning.{name}": mutants for name, mutants in _MUTANTS.items()},
    **{f"{leaf}.{name}": mutants for leaf, proofs in _OF_LEAVES.items() for name, mutants in proofs.MUTANTS.items()},
    "data.sites.partition": partition_checks.MUTANTS,
    "studies.experiment.rules": participation_checks.MUTANTS,
}


def fails(check: Check, module: ModuleType) -> bool:
    """Whether a check notices; a mutant may also diverge, or not fit the shapes."""
    try:
        check(module)
    except Exception:
        return True
    return False
