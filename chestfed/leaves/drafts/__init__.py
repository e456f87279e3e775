"""The first YAML of a new hospital: columns by their headers, confirmed by content, and a code book for a person."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(commands={"site new": f"{__name__}.command:site_new"})
