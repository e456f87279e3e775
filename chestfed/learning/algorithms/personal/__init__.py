"""Algorithms with a point per client."""
