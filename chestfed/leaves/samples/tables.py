"""Tables of synthetic hospitals: words of fifteen languages, and rows written as the ending of a file says."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import pandas as pd
import yaml

Row = Mapping[str, Any]
#: Language -> word of `words.yaml` -> how its hospitals write it.
WORDS: Final[Mapping[str, Any]] = yaml.safe_load(
    resources.files(__package__).joinpath("words.yaml").read_text(encoding="utf-8")
)


def format_rows(rows: Sequence[Row], delimiter: str = ",", newline: str = "\n") -> str:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _list_columns(rows), delimiter=delimiter, lineterminator=newline)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_rows(path: Path, rows: Sequence[Row], *, delimiter: str = ",", encoding: str = "utf-8") -> None:
    """Write rows as parquet, xlsx, feather, JSON, JSON lines or CSV (.gz), the same bytes each time.

    A row that lacks a column of another one has an empty cell there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    frame = pd.DataFrame(list(rows))
    if ending == "parquet":
        frame.to_parquet(path, index=False)
    elif ending == "feather":
        frame.to_feather(path)
    elif ending == "xlsx":
        names = _list_columns(rows)
        write_sheets(path, {"Sheet1": [names, *([row.get(name) for name in names] for row in rows)]})
    elif ending in ("json", "jsonl"):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) if ending == "jsonl" else f"[{', '.join(lines)}]", encoding="utf-8")
    else:
        write_text(path, format_rows(rows, "\t" if ending == "tsv" else delimiter), encoding)


def _list_columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def write_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write text, gzipped if the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_sheets(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]], merged: Sequence[str] = ()) -> None:
    """Write an xlsx workbook of rows by sheet; `merged` are areas of every sheet, such as A1:B1."""
    main, relations = "http://schemas.openxmlformats.org/spreadsheetml/2006/main", "/package/2006/relationships"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    content = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    numbers = range(1, len(sheets) + 1)
    types = "".join(f'<Override PartName="/s{n}.xml" ContentType="{content}.worksheet+xml"/>' for n in numbers)
    names = zip(numbers, sheets, strict=True)
    listed = "".join(f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="r{n}"/>' for n, name in names)
    links = "".join(f'<Relationship Id="r{n}" Type="{office}/worksheet" Target="/s{n}.xml"/>' for n in numbers)
    areas = "".join(f'<mergeCell ref="{area}"/>' for area in merged)
    areas = f"<mergeCells>{areas}</mergeCells>" if merged else ""
    packages = f'<Relationships xmlns="http://schemas.openxmlformats.org{relations}">'
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{content}.sheet.main+xml"/>{types}</Types>',
        "_rels/.rels": f'{packages}<Relationship Id="r" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f"{packages}{links}</Relationships>",
    }
    for n, rows in zip(numbers, sheets.values(), strict=True):
        data = "".join(f"<row>{''.join(map(_format_cell, row))}</row>" for row in rows)
        parts[f"s{n}.xml"] = f'<worksheet xmlns="{main}"><sheetData>{data}</sheetData>{areas}</worksheet>'
    with zipfile.ZipFile(path, "w") as book:
        for name, text in parts.items():
            book.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


def _format_cell(cell: Any) -> str:
    if cell is None:
        return "<c/>"
    if isinstance(cell, bool | int | float):
        return f'<c t="{"b" if isinstance(cell, bool) else "n"}"><v>{float(cell):.15g}</v></c>'
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(str(cell))}</t></is></c>'
