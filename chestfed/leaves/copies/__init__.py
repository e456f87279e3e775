"""A bundled pipeline as a file of the user's own, to be changed."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(
    groups={"new": "Copy a bundled pipeline, to change it."},
    commands={"new pipeline": f"{__name__}.command:new_pipeline"},
)
