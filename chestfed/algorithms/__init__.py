"""Federated algorithms: one file each, a rule of pure steps on flat tensors and its declaration.

`variables.py` has the types, `declaration.py` what a declaration holds; every other file is one algorithm and reads
like its paper's pseudocode. `ALGORITHMS` finds them by name.
"""

from __future__ import annotations

from chestfed.algorithms.declaration import AlgorithmSpec
from chestfed.core.plugins import Catalogue

__all__ = ["ALGORITHMS", "AlgorithmSpec"]

ALGORITHMS: Catalogue[AlgorithmSpec] = Catalogue("algorithm", "chestfed.algorithms", AlgorithmSpec)
