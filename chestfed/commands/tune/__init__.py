"""`chestfed tune`."""
