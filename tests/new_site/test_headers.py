"""Spreadsheets with titles above the header, Excel's first line, its Unicode text and merged cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError, SiteError
from chestfed.new_site.spreadsheet import find_header
from tests.new_site.hospitals import bring, draft, everything_said, keys, opened, rows
from tests.sites.own_tables import Row

#: Rows that people write above the header.
ABOVE = {
    "title": [["Chest films 2019, QUIXOTE hospital"]],
    "title and empty rows": [["Chest films, 2019"], [], []],
    "empty row": [[]],
    "padded title": [["Chest films", None, None, None, None, None, None]],
    "names and dates": [["Clinic", "QUIXOTE"], ["Printed on", "1.2.2019"], []],
}


def save_below(path: Path, above: Sequence[Sequence[object]], table: Sequence[Row]) -> None:
    """Save the table below some rows, as csv or xlsx."""
    lines = [*map(list, above), list(table[0]), *(list(row.values()) for row in table)]
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for number, cells in enumerate(lines, start=1):
            for place, cell in enumerate(cells, start=1):
                book.worksheets[0].cell(number, place, cell)
        book.save(path)
    else:
        text = "\n".join(";".join("" if cell is None else str(cell) for cell in line) for line in lines)
        path.write_text(text + "\n")


@pytest.mark.parametrize("file", ["labels.csv", "labels.xlsx"])
@pytest.mark.parametrize("above", ABOVE.values(), ids=ABOVE)
def test_rows_above_the_header_are_left_out_and_said(tmp_path: Path, file: str, above: list[list[object]]) -> None:
    bring(tmp_path, rows(), file=file)
    plain = opened(tmp_path, draft(tmp_path, file))
    save_below(tmp_path / file, above, rows())
    made = draft(tmp_path, file)
    assert keys(made)["table"]["header_row"] == len(above) + 1
    said = f"row {len(above) + 1} is taken as the header; {len(above)} rows above it"
    assert any(said in note for note in made.notes)
    assert "QUIXOTE" not in everything_said(made)
    table = opened(tmp_path, made)
    np.testing.assert_array_equal(table.labels(), plain.labels())
    assert table.frame["row"].tolist() == [row + len(above) for row in plain.frame["row"].tolist()]


@pytest.mark.parametrize("file", ["labels.csv", "labels.xlsx"])
def test_problems_below_a_title_have_the_rows_of_the_file(tmp_path: Path, file: str) -> None:
    table = rows()
    bring(tmp_path, table, file=file)
    save_below(tmp_path / file, [["Title"], []], table)
    made = draft(tmp_path, file)
    table[4]["Oedema"] = "perhaps"
    table[7]["Patient"] = ""
    save_below(tmp_path / file, [["Title"], []], table)
    with pytest.raises(SiteError) as caught:
        opened(tmp_path, made)
    assert {(problem.kind, problem.row) for problem in caught.value.problems} == {
        ("bad label value", 8),
        ("blank name", 11),
    }


def test_the_header_row_can_be_said(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    save_below(tmp_path / "labels.csv", [["File", "Patient", "Oedema", "x", "y", "z", "7"]], rows())
    made = draft(tmp_path, header_row=2)
    assert keys(made)["table"]["header_row"] == 2
    assert len(opened(tmp_path, made).frame) == 12


@pytest.mark.parametrize("file", ["labels.csv", "labels.xlsx"])
@pytest.mark.parametrize("row", [40, 2000])
def test_a_header_row_that_is_none_is_told(tmp_path: Path, file: str, row: int) -> None:
    bring(tmp_path, rows(), file=file)
    with pytest.raises(SiteError, match=rf"row {row} (of the sheet )?is not a header"):
        draft(tmp_path, file, header_row=row)


def test_a_column_that_is_not_there_is_told_at_the_header_row(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    save_below(tmp_path / "labels.csv", [["Title"]], rows())
    made = draft(tmp_path)
    save_below(tmp_path / "labels.csv", [["Title"]], [{**row, "Oedema": 1, "Odema": 0} for row in rows()])
    text = (tmp_path / "labels.csv").read_text()
    (tmp_path / "labels.csv").write_text(text.replace(";Oedema", ";Other"))
    with pytest.raises(SiteError) as caught:
        opened(tmp_path, made)
    assert [(problem.kind, problem.row) for problem in caught.value.problems] == [("missing column", 2)]


@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_the_first_line_that_tells_excel_the_separator_is_heeded_and_counts_as_no_row(
    tmp_path: Path, delimiter: str
) -> None:
    path = bring(tmp_path, rows(), delimiter=delimiter)
    path.write_text(f"sep={delimiter}\n" + path.read_text())
    made = draft(tmp_path)
    assert keys(made)["table"]["delimiter"] == delimiter
    assert any("sep=" in note for note in made.notes)
    table = opened(tmp_path, made)
    assert table.frame["row"].tolist() == list(range(2, 14))  # as Excel shows them


def test_unicode_text_of_excel_is_read(tmp_path: Path) -> None:
    path = bring(tmp_path, rows(Name=["Müller", "Łoś"]), file="labels.txt", delimiter="\t", encoding="utf-16")
    made = draft(tmp_path, path.name)
    assert keys(made)["table"]["encoding"] == "utf-16"
    assert len(opened(tmp_path, made).frame) == 12


def save_merged(folder: Path, table: Sequence[Row], areas: Sequence[str]) -> None:
    """Merge cells of the sheet; only the first of each area keeps its text."""
    bring(folder, table, file="labels.xlsx")
    book = openpyxl.load_workbook(folder / "labels.xlsx")
    for area in areas:
        book.worksheets[0].merge_cells(area)
    book.save(folder / "labels.xlsx")


def test_cells_merged_downwards_stand_in_each_of_their_rows(tmp_path: Path) -> None:
    bring(tmp_path, rows(), file="labels.xlsx")
    plain = opened(tmp_path, draft(tmp_path, "labels.xlsx"))
    save_merged(tmp_path, rows(), [f"B{2 * n}:B{2 * n + 1}" for n in range(1, 7)])
    made = draft(tmp_path, "labels.xlsx")
    assert "6 cells of 'Patient' are merged with the cell above and take its value" in made.notes
    assert opened(tmp_path, made).frame["patient"].tolist() == plain.frame["patient"].tolist()


def test_cells_merged_sideways_are_empty_which_is_said_and_merged_headers_are_left_as_they_are(tmp_path: Path) -> None:
    table = [{**row, "Note": None} for row in rows()]
    save_merged(tmp_path, table, ["G2:H2", "H1:H3"])
    made = draft(tmp_path, "labels.xlsx")
    assert [note for note in made.notes if "merged" in note] == [
        "1 cells of 'Note' are merged with the cell beside and are empty"
    ]
    assert len(opened(tmp_path, made).frame) == 12


@pytest.mark.parametrize("file", ["labels.ods", "labels.xls"])
def test_other_spreadsheet_programs_are_told_what_to_save(tmp_path: Path, file: str) -> None:
    bring(tmp_path, rows())
    beginning = {"labels.ods": b"PK\x03\x04\x14\0", "labels.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"}
    (tmp_path / file).write_bytes(beginning[file] + bytes(600))
    with pytest.raises(SiteError, match=r"save (it|a spreadsheet) as xlsx"):
        draft(tmp_path, file)


def test_a_sheet_with_one_column_names_the_flags(tmp_path: Path) -> None:
    bring(tmp_path, [{"File": n} for n in range(3)])
    with pytest.raises(
        ConfigError, match=r"only one column has a name in row 1, .* --header-row NUMBER; or --delimiter"
    ):
        draft(tmp_path)


def test_a_cover_sheet_is_not_quoted_and_the_sheets_are_listed(tmp_path: Path) -> None:
    bring(tmp_path, rows())
    book = openpyxl.Workbook()
    book.worksheets[0].title = "Deckblatt"
    book.worksheets[0]["A1"] = "Dr. Zappa"
    book.create_sheet("Daten")
    book.save(tmp_path / "labels.xlsx")
    with pytest.raises(ConfigError, match=r"--sheet for another sheet \(Deckblatt, Daten\)") as caught:
        draft(tmp_path, "labels.xlsx")
    assert "Zappa" not in str(caught.value)


CELLS = st.text("abcdefghij", min_size=1, max_size=6)


@given(
    names=st.lists(CELLS, min_size=4, max_size=8, unique=True),
    titles=st.lists(st.lists(CELLS, max_size=1), max_size=4),
    number=st.integers(1, 9),
)
def test_a_full_header_is_found_below_any_titles_and_never_passed_over(
    names: list[str], titles: list[list[str]], number: int
) -> None:
    table = [names, *([str(row)] * len(names) for row in range(number))]
    assert find_header([*titles, *table]) == len(titles)


def test_a_row_with_cells_too_many_is_no_header() -> None:
    table = [["File", "Patient", "Note"], ["a", "Zappa", "none"], ["b", "Zappa", "none"]]
    assert find_header([*table, ["c", "Beta", "Edema", "of", "left", "lung", "and", "so", "on"]]) == 0


@given(st.lists(st.lists(st.sampled_from(["", "yes", "no", "17", "PA"]), max_size=6), max_size=9))
def test_rows_of_values_are_never_taken_for_a_header_below_another_row(rows: list[list[str]]) -> None:
    repeated = [*rows, *rows[1:]]  # every row but the first appears twice: values repeat, a header does not
    assert find_header(repeated) == 0
