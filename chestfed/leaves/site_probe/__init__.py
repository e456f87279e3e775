"""A linear model that names the hospital of an image, and whether its score ranks the target's cases."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(commands={"site probe": f"{__name__}.command:site_probe"})
