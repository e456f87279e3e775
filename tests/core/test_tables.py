"""The one table of the terminal keeps every number whole."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from chestfed.core.console import open_console, text_table
from chestfed.results.tables.grid import Cell, make_grid, rich_table

NUMBERS = ["1,234,567", "0.123", "−0.057", "[−0.123, +0.456]", "12 / 3,456"]


def render(table: object, width: int) -> str:
    console = Console(file=io.StringIO(), record=True, width=width)
    console.print(table)
    return console.export_text()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("columns", [1, 4, 12])
def test_no_number_is_lost(width: int, columns: int) -> None:
    """Each part of a cell stands somewhere in one piece, in the columns of a table or in a list."""
    heads = [f"pleural effusion {number}" for number in range(columns)]
    rows = [[f"hospital of a long name {row}", "train", *(NUMBERS * 3)[row : row + columns]] for row in range(3)]
    plain = text_table("title", ("site", "part"), heads, rows, "caption")
    cells = ((row[0], [Cell(text, ("±0.012",)) for text in row[2:]]) for row in rows)
    for table in (plain, rich_table(make_grid("x", "", ("site", *heads), cells), "title")):
        text = render(table, width)
        assert max(map(len, text.splitlines())) <= width
        for row in rows:
            for part in " ".join(row[2:]).replace("−", "-").split():
                assert re.search(rf"(?<![\w.,]){re.escape(part)}(?![\w.,])", text.replace("−", "-")), (part, text)


def test_a_file_gets_no_frames(capsys: pytest.CaptureFixture[str]) -> None:
    open_console().print(text_table("", ("site",), ("images",), [["a", "1,234"]]))
    out = capsys.readouterr().out
    assert "1,234" in out
    assert not set("│┃─━") & set(out)
