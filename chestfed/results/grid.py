"""Tables as plain values, how their numbers are written, and their forms in a terminal and in Markdown.

Their form on a page is `report/parts.html`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from chestfed.core.diseases import TITLES
from chestfed.evaluation.comparison import Difference
from chestfed.evaluation.estimates import Estimate
from chestfed.evaluation.intervals.interval import Interval

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


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


def title_of(disease: str) -> str:
    """A disease as tables write it."""
    return TITLES.get(disease, disease)


def number(value: float | None) -> str:
    """Three decimals; a dash where there is no value."""
    return "-" if value is None else f"{value:.3f}"


def signed(value: float, digits: int = 3) -> str:
    """With its sign, and a minus as long as the plus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def p_value(p: float) -> str:
    """Three decimals, or that it is smaller, after the name of a p value: `p 0.012`, `p < 0.001`."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def pair(interval: Interval, digits: int = 3, form: Callable[[float, int], str] = "{:.{}f}".format) -> str:
    """The ends of an interval, with as many more decimals as it takes to tell them apart."""
    while True:
        low, high = (form(end, digits) for end in interval)
        if low != high or interval.low == interval.high or digits >= 9:
            return f"[{low}, {high}]"
        digits += 1


def auc_cell(one: Estimate, digits: int = 3) -> Cell:
    """An AUC, and its interval with `digits` decimals below it."""
    return Cell(number(one.value), () if one.interval is None else (pair(one.interval, digits),))


def difference_cell(one: Difference, digits: int = 3) -> Cell:
    """A difference of AUCs; below it its interval and the p value of the same test, then p after Holm's correction.

    Strong where the corrected p is below 0.05.
    """
    if one.difference is None:
        return Cell("-")
    below = [] if one.interval is None else [pair(one.interval, digits, signed)]
    below += [] if one.p is None else [f"p {p_value(one.p)}"]
    below += [] if one.p_holm is None else [f"Holm {p_value(one.p_holm)}"]
    return Cell(signed(one.difference), tuple(below), strong=one.p_holm is not None and one.p_holm < 0.05)


def disease_columns(every: Sequence[Estimate] | Sequence[Difference]) -> list[Cell]:
    """The headings of the diseases' columns, with their numbers of positive and negative images; not the mean's."""
    return [
        Cell(title_of(one.disease), (f"n+ {one.positives:,}", f"n− {one.negatives:,}"))
        for one in every
        if one.disease != "mean"
    ]


class _WholeNumbers(Table):
    """A table that breaks words and headings in a narrow terminal, and numbers only if they cannot all be whole."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        number, room = len(self.columns), options.max_width
        if self.__rich_measure__(console, options).maximum > room:
            parts = [[len(part) for cell in one.cells for part in str(cell).split()] for one in self.columns]
            longest = [
                max(found, default=1) if one.justify == "right" else min(12, max(found, default=1))
                for one, found in zip(self.columns, parts, strict=True)
            ]
            for padding in (1, 0):
                spare = room - sum(longest) - (2 * padding + 1) * number - 1
                if spare >= 0:
                    self.padding = (0, padding)
                    for one, width in zip(self.columns, longest, strict=True):
                        one.width = width + spare // number
                    break
        yield from super().__rich_console__(console, options)


def rich_table(grid: Grid, title: str, caption: str | None = None, *, dim: Sequence[str] = ()) -> Table:
    """The table for a terminal; rows of the kinds `dim` are dim and end a section."""
    from rich.markup import escape

    def shown(cell: Cell) -> str:
        return escape("\n".join((cell.text, *cell.below)).replace("−", "-"))  # not every terminal has that minus

    table = _WholeNumbers(title=escape(title), title_justify="left", caption_justify="left")
    table.caption = None if caption is None else escape(caption)
    for place, column in enumerate(grid.columns):
        strong = "bold" if place and column.text == "mean" else ""
        words = place == 0 or column.text == "added"
        table.add_column(shown(column), justify="left" if words else "right", style=strong, overflow="fold")
    for line in grid.lines:
        faint = line.kind in dim
        table.add_row(escape(line.head), *map(shown, line.cells), style="dim" if faint else "", end_section=faint)
    return table


def markdown(
    grid: Grid, words: Sequence[str] = (), escape: Callable[[str], str] = str, below: str = " ({})"
) -> list[str]:
    """The table's lines in Markdown: columns headed by one of `words` are text; `below` frames the smaller lines."""

    def shown(cell: Cell) -> str:
        return escape(cell.text) + (below.format(", ".join(map(escape, cell.below))) if cell.below else "")

    rows = [[escape(line.head), *map(shown, line.cells)] for line in grid.lines]
    rule = ["---", *("---" if head.text in words else "--:" for head in grid.columns[1:])]
    return [f"| {' | '.join(row)} |" for row in ([shown(head) for head in grid.columns], rule, *rows)]
