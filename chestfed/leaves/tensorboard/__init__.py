"""Studies in TensorBoard: `chestfed study --record tensorboard` (extra `tensorboard`)."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(parts={"record": (f"{__name__}.recording",)})
