"""Federated algorithms: one file each, pure steps on flat tensors.

The paper's pseudocode is the table of contents: `variables.py` has the types, every other file one algorithm.
"""
