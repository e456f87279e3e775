"""Tables of synthetic hospitals: words of fifteen languages, and rows written as the ending of a file says."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

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
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator=newline)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_rows(path: Path, rows: Sequence[Row], *, delimiter: str = ",", encoding: str = "utf-8") -> None:
    """Write rows as parquet, xlsx, feather, dta, JSON, JSON lines or CSV (.gz), the same bytes each time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    frame = pd.DataFrame(list(rows))
    if ending == "parquet":
        frame.to_parquet(path, index=False)
    elif ending == "feather":
        frame.to_feather(path)
    elif ending == "dta":
        frame.to_stata(path, write_index=False, version=118)
    elif ending == "xlsx":
        write_sheets(path, {"Sheet1": [list(rows[0]), *(list(row.values()) for row in rows)]})
    elif ending in ("json", "jsonl"):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) if ending == "jsonl" else f"[{', '.join(lines)}]", encoding="utf-8")
    else:
        write_text(path, format_rows(rows, "\t" if ending == "tsv" else delimiter), encoding)


def write_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write text, gzipped if the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_sheets(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]], merged: Sequence[str] = ()) -> None:
    """Write a workbook of rows by sheet; `merged` are areas of every sheet, such as A1:B1."""
    import openpyxl

    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
        for area in merged:
            sheet.merge_cells(area)
    book.save(written := io.BytesIO())
    with zipfile.ZipFile(written) as made, zipfile.ZipFile(path, "w") as timeless:  # the file says when it was made
        for name in made.namelist():
            content = re.sub(rb"20\d\d-\d\d-\d\dT[\d:]+Z", b"2000-01-01T00:00:00Z", made.read(name))
            timeless.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
