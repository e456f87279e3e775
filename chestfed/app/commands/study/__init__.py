"""`chestfed study`."""
