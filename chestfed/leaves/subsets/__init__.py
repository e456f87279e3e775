"""Every set of partners of one target, and what each partner contributes: its Shapley value."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(parts={"design": (__name__,)})
