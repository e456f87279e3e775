"""Tables as plain values, how their numbers are written, and their forms in a terminal and in Markdown.

Their form on a page is `reports/pages/parts.html`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.table import Table
from rich.text import Text

from chestfed.core.console import hyphenate, plural
from chestfed.core.tables import WholeTable
from chestfed.results.evaluation.intervals.interval import Interval


@dataclass(frozen=True)
class Cell:
    """A number as it is shown, with smaller lines below it."""

    text: str
    below: tuple[str, ...] = ()
    strong: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a table: its heading and the other cells. `kind` is a class of the page's style."""

    head: str
    cells: tuple[Cell, ...]
    kind: str = ""


@dataclass(frozen=True)
class Grid:
    """A table: caption, headings of the columns (with smaller lines below), and rows."""

    name: str
    caption: str
    columns: tuple[Cell, ...]
    lines: tuple[Line, ...]


#: Headings of columns of words.
_OF_WORDS: Final = ("added", "algorithm, objective", "options", "chosen")

#: Texts and cells of a row.
Cells = Iterable[str | Cell]
#: Rows while they are collected: heading, other cells, and the kind where it is not that of all.
Rows = list[tuple[str, Cells] | tuple[str, Cells, str]]


def make_grid(
    name: str, caption: str, heads: Cells, rows: Iterable[tuple[str, Cells] | tuple[str, Cells, str]], kind: str = ""
) -> Grid:
    """A table of texts and cells; each row has its heading and its other cells, and all are of one `kind`."""

    def cells(given: Cells) -> tuple[Cell, ...]:
        return tuple(Cell(value) if isinstance(value, str) else value for value in given)

    lines = (Line(head, cells(values), *(more or [kind])) for head, values, *more in rows)
    return Grid(name, caption, cells(heads), tuple(lines))


def number(value: float | None) -> str:
    """Three decimals; a dash where there is no value."""
    return "-" if value is None else f"{value:.3f}"


def count_images(images: int, patients: int, *, patients_known: bool = True) -> str:
    """Numbers of images and patients; of images alone where nobody knows whose they are."""
    return plural(images, "image") + (f" of {plural(patients, 'patient')}" if patients_known else "")


def signed(value: float, digits: int = 3) -> str:
    """With its sign, and a minus as long as the plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def p_value(p: float) -> str:
    """Three decimals, or that it is smaller, after the name of a p value: `p 0.012`, `p < 0.001`."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def pair(interval: Interval | None, digits: int = 3, form: Callable[[float, int], str] = "{:.{}f}".format) -> str:
    """The ends of an interval, with as many more decimals as it takes to tell them apart; empty without one."""
    while interval is not None:
        low, high = (form(end, digits) for end in interval)
        if low != high or interval.low == interval.high or digits >= 9:
            return f"[{low}, {high}]"
        digits += 1
    return ""


def rich_table(grid: Grid, title: str, caption: str = "", *, dim: Sequence[str] = ()) -> Table:
    """The table for a terminal; rows of the kinds `dim` are dim and end a section."""

    def text(cell: Cell) -> Text:
        return Text("\n".join((cell.text, *cell.below)).replace("−", "-"))  # not every terminal has that minus

    table = WholeTable(title, caption)
    for place, column in enumerate(grid.columns):
        strong = "bold" if place and column.text == "mean" else ""
        words = place == 0 or column.text in _OF_WORDS
        heading = text(column if words else replace(column, text=hyphenate(column.text)))
        table.add_column(heading, justify="left" if words else "right", style=strong, overflow="fold")
    for line in grid.lines:
        faint = line.kind in dim
        table.add_row(Text(line.head), *map(text, line.cells), style="dim" if faint else "", end_section=faint)
    return table


def markdown(
    grid: Grid, words: Sequence[str] = (), escape: Callable[[str], str] = str, below: str = " ({})"
) -> list[str]:
    """The table's lines in Markdown: columns headed by one of `words` are text; `below` frames the smaller lines."""

    def text(cell: Cell) -> str:
        return escape(cell.text) + (below.format(", ".join(map(escape, cell.below))) if cell.below else "")

    rows = [[escape(line.head), *map(text, line.cells)] for line in grid.lines]
    rule = ["---", *("---" if head.text in words else "--:" for head in grid.columns[1:])]
    return [f"| {' | '.join(row)} |" for row in ([text(head) for head in grid.columns], rule, *rows)]
