"""Training objectives: one file each, a loss and its declaration. `OBJECTIVES` finds them by name."""

from __future__ import annotations

from chestfed.core.plugins import Catalogue
from chestfed.learning.objectives.declaration import Objective, ObjectiveSpec

__all__ = ["OBJECTIVES", "Objective", "ObjectiveSpec"]

OBJECTIVES: Catalogue[ObjectiveSpec] = Catalogue(
    "objective", "chestfed.objectives", ObjectiveSpec, packages=(__package__,)
)
