"""Studies as jobs of a Slurm cluster."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(parts={"executor": (f"{__name__}.executor",)})
