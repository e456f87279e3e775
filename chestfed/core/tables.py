"""The one table of the terminal: it never breaks or cuts a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.box import Box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

#: A word of at most so many letters is not broken in a narrow terminal.
_WHOLE_LETTERS: Final = 12


class WholeTable(Table):
    """A table that breaks words and headings in a narrow terminal, and is a list if its numbers cannot be whole.

    Columns aligned to the left have words, others numbers. `above` and `below` are as wide as the terminal: title and
    caption of a narrow table would be a column of words.
    """

    def __init__(self, above: str = "", below: str = "", box: Box | None = None) -> None:
        super().__init__()
        if box is not None:
            self.box = box
        self.above = Text(above, "table.title", end="\n" if above else "")
        self.below = Text(below, "table.caption", end="\n" if below else "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title, table or list, and caption."""
        number, room = len(self.columns), options.max_width
        if number and self.__rich_measure__(console, options).maximum > room:
            longest = [_longest(column) for column in self.columns]
            padding = 1 if sum(longest) + 3 * number < room else 0
            spare = room - sum(longest) - (2 * padding + 1) * number - 1
            right = padding if self.box is not None else 1  # without a frame a space parts the numbers
            if spare < 0:
                yield from (self.above, *self._list(), self.below)
                return
            self.padding, self.collapse_padding, self.pad_edge = (0, right, 0, padding), False, True
            for column, width in zip(self.columns, longest, strict=True):
                column.width, column.min_width = width + spare // number, None
        yield from (self.above, *super().__rich_console__(console, options), self.below)

    def _list(self) -> Iterator[Text]:
        """A paragraph per row, with a line per column."""
        heads = [str(column.header).replace("-\n", "").replace("\n", ", ") for column in self.columns]
        for first, *cells in zip(*(column.cells for column in self.columns), strict=True):
            lines = (
                f"  {head}: {str(cell).replace(chr(10), ' ')}" for head, cell in zip(heads[1:], cells, strict=True)
            )
            yield Text("\n".join([str(first), *lines]))


def _longest(column: Column) -> int:
    """The longest part of a column that is not to be broken: a number, or twelve letters of a word or heading."""

    def longest(cells: Iterable[object]) -> int:
        return max((len(part) for cell in cells for part in str(cell).split()), default=1)

    heading, cells = min(_WHOLE_LETTERS, longest([column.header])), longest(column.cells)
    return max(heading, min(_WHOLE_LETTERS, cells) if column.justify == "left" else cells)
