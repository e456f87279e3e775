"""What a section of the card is, and how its numbers are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chestfed.report.figures import Picture
from chestfed.results.grid import Grid, grid_of

_VALUES: Final = 8  # values of a kind that are listed


@dataclass(frozen=True)
class Section:
    """A part of the card: sentences, tables, figures, and remarks to read them by."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    tables: tuple[Grid, ...] = ()
    figures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


def counted(name: str, caption: str, head: str, values: Mapping[str, int], total: int) -> Grid:
    """A table of values with their numbers and shares, the most frequent first; the rare ones in one line."""

    def row(value: str, number: int) -> tuple[str, tuple[str, str]]:
        return value, (f"{number:,}", f"{number / total:.1%}" if total else "-")

    listed = list(values.items())
    rows = [row(value, number) for value, number in listed[:_VALUES]]
    if rest := listed[_VALUES:]:
        rows.append(row(f"{len(rest):,} others", sum(number for _, number in rest)))
    return grid_of(name, caption, (head, "images", "share"), rows)
