"""What a section of the card is, and how its numbers are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chestfed.report.figures import Picture
from chestfed.report.html import Cell, Line, Table

_VALUES: Final = 8  # values of a kind that are listed


@dataclass(frozen=True)
class Section:
    """A part of the card: sentences, tables, figures, and remarks to read them by."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()


def counted(name: str, caption: str, head: str, values: Mapping[str, int], total: int) -> Table:
    """A table of values with their numbers and shares, the most frequent first; the rare ones in one line."""

    def of_total(number: int) -> Cell:
        return Cell(f"{number / total:.1%}" if total else "-")

    listed = list(values.items())
    lines = [Line(value, (Cell(f"{number:,}"), of_total(number))) for value, number in listed[:_VALUES]]
    if rest := listed[_VALUES:]:
        number = sum(number for _, number in rest)
        lines.append(Line(f"{len(rest):,} others", (Cell(f"{number:,}"), of_total(number))))
    return Table(name, caption, (Cell(head), Cell("images"), Cell("share")), tuple(lines))


def plural(number: int, word: str) -> str:
    """`1 image`, `2 images`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def share(value: float | None) -> str:
    """Three decimals; a dash for what is not known."""
    return "-" if value is None else f"{value:.3f}"
