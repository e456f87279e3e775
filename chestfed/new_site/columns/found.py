"""What has been found out about a table's columns, and how it is counted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from chestfed.new_site.lexicon import COLUMNS, plain

#: Share of the cells that must name a file, or be known words.
ENOUGH: Final = 0.9
#: A word of a cell is shown, or written down, if so many rows have it: it is then not the name of a person.
SHOWN_FROM: Final = 3
#: Numbers that name a file, or are in a header, by chance, as running numbers do.
SMALL_NUMBER: Final = r"\d{1,6}"
_SHOWN_ROWS: Final = 5


@dataclass
class Found:
    """Columns by what they are, the words in them, and the evidence for each.

    `missing` maps a word that counts as empty to the column it was needed for; `unsure` is what could not be decided,
    `stops` what must be before anything is written.
    """

    columns: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    words: dict[str, dict[str, str | float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unsure: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    def take(self, what: str, column: str, evidence: str) -> None:
        """Note a column and why it is that."""
        self.columns[what], self.evidence[what] = column, evidence


def called(what: str, names: Collection[str]) -> list[str]:
    """The columns that are called like an image, a patient, a view, ..."""
    return [name for name in names if plain(name) in COLUMNS[what]]


def count(number: int, total: int, noun: str = "cells") -> str:
    """`9,812 of 9,900 cells`."""
    return f"{number:,} of {total:,} {noun}"


def listed_rows(rows: Sequence[int] | pd.Index) -> str:
    """`row 7`, or the first of several."""
    shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
    more = len(rows) - _SHOWN_ROWS
    return f"row{'s' if len(rows) != 1 else ''} {shown}" + (f" and {more:,} more" if more > 0 else "")


def unknown_words(cells: pd.Series, words: Collection[str]) -> str:
    """Words of cells with their counts; of those that few rows have, which may be names, the rows."""
    counts = cells.value_counts()
    shown = [f"'{word}' ({counts[word]:,})" for word in words if counts[word] >= SHOWN_FROM]
    hidden = [word for word in words if counts[word] < SHOWN_FROM]
    if hidden:
        rows = listed_rows(cells.index[cells.isin(hidden)])
        shown.append(f"{len(hidden)} that fewer than {SHOWN_FROM} rows have ({rows}; remove totals)")
    return ", ".join(shown)
