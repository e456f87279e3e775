"""Synthetic sample hospitals: chest phantoms in the layouts of the five real sets. No patient, no clinical meaning."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(commands={"samples": f"{__name__}.command:samples"}, parts={"provider": (f"{__name__}.provider",)})
