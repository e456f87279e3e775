"""The search for an algorithm's settings: the same number of trials for each, chosen on validation patients."""
