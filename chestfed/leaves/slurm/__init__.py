"""Studies as jobs of a Slurm cluster."""

from chestfed.core.plugins.leaves import Leaf

LEAF = Leaf(parts={"executor": (f"{__name__}.executor",)})
