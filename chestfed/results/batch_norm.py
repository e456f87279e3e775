"""The sentence of every caption about the batch-norm statistics that the numbers were computed with."""

from __future__ import annotations

from typing import Literal

#: own: re-estimated on training images of each hospital that is scored; averaged: the mean over the clients, as the
#: server has it; stored: as the model file has them.
Statistics = Literal["own", "averaged", "stored"]


def describe_statistics(statistics: Statistics | None, where: str = "each hospital") -> str:
    """One sentence; empty for a network without batch normalization (None)."""
    if statistics is None:
        return ""
    sources = {
        "own": f"batch-norm statistics of {where}'s own training images",
        "averaged": "the clients' averaged batch-norm statistics",
        "stored": "the batch-norm statistics stored in the model file",
    }
    return f"Scored with {sources[statistics]}."
