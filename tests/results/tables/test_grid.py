"""Tables as plain values and their forms."""

from __future__ import annotations

import io
import re

from rich.console import Console

from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.tables.grid import Cell, Grid, Line, markdown, rich_table
from chestfed.results.tables.views import drop_single_mean, make_auc_cell, make_difference_cell


def auc(value: float | None, interval: Interval | None = None, digits: int = 3) -> Cell:
    low, high = interval or (None, None)
    return make_auc_cell({"auc": value, "low": low, "high": high, "sd": None}, digits)


def difference(
    value: float | None, interval: Interval | None = None, p: float | None = None, p_holm: float | None = None
) -> Cell:
    low, high = interval or (None, None)
    return make_difference_cell({"difference": value, "low": low, "high": high, "p": p, "p_holm": p_holm}, digits=2)


GRID = Grid(
    "aucs",
    "AUC",
    (Cell("K"), Cell("added"), Cell("Edema", ("n+ 3", "n− 4"))),
    (
        Line("K=1", (Cell("a|b[red]"), auc(0.81234, Interval(0.7, 0.9), 2))),
        Line("paper, K=1", (Cell(""), Cell("0.8000")), "paper"),
    ),
)


def test_number_interval_below_clear_bold() -> None:
    assert auc(0.5, Interval(0.25, 0.75)) == Cell("0.500", ("[0.250, 0.750]",))
    assert auc(0.5) == Cell("0.500")
    assert auc(None) == Cell("-")
    assert make_auc_cell({"auc": 0.5, "sd": 0.02}) == Cell("0.500", ("±0.020",))
    cell = difference(-0.1, Interval(-0.2, 0.05), 0.01, 0.04)
    assert cell == Cell("−0.100", ("[−0.20, +0.05]", "p 0.010", "Holm 0.040"), strong=True)
    assert difference(0.1, None, 0.0001).below == ("p < 0.001",)
    assert not difference(0.1, None, 0.01, 0.05).strong
    assert difference(None) == Cell("-")


def test_interval_is_never_one_point() -> None:
    assert auc(1.0, Interval(0.9994, 1), 2).below == ("[0.999, 1.000]",)
    assert auc(0.9991, Interval(0.99961, 0.99999), 2).below == ("[0.9996, 1.0000]",)
    assert difference(0.0, Interval(0, 0)).below == ("[+0.00, +0.00]",)  # a model and itself


def test_terminal_shows_smaller_lines() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(rich_table(GRID, "AUCs", "of [two] images", dim=["paper"]))
    lines = console.export_text().splitlines()
    for words in ("AUCs", "n- 4", "[0.70, 0.90]", "paper, K=1", "of [two] images", "a|b[red]"):
        assert any(words in line for line in lines), words
    assert "−" not in "".join(lines)


def test_heading_is_whole_or_the_table_a_list() -> None:
    """A column of short numbers is not so narrow that its heading is a column of letters."""
    heads = [Cell(head) for head in ("method", "local_lr", "window", "steps per stage", "options", "gradients")]
    line = Line("fedavg", (Cell("0.5"), Cell("4"), Cell("8"), Cell("objective.positive_ratio common"), Cell("8")))
    for width in (30, 60, 80):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(rich_table(Grid("g", "", tuple(heads), (line,)), "settings"))
        assert {"window", "gradients", "stage"} <= {*re.findall(r"\w+", console.export_text())}, width


def test_markdown_has_a_line_per_row_escaped() -> None:
    assert markdown(GRID, ["added"], lambda text: text.replace("|", r"\|"), below=" {}") == [
        "| K | added | Edema n+ 3, n− 4 |",
        "| --- | --- | --: |",
        r"| K=1 | a\|b[red] | 0.812 [0.70, 0.90] |",
        "| paper, K=1 |  | 0.8000 |",
    ]


def test_narrow_terminal_breaks_no_number() -> None:
    cells = [auc(0.812, Interval(0.701, 0.9))] * 8
    grid = Grid("g", "", (Cell("K"), *[Cell("Consolidation")] * 8), (Line("K=1", tuple(cells)),))
    for width in (80, 160):
        out = io.StringIO()
        Console(file=out, width=width).print(rich_table(grid, "AUC"))
        assert [out.getvalue().count(part) for part in ("0.812", "[0.701,", "0.900]")] == [8, 8, 8]
        assert max(map(len, out.getvalue().splitlines())) <= width


def test_numbers_that_do_not_fit_are_listed() -> None:
    console = Console(width=20, record=True, file=io.StringIO(), markup=False)
    console.print(rich_table(GRID, "AUCs of [b]", "on 7 images"))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines[:3] == ["AUCs of [b]", "K=1", "  added: a|b[red]"]
    assert "0.812" in "".join(lines)
    assert lines[-1] == "on 7 images"


def test_mean_of_one_disease_is_dropped() -> None:
    assert drop_single_mean(("edema", "mean")) == ("edema",)
    assert drop_single_mean(("edema", "atelectasis", "mean")) == ("edema", "atelectasis", "mean")
