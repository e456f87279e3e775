"""What everything else stands on: configuration, errors, randomness, checkpoints; imports nothing above."""
