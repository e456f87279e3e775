"""Long tests against faults, attacks and simulated truth: `pytest -m campaign`."""
