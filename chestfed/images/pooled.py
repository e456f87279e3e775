"""The images of several clients as if they were one client's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chestfed.images.batches import Images


class PooledImages:
    """Rows of all parts, one part after the other."""

    def __init__(self, parts: Sequence[Images]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part.records) for part in parts)])
        # Only the sign is used: a row is read through its own part.
        self.records = np.concatenate([part.records for part in parts])
        self.digests = tuple(digest for part in parts for digest in part.digests)

    def read(self, row: int) -> np.ndarray:
        """Pixels of a row; raises what its part raises."""
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._parts[part].read(row - int(self._starts[part]))
