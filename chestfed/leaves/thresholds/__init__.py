"""A threshold and probabilities at a hospital that a model has not seen: as they come, and recalibrated there."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(parts={"table": (__name__,)})
