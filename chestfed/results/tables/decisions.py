"""The table of decisions at a threshold: confusion matrix, its shares and the net benefit, for terminal and page."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.results.evaluation.decisions import REFERENCE, Decisions
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.tables.grid import Cell, Grid, Rows, make_grid, pair, signed

_SHARES: Final = ("sensitivity", "specificity", "ppv", "npv")
_HEADS: Final = ("disease", "threshold", "TP / FP / FN / TN", "sensitivity", "specificity", "PPV", "NPV")
#: Meaning of the net benefit.
MEANING: Final = (
    "Net benefit: true positives per image, less false positives weighed by the odds of the threshold; of calling "
    f"every image in the last column, of calling none 0 ({REFERENCE}). PPV, NPV and net benefit hold at the share of "
    "positives of these images, and for calibrated probabilities"
)


def make_decision_grid(decisions: Decisions, caption: str = "") -> Grid:
    """A line per disease, with intervals below the numbers."""
    rows: Rows = []
    for row in decisions.confusion.to_dict("records"):
        counts = "true_positives", "false_positives", "false_negatives", "true_negatives"
        cells = [Cell(f"{row['threshold']:g}"), Cell(" / ".join(str(row[name]) for name in counts))]
        cells += [_cell(row, name) for name in _SHARES]
        cells += [_cell(row, "net_benefit"), Cell(_benefit(row["net_benefit_all"]))]
        rows.append((format_title(str(row["disease"])), cells))
    return make_grid("decisions", caption, (*_HEADS, "net benefit", "call all"), rows)


def _cell(row: Any, name: str) -> Cell:
    if pd.isna(value := row[name]):
        return Cell("-")
    bounds, is_benefit = Interval(row[f"{name}_low"], row[f"{name}_high"]), name == "net_benefit"
    below = pair(bounds, 3, signed) if is_benefit else pair(bounds, 2)
    return Cell(signed(value) if is_benefit else f"{value:.3f}", () if pd.isna(bounds.low) else (below,))


def _benefit(value: float) -> str:
    return "-" if pd.isna(value) else signed(value)
