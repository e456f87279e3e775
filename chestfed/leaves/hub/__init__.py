"""A model in the layout of the Hugging Face Hub: weights, config and model card in a folder, which chestfed opens."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(commands={"export": f"{__name__}.command:export"})
