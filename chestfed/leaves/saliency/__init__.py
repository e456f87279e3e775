"""Maps of what a network looks at in images that it misjudges, beside those of a network with random weights."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(commands={"saliency": f"{__name__}.command:saliency"})
