"""Algorithms without a server: PDMM-SGD, ADMM-SGD and gossip on a graph."""

from chestfed.plugins import Leaf

LEAF = Leaf(parts={"algorithm": (__name__,)})
