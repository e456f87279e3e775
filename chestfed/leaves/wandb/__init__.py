"""Studies in Weights & Biases: `chestfed study --record wandb` (extra `wandb`)."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(parts={"record": (f"{__name__}.recording",)})
