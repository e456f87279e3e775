"""Federated algorithms: one file each, a rule of pure steps on flat tensors and its declaration.

`variables.py` has the types, `declaration.py` what a declaration holds; every other file is one algorithm and reads
like its paper's pseudocode. `ALGORITHMS` finds them by name.

Here are the min-max ones and the reference; `minimization` and `personal` have others, and leaves the rest. What any
averaging algorithm can have besides are steps of its exchange (`chestfed.learning.exchange`).
"""

from __future__ import annotations

from chestfed.core.plugins import Catalogue
from chestfed.learning.algorithms.declaration import AlgorithmSpec

__all__ = ["ALGORITHMS", "AlgorithmSpec"]

_FOLDERS = ("", ".minimization", ".personal")

ALGORITHMS: Catalogue[AlgorithmSpec] = Catalogue(
    "algorithm",
    "chestfed.algorithms",
    AlgorithmSpec,
    packages=[f"chestfed.learning.algorithms{folder}" for folder in _FOLDERS],
    example="Declare the algorithm in that file, and name the declaration (docs/own_method.md):\n"
    '    MINE = AlgorithmSpec(name="mine", title="My rule", options=MyOptions, rule=MyRule,\n'
    "                         build=lambda options, setting: MyRule(setting.window, setting.local_lr))",
)
