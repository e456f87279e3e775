"""Spreadsheets of the further hospitals: csv, tsv, csv.gz, xlsx and parquet, the same bytes each time."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

Row = Mapping[str, object]

_XMLNS: Final = 'xmlns="http://schemas.openxmlformats.org'
_OFFICE: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_HEAD: Final = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_SHEET_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml"
#: The parts of a workbook with one sheet (ECMA-376, part 1), but for the sheet itself.
_PARTS: Final = {
    "[Content_Types].xml": f'<Types {_XMLNS}/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEET_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_SHEET_TYPE}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships {_XMLNS}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook {_XMLNS}/spreadsheetml/2006/main" xmlns:r="{_OFFICE}">'
    '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships {_XMLNS}/package/2006/relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
}


def write_table(path: Path, rows: Sequence[Row], *, encoding: str = "utf-8", delimiter: str = ",") -> None:
    """Write rows in the format that the ending says; the columns are those of the first row."""
    names = list(rows[0])
    cells: list[Sequence[object]] = [names, *([row.get(name) for name in names] for row in rows)]
    if path.suffix == ".xlsx":
        _write_xlsx(path, cells)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    else:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(cells)
        data = text.getvalue().encode(encoding)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _write_xlsx(path: Path, cells: Sequence[Sequence[object]]) -> None:
    """Texts as inline strings, numbers as numbers."""
    lines = "".join(f"<row>{''.join(map(_cell, line))}</row>" for line in cells)
    sheet = f'<worksheet {_XMLNS}/spreadsheetml/2006/main"><sheetData>{lines}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, text in {**_PARTS, "xl/worksheets/sheet1.xml": sheet}.items():
            book.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), _HEAD + text)


def _cell(value: object) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, int | float):
        return f"<c><v>{value}</v></c>"
    return f'<c t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'
