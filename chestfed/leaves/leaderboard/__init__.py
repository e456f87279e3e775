"""Named benchmarks that others can join: their test splits, files of submissions, and the page that ranks them."""

from chestfed.core.leaves import Leaf

LEAF = Leaf(
    commands={
        "submit": f"{__name__}.command:submit",
        "leaderboard": f"{__name__}.command:leaderboard",
    }
)
