"""`chestfed federation`."""
