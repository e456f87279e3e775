"""Algorithms that minimize a loss of the weights, such as cross-entropy."""
