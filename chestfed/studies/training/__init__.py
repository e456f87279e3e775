"""The two training stages, the K loop and its state on disk."""
