"""Training objectives: one file each, a loss and its declaration. `OBJECTIVES` finds them by name."""

from __future__ import annotations

from chestfed.core.plugins import Catalogue
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec

__all__ = ["OBJECTIVES", "Objective", "ObjectiveSpec"]

OBJECTIVES: Catalogue[ObjectiveSpec] = Catalogue(
    "objective",
    "chestfed.objectives",
    ObjectiveSpec,
    packages=(__package__,),
    example="Declare the objective in that file, and name the declaration (docs/own_method.md):\n"
    '    MINE = ObjectiveSpec(name="mine", text="my loss", kind="minimization", options=MyOptions, rule=MyLoss,\n'
    "                         build=lambda options, population: MyLoss())",
)
