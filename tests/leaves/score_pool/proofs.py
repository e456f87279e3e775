"""The modules that hold a rule, with their checks and mutants; see `tests/invariants/proofs.py`."""

from tests.leaves.score_pool import fedxl_checks, ratio_loss_checks

CHECKS = {**fedxl_checks.CHECKS, **ratio_loss_checks.CHECKS}
MUTANTS = {**fedxl_checks.MUTANTS, **ratio_loss_checks.MUTANTS}
