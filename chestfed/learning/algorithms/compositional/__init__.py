"""Algorithms for compositional objectives, and their relatives."""
