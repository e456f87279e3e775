"""Base of everything else: configuration, errors, randomness, checkpoints; imports nothing above."""
