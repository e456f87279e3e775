"""Spreadsheets of the further hospitals: csv, tsv, csv.gz, xlsx and parquet, the same bytes each time."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, object]


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
    """What openpyxl writes, but for the time at which it does."""
    from openpyxl import Workbook

    book, written = Workbook(), io.BytesIO()
    sheet = book.worksheets[0]
    for line in cells:
        sheet.append(line)
    book.save(written)
    with zipfile.ZipFile(written) as made, zipfile.ZipFile(path, "w") as timeless:
        for name in made.namelist():
            content = re.sub(rb"20\d\d-\d\d-\d\dT[\d:]+Z", b"2000-01-01T00:00:00Z", made.read(name))
            timeless.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
