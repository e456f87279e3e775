"""The modules that hold a rule, with their checks and mutants; see `tests/invariants/proofs.py`."""

from tests.leaves.decentralized import edge_consensus_checks, gossip_checks

CHECKS = {"edge_consensus": edge_consensus_checks.CHECKS, "gossip": gossip_checks.CHECKS}
MUTANTS = {"edge_consensus": edge_consensus_checks.MUTANTS, "gossip": gossip_checks.MUTANTS}
