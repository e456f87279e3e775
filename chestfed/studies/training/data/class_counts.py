"""Which client has images of which class, as text: a row of blocks per client, one block per class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
#: Classes with a block of their own; more are put together.
_COLUMNS: Final = 60


def draw_class_counts(counts: Mapping[str, Sequence[int]]) -> str:
    """The picture of the images per class of each client; empty if no client has classes.

    A block's height is the client's share of all images of the class; a blank has none.
    """
    table = np.array([row for row in counts.values() if row], np.float64)
    if len(table) < 2:
        return ""
    groups = np.array_split(np.arange(table.shape[1]), min(_COLUMNS, table.shape[1]))
    images = np.stack([table[:, group].sum(axis=1) for group in groups], axis=1)
    shares = images / np.maximum(1, images.sum(axis=0))
    heights = np.ceil(shares * (len(_BLOCKS) - 1)).astype(int)
    width = max(map(len, counts))
    lines = [
        f"{name:<{width}} |{''.join(_BLOCKS[height] for height in row)}| {row_counts.astype(bool).sum():,} of "
        f"{table.shape[1]:,} classes, {row_counts.max() / max(1.0, row_counts.sum()):.0%} of one"
        for name, row, row_counts in zip(counts, heights, table, strict=True)
    ]
    each = "one column per class" if len(groups) == table.shape[1] else f"{table.shape[1] / len(groups):.1f} per column"
    return "\n".join([f"Who has what: share of each class's images ({each}), from left to right", *lines])
