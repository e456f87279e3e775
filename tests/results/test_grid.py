"""Tables as plain values and their forms."""

from __future__ import annotations

import io

from rich.console import Console

from chestfed.evaluation.intervals.interval import Interval
from chestfed.results.grid import Cell, Grid, Line, auc_cell, difference_cell, markdown, rich_table

GRID = Grid(
    "aucs",
    "AUC",
    (Cell("K"), Cell("added"), Cell("Edema", ("n+ 3", "n− 4"))),
    (
        Line("K=1", (Cell("a|b[red]"), auc_cell(0.81234, Interval(0.7, 0.9), 2))),
        Line("paper, K=1", (Cell(""), Cell("0.8000")), "paper"),
    ),
)


def test_a_number_has_its_interval_below_and_a_clear_difference_is_strong() -> None:
    assert auc_cell(0.5, Interval(0.25, 0.75)) == Cell("0.500", ("[0.250, 0.750]",))
    assert auc_cell(0.5, None) == Cell("0.500")
    assert auc_cell(None, None) == Cell("-")
    found = difference_cell(-0.1, Interval(-0.2, 0.05), 0.04, digits=2)
    assert found == Cell("−0.100", ("[−0.20, +0.05]", "p 0.040"), strong=True)
    assert difference_cell(0.1, None, 0.0001).below == ("p < 0.001",)
    assert not difference_cell(0.1, None, 0.05).strong
    assert difference_cell(None, None, None) == Cell("-")


def test_a_terminal_shows_the_smaller_lines_below_and_no_sign_that_it_may_lack() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(GRID, "AUCs", "of [two] images", dim=["paper"]))
    lines = console.export_text().splitlines()
    for words in ("AUCs", "n- 4", "[0.70, 0.90]", "paper, K=1", "of [two] images", "a|b[red]"):
        assert any(words in line for line in lines), words
    assert "−" not in "".join(lines)


def test_markdown_has_a_line_per_row_and_escapes_what_it_is_told_to() -> None:
    assert markdown(GRID, ["added"], lambda text: text.replace("|", r"\|"), below=" {}") == [
        "| K | added | Edema n+ 3, n− 4 |",
        "| --- | --- | --: |",
        r"| K=1 | a\|b[red] | 0.812 [0.70, 0.90] |",
        "| paper, K=1 |  | 0.8000 |",
    ]
