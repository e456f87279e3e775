"""Colours, dashes and markers of the figures, one per K.

Okabe and Ito's colours with at least 3:1 contrast to white, which the colour-blind tell apart; lines differ in dashes
and markers as well.
"""

from __future__ import annotations

from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^v"
#: Text of figures, and lines that are only there for orientation.
INK, FAINT = "#1a1a1a", "#8a8a8a"


def line_style(number: int, *, marked: bool = False) -> dict[str, Any]:
    """Keywords of matplotlib's `plot` for the `number`-th line (from 0); with a marker if `marked`."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)] if marked else None,
        "markersize": 4,
        "linewidth": 1.5,
    }
