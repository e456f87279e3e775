"""Excel sheets: what openpyxl writes, and what others write that openpyxl does not."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from datetime import date, time, timedelta
from pathlib import Path

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chestfed.sites.label_files.xlsx import XlsxError, cells_of, open_sheets
from tests.cases import each

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"
PARTS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    f'<Override PartName="/odd/book.xml" ContentType="{SHEET}.sheet.main+xml"/>'
    f'<Override PartName="/odd/texts.xml" ContentType="{SHEET}.sharedStrings+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{PACKAGE}">'
    f'<Relationship Id="a" Type="{OFFICE}/officeDocument" Target="/odd/book.xml"/></Relationships>',
    "odd/_rels/book.xml.rels": f'<Relationships xmlns="{PACKAGE}">'
    f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="/odd/one.xml"/>'
    f'<Relationship Id="r2" Type="{OFFICE}/sharedStrings" Target="texts.xml"/>'
    f'<Relationship Id="r3" Type="{OFFICE}/chartsheet" Target="chart.xml"/>'
    f'<Relationship Id="r4" Type="{OFFICE}/hyperlink" TargetMode="External" Target="https://x.org"/></Relationships>',
    "odd/book.xml": f'<x:workbook xmlns:x="{MAIN}" xmlns:r="{OFFICE}"><x:sheets>'
    '<x:sheet name="Chart" sheetId="1" r:id="r3"/><x:sheet name="One" sheetId="2" r:id="r1"/></x:sheets></x:workbook>',
    "odd/texts.xml": f'<sst xmlns="{MAIN}"><si><t>plain</t></si>'
    '<si><r><t>ri</t></r><r><rPr><b/></rPr><t>ch</t></r><rPh sb="0" eb="1"><t>reading</t></rPh></si><si/></sst>',
    "odd/one.xml": f'<x:worksheet xmlns:x="{MAIN}"><x:sheetData>'
    '<x:row r="1"><x:c r="A1" t="s"><x:v>0</x:v></x:c><x:c r="AB1" t="s"><x:v>1</x:v></x:c></x:row>'
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


def test_a_sheet_is_read_as_other_programs_write_it(tmp_path: Path) -> None:
    sheets = open_sheets(save(tmp_path / "a.xlsx", PARTS))
    assert list(sheets) == ["One"]
    assert cells_of(sheets["One"]).rows == {
        1: {0: "plain", 27: "rich"},
        4: {0: "in", 1: "1.5", 3: "2000"},
        5: {0: "true", 1: "=", 2: "=", 3: "="},
    }


@each("part", ["[Content_Types].xml", "odd/_rels/book.xml.rels", "odd/book.xml", "odd/one.xml"])
@each("harm", ["left out", "cut", "another"])
def test_a_damaged_workbook_is_refused(tmp_path: Path, part: str, harm: str) -> None:
    parts = dict(PARTS)
    if harm == "left out":
        del parts[part]
    elif harm == "cut":
        parts[part] = parts[part][:-20]
    else:
        parts[part] = parts[part].replace("Id=", "Ib=").replace("id=", "ib=").replace("<x:v>1</x:v>", "<x:v>x</x:v>")
        parts[part] = parts[part].replace("PartName", "Part")
    with pytest.raises(XlsxError):
        _read(save(tmp_path / "a.xlsx", parts))


def test_a_sheet_that_is_listed_and_not_there_is_refused(tmp_path: Path) -> None:
    rels = "odd/_rels/book.xml.rels"
    first = f'<Relationship Id="r0" Type="{OFFICE}/worksheet" Target="/odd/none.xml"/></Relationships>'
    parts = {**PARTS, rels: PARTS[rels].replace("</Relationships>", first)}
    parts["odd/book.xml"] = PARTS["odd/book.xml"].replace(
        "<x:sheets>", '<x:sheets><x:sheet name="A" sheetId="3" r:id="r0"/>'
    )
    with pytest.raises(XlsxError, match="lists a sheet"):
        _read(save(tmp_path / "a.xlsx", parts))


@each("texts", [None, PARTS["odd/texts.xml"][:-20], "<sst/>"])
def test_texts_that_are_not_there_are_refused(tmp_path: Path, texts: str | None) -> None:
    parts = {name: text for name, text in {**PARTS, "odd/texts.xml": texts}.items() if text is not None}
    with pytest.raises(XlsxError):
        _read(save(tmp_path / "a.xlsx", parts))


def test_entities_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "{"a" * 99}">{levels}]>' + PARTS["odd/one.xml"].replace(">1.50<", ">&a9;<")
    with pytest.raises(XlsxError):
        _read(save(tmp_path / "a.xlsx", {**PARTS, "odd/one.xml": bomb}))


def test_the_size_that_a_sheet_states_of_itself_is_not_believed(tmp_path: Path) -> None:
    stated = PARTS["odd/one.xml"].replace("<x:sheetData>", '<x:dimension ref="A1"/><x:sheetData>')
    assert len(_read(save(tmp_path / "a.xlsx", {**PARTS, "odd/one.xml": stated}))) == 3


def test_a_date_is_the_number_of_its_day(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.worksheets[0].append([date(2024, 2, 29), timedelta(days=2.5), time(6), 63])
    book.worksheets[0].cell(1, 4).number_format = "dd.mm.yyyy"
    book.worksheets[0].title = "One"
    book.save(tmp_path / "a.xlsx")
    assert _read(tmp_path / "a.xlsx") == [(1, {0: "45351", 1: "2.5", 2: "0.25", 3: "63"})]


def _read(path: Path) -> list[tuple[int, dict[int, str]]]:
    return list(cells_of(open_sheets(path)["One"]).rows.items())


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(st.one_of(st.none(), TEXTS, st.integers(-(10**9), 10**9)), max_size=30), max_size=5))
def test_what_openpyxl_writes_is_read(tmp_path: Path, rows: list[list[str | int | None]]) -> None:
    for streamed in (False, True):
        book = openpyxl.Workbook(write_only=streamed)
        sheet = book.create_sheet("One")
        for row in [["first"], *rows]:  # a t before each text, for some alone would be formulas or errors
            sheet.append([f"t{cell}" if isinstance(cell, str) else cell for cell in row])
        book.save(tmp_path / "a.xlsx")
        found = _read(tmp_path / "a.xlsx")
        written = [{at: _shown(cell) for at, cell in enumerate(row) if cell is not None} for row in rows]
        assert found == [(1, {0: "tfirst"}), *((at + 2, row) for at, row in enumerate(written) if row)]


def _shown(cell: str | int) -> str:
    return f"t{cell}" if isinstance(cell, str) else str(cell)


@pytest.mark.parametrize(
    "cell",
    [
        '<row r="1"><c r="ZZZZZZ1"><v>1</v></c></row>',
        f'<row r="{10**30}"><c><v>1</v></c></row>',
        '<row r="1"><c r="a1"><v>1</v></c></row><row r="-5"><c><v>1</v></c></row>',
    ],
    ids=["column", "row", "negative row"],
)
def test_a_place_that_excel_does_not_have_is_damage_and_takes_no_memory(tmp_path: Path, cell: str) -> None:
    parts = {**PARTS, "odd/one.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{cell}</sheetData></worksheet>'}
    with pytest.raises(XlsxError, match="damaged"):
        _read(save(tmp_path / "a.xlsx", parts))


def test_a_part_that_inflates_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.sites.label_files.xlsx.LARGEST", 1 << 22)
    parts = {**PARTS, "odd/texts.xml": f'<sst xmlns="{MAIN}"><si><t>{"a" * (1 << 23)}</t></si></sst>'}
    with pytest.raises(XlsxError, match="is larger than"):
        _read(save(tmp_path / "a.xlsx", parts))


def test_a_text_of_many_cells_counts_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.sites.label_files.xlsx.LARGEST", 1 << 16)
    rows = "".join(f'<row r="{row}"><c r="A{row}" t="s"><v>0</v></c></row>' for row in range(1, 101))
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
    texts = f'<sst xmlns="{MAIN}"><si><t>{"a" * 1000}</t></si></sst>'
    with pytest.raises(XlsxError, match="is larger than"):
        _read(save(tmp_path / "a.xlsx", {**PARTS, "odd/one.xml": sheet, "odd/texts.xml": texts}))
