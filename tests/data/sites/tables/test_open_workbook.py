"""Opening a workbook: sheets, merged and hidden cells, formulas without a value, damage and bombs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.data.sites.label_files import text as limits
from chestfed.data.sites.label_files.text import ROW, Sheet
from chestfed.data.sites.label_files.workbook import open_workbook
from tests.cases import each
from tests.data.sites.tables.test_open import N, cells, kinds, open_files

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
PARTS = {
    "[Content_Types].xml": "<Types/>",
    "_rels/.rels": f'<Relationships xmlns="{PACKAGE}">'
    f'<Relationship Id="a" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">'
    f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="/xl/one.xml"/>'
    f'<Relationship Id="r2" Type="{OFFICE}/sharedStrings" Target="sharedStrings.xml"/>'
    f'<Relationship Id="r3" Type="{OFFICE}/chartsheet" Target="chart.xml"/></Relationships>',
    "xl/workbook.xml": f'<x:workbook xmlns:x="{MAIN}" xmlns:r="{OFFICE}"><x:sheets>'
    '<x:sheet name="Chart" sheetId="1" r:id="r3"/><x:sheet name="One" sheetId="2" r:id="r1"/></x:sheets></x:workbook>',
    "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}"><si><t>plain</t></si>'
    '<si><r><t>ri</t></r><r><rPr><b/></rPr><t>ch</t></r><rPh sb="0" eb="1"><t>reading</t></rPh></si><si/></sst>',
    "xl/one.xml": f'<x:worksheet xmlns:x="{MAIN}"><x:dimension ref="A1"/><x:sheetData>'
    '<x:row r="1"><x:c r="A1" t="s"><x:v>0</x:v></x:c><x:c r="B1" t="s"><x:v>1</x:v></x:c>'
    '<x:c r="D1" t="inlineStr"><x:is><x:t>d</x:t></x:is></x:c></x:row>'
    '<x:row r="4"><x:c t="inlineStr"><x:is><x:t>in</x:t></x:is></x:c><x:c><x:v>1.50</x:v></x:c>'
    '<x:c t="s"><x:v>2</x:v></x:c><x:c><x:v>2E3</x:v></x:c></x:row>'
    '<x:row><x:c t="b"><x:v>1</x:v></x:c><x:c t="e"><x:v>#N/A</x:v></x:c>'
    '<x:c t="str"><x:f>A1</x:f><x:v>plain</x:v></x:c><x:c><x:f>1+1</x:f></x:c></x:row>'
    '<x:row r="9"/></x:sheetData></x:worksheet>',
}


def save(path: Path, parts: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return path


def save_book(path: Path, fill: Callable[[Any], object], **more: list[list[object]]) -> None:
    book = openpyxl.Workbook()
    fill(book.worksheets[0])
    for name, rows in more.items():
        sheet = book.create_sheet(name)
        sheet.sheet_state = "hidden" if name.startswith("hidden") else "visible"
        for row in rows:
            sheet.append(row)
    book.save(path)


def append(*rows: list[object]) -> Callable[[Any], object]:
    return lambda sheet: [sheet.append(row) for row in rows]


@each("place", ["/xl/one.xml", "/one.xml", "one.xml"])
def test_a_sheet_is_read_as_others_write_it(tmp_path: Path, place: str) -> None:
    links = PARTS["xl/_rels/workbook.xml.rels"].replace("/xl/one.xml", place)
    sheet = {"one.xml" if place == "/one.xml" else "xl/one.xml": PARTS["xl/one.xml"]}
    others = {name: text for name, text in PARTS.items() if name != "xl/one.xml"}
    save(tmp_path / "t.xlsx", {**others, "xl/_rels/workbook.xml.rels": links, **sheet})
    source, table = open_files(tmp_path, "t.xlsx")
    assert cells(table, ROW) == [["in", "1.5", N, "2000", 4], ["true", "=", "plain", "=", 5]]
    assert source.problems == []
    assert table is not None
    assert table.frame.columns[:4].tolist() == ["plain", "rich", "", "d"]
    assert not table.notes


@each("part", [name for name in PARTS if name.startswith("xl/")])
@each("harm", ["left out", "cut", "another"])
def test_a_damaged_workbook_is_refused(tmp_path: Path, part: str, harm: str) -> None:
    parts = dict(PARTS)
    if harm == "left out":
        del parts[part]
    else:
        parts[part] = parts[part][:-20] if harm == "cut" else "<other/>"
    save(tmp_path / "t.xlsx", parts)
    assert kinds(open_files(tmp_path, "t.xlsx")[0]) == [("unreadable file", N)]


LEVELS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


@each(
    "rows",
    [
        '<row r="1"><c r="ZZZZZZ1"><v>1</v></c></row>',
        f'<row r="{10**30}"><c><v>1</v></c></row>',
        '<row r="-5"><c><v>1</v></c></row>',
        '<row r="1"><c r="a1"><v>1</v></c></row>',
        '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
        "".join(f'<row r="{row}"><c r="A{row}" t="s"><v>0</v></c></row>' for row in range(1, 101)),
        '<row r="1"><c r="A1"><v>&a9;</v></c></row>',
    ],
)
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    monkeypatch.setattr(limits, "LARGEST", 1 << 16)
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
    sheet = f'<!DOCTYPE x [<!ENTITY a0 "{"a" * 99}">{LEVELS}]>{sheet}' if "&a9" in rows else sheet
    texts = f'<sst xmlns="{MAIN}"><si><t>{"a" * 1000}</t></si></sst>'
    save(tmp_path / "t.xlsx", {**PARTS, "xl/one.xml": sheet, "xl/sharedStrings.xml": texts})
    assert kinds(open_files(tmp_path, "t.xlsx")[0]) == [("unreadable file", N)]


def test_a_part_that_inflates_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LARGEST", 1 << 22)
    save(tmp_path / "t.xlsx", {**PARTS, "xl/other.xml": "a" * (1 << 23)})
    assert kinds(open_files(tmp_path, "t.xlsx")[0]) == [("unreadable file", N)]


HEADER: list[object] = ["a", "b"]


@each(
    ("sheets", "options", "expected", "notes"),
    [
        ({"y2": [HEADER, [3, 4]]}, {}, [["1", "2"], ["3", "4"]], 1),
        ({"y2": [["b", "a"], [4, 3]]}, {}, [["1", "2"], ["3", "4"]], 1),
        ({"key": [["x"], [3]]}, {}, [["1", "2"]], 1),
        ({"key": []}, {}, [["1", "2"]], 1),
        ({"hidden": [HEADER, [3, 4]]}, {}, [["1", "2"]], 1),
        ({"hidden": [HEADER, [3, 4]]}, {"sheet": "hidden"}, [["3", "4"]], 0),
        ({"y2": [HEADER, [3, 4]]}, {"sheet": "Sheet"}, [["1", "2"]], 0),
        ({"y2": [HEADER]}, {"sheet": "y1"}, N, 0),
        ({}, {"header_row": 9}, N, 0),
        ({"t": [["title"], [], HEADER, [5, 6]]}, {"header_row": 3, "sheet": "t"}, [["5", "6"]], 0),
    ],
)
def test_sheets_with_one_header_are_joined(
    tmp_path: Path, sheets: dict[str, Any], options: dict[str, Any], expected: Any, notes: int
) -> None:
    save_book(tmp_path / "t.xlsx", append(HEADER, [1, 2]), **sheets)
    source, table = open_files(tmp_path, "t.xlsx", **options)
    assert kinds(source) == ([("unreadable file", N)] if expected is None else [])
    assert expected is None or cells(table) == expected
    assert table is None or len(table.notes) == notes


def test_merged_cells_are_repeated_below(tmp_path: Path) -> None:
    def fill(sheet: Any) -> None:
        append(["a", "b", "c"], ["x", 1, "m"], [N, 2], [N, 3, "n"], [], ["w", "v", 4])(sheet)
        for area in ("A2:A5", "A6:B6"):
            sheet.merge_cells(area)
        sheet.row_dimensions[3].hidden = True

    save_book(tmp_path / "t.xlsx", fill)
    _, table = open_files(tmp_path, "t.xlsx")
    expected = [["x", "1", "m", 2], ["x", "2", N, 3], ["x", "3", "n", 4], ["w", N, "4", 6]]
    assert cells(table, ROW) == expected
    assert table is not None
    assert len(table.notes) == 3


def test_a_date_is_written_as_one(tmp_path: Path) -> None:
    save_book(tmp_path / "t.xlsx", append(["a", "b", "c", "d"], [date(2024, 2, 29), time(6), 63, 12345678901]))
    assert cells(open_files(tmp_path, "t.xlsx")[1]) == [["2024-02-29", "06:00:00", "63", "12345678901"]]


@each(
    ("cell", "refused"),
    [
        ('office:value-type="float" office:value="1"', False),
        ('table:formula="of:=1" office:value-type="float" office:value="1"', False),
        ('table:formula="of:=1/0" calcext:value-type="error" office:value-type="string"', True),
        ('table:formula="of:=1"', True),
    ],
)
def test_formulas_of_an_ods_are_checked(tmp_path: Path, cell: str, refused: bool) -> None:
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    header = '<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
    content = (
        f'<office:document-content{spaces} xmlns:calcext="urn:org:documentfoundation:names:calc:xmlns:calcext:1.0">'
        f'<office:body><office:spreadsheet><table:table table:name="One"><table:table-row>{header}</table:table-row>'
        f"<table:table-row><table:table-cell {cell}><text:p>1</text:p></table:table-cell></table:table-row>"
        "</table:table></office:spreadsheet></office:body></office:document-content>"
    )
    mime = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
    save(tmp_path / "t.ods", {"mimetype": mime, "META-INF/manifest.xml": manifest, "content.xml": content})
    source, table = open_files(tmp_path, "t.ods")
    assert kinds(source) == ([("unreadable file", N)] if refused else [])
    assert refused or cells(table) == [["1"]]
    assert table is None or table.notes == []


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


@given(rows=st.lists(st.lists(st.one_of(st.none(), TEXTS, st.integers(-(10**9), 10**9)), max_size=9), max_size=5))
def test_what_openpyxl_writes_is_read(tmp_path: Path, rows: list[list[str | int | None]]) -> None:
    for streamed in (False, True):
        book = openpyxl.Workbook(write_only=streamed)
        sheet = book.create_sheet("One")
        for row in [[f"h{place}" for place in range(9)], *rows]:  # a t before each text: some are formulas
            sheet.append([f"t{cell}" if isinstance(cell, str) else cell for cell in row])
        book.save(tmp_path / "a.xlsx")
        (opened,) = open_workbook((tmp_path / "a.xlsx").read_bytes(), "a", "One", 1)
        assert _filled(opened) == {
            (number, place): f"t{cell}" if isinstance(cell, str) else str(cell)
            for number, row in enumerate(rows, start=2)
            for place, cell in enumerate(row)
            if cell is not None
        }


def _filled(sheet: Sheet) -> dict[tuple[int, int], str]:
    columns = [cells.to_pylist() for cells in sheet.cells]
    return {
        (row, place): text
        for at, row in enumerate(sheet.rows.tolist())
        for place, column in enumerate(columns)
        if (text := column[at]) is not None
    }
