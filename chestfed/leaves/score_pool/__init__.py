"""Losses with numbers that the server sends: pairs with a pool of scores (FeDXL), and the Ratio Loss."""

from chestfed.plugins import Leaf

LEAF = Leaf(parts={"algorithm": (__name__,), "objective": (__name__,)})
