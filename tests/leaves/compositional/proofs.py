"""The modules that hold a rule, with their checks and mutants; see `tests/invariants/proofs.py`."""

from tests.leaves.compositional import compositional_checks, network_composition_checks

CHECKS = {**compositional_checks.CHECKS, "oracle": network_composition_checks.CHECKS}
MUTANTS = {**compositional_checks.MUTANTS, "oracle": network_composition_checks.MUTANTS}
