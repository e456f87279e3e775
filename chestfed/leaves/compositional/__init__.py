"""A loss at a point that the network reaches by a step of its own, LocalSCGDAM for it, and its relative LocalSGDAM."""

from chestfed.plugins import Leaf

LEAF = Leaf(parts={"algorithm": (__name__,), "objective": (__name__,)})
