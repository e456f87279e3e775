"""The named columns of a spreadsheet as text: csv, tsv, parquet, xlsx and lists of JSON objects, read alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from chestfed.core.console import plural
from chestfed.sites.folders import composed
from chestfed.sites.label_files.delimited import DELIMITERS, excel_separator, first_cells, without_rows
from chestfed.sites.label_files.encodings import is_text
from chestfed.sites.label_files.parquet import ParquetColumns
from chestfed.sites.label_files.source import ROW, Source, UnreadableError, nearest, row_numbers, shown
from chestfed.sites.label_files.xlsx import XlsxError, cells_of, open_sheets
from chestfed.sites.tables.schema import FileFormat


@dataclass(frozen=True)
class _Sheet:
    """A file that is open: its header, and how to get columns by place as strings, with their row numbers."""

    names: list[str]
    columns: Callable[[list[int]], tuple[pa.Table, np.ndarray] | None]
    delimiter: str | None = None
    header: str = ""
    row: int = 1


def read_cells(source: Source, path: Path, table: FileFormat, columns: Sequence[str]) -> pd.DataFrame | None:
    """The columns as strings without outer blanks (empty is missing), and `ROW`, the number of the row in the file.

    Letters with accents are single characters (NFC), in columns' names too: a name is the same in files from a Mac and
    from others. Row 1 is the first of the file, and the header unless `header_row` names another; a format without a
    header counts as if it had one. A merged cell of an xlsx is repeated in all the rows that it covers, which is noted
    among `source.remarks`. None, with problems, if the file cannot be used.
    """
    sheet = _open(source, path, table)
    wanted = list(dict.fromkeys(columns))
    if sheet is None or not _has_columns(source, path, sheet, wanted):
        return None
    read = sheet.columns([sheet.names.index(composed(name)) for name in wanted])
    if read is None:
        return None
    cells, frame = read[0].columns, pd.DataFrame({ROW: read[1]})
    del sheet, read  # as large as the frame: the text, and below each column once it is done
    for place, name in enumerate(wanted):
        frame.insert(place, name, _stripped(cells.pop(0)))
    frame = frame[frame[wanted].notna().any(axis=1).to_numpy()].reset_index(drop=True)  # blank rows
    if frame.empty and not source.problems:
        source.problem("empty file", source.name(path), "has a header and no rows", advice="export the table again")
    source.refuse_formulas(path, frame, wanted, frame[ROW].to_numpy())
    return frame


def column_names(source: Source, path: Path, table: FileFormat) -> list[str] | None:
    """The names in a file's header, which may be empty or repeated; None, with problems, if it cannot be read."""
    sheet = _open(source, path, table)
    return None if sheet is None else sheet.names


def _open(source: Source, path: Path, table: FileFormat) -> _Sheet | None:
    openers = {"csv": _open_csv, "parquet": _open_parquet, "xlsx": _open_xlsx, "json": _open_json}
    kind = by_ending(path)
    sheet = openers["csv" if kind in ("tsv", "csv.gz") else kind](source, path, table)
    return sheet and replace(sheet, names=[composed(name) for name in sheet.names])


def by_ending(path: Path) -> str:
    """The format of a file by its name: csv, json, parquet or xlsx."""
    if path.name.lower().removesuffix(".gz").endswith((".json", ".jsonl")):
        return "json"
    return {".parquet": "parquet", ".pq": "parquet", ".xlsx": "xlsx", ".xlsm": "xlsx"}.get(path.suffix.lower(), "csv")


def _has_columns(source: Source, path: Path, sheet: _Sheet, wanted: Sequence[str]) -> bool:
    names = sheet.names
    lacking = [name for name in wanted if composed(name) not in names]
    twice = [name for name in wanted if names.count(composed(name)) > 1]
    if lacking and sheet.delimiter is not None:
        for other in DELIMITERS:
            found = sum(cell.strip() in wanted for cell in first_cells(sheet.header, other))
            if other != sheet.delimiter and found > len(wanted) - len(lacking):
                text = f"the header is separated by {shown(other)}, not by {shown(sheet.delimiter)}"
                advice = "set table.delimiter in the site's YAML"
                source.problem("wrong delimiter", source.name(path), text, sheet.row, advice)
                return False
    # The names of the others are shown only if this is a header: it may be the first patient.
    for name in lacking:
        hint = nearest(name, names)
        others = f"; found: {', '.join(filter(None, names))}" if len(lacking) < len(wanted) else ""
        text = f"no column '{name}'{hint} among {len(names)}{others}"
        advice = "fix the names in the site's YAML; the header is the first row, unless table.header_row gives another"
        source.problem("missing column", source.name(path), text, sheet.row, advice)
    for name in twice:
        text = f"{names.count(composed(name))} columns are named '{name}'"
        advice = "rename all but one of them in the file"
        source.problem("duplicate column", source.name(path), text, sheet.row, advice)
    return not lacking and not twice


def _stripped(cells: pa.ChunkedArray) -> pd.Series:
    plain = pc.utf8_trim_whitespace(cells)
    found = pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain).to_pandas()
    return found if pc.all(pc.string_is_ascii(plain)).as_py() is not False else found.str.normalize("NFC")


def _open_csv(source: Source, path: Path, table: FileFormat) -> _Sheet | None:
    text = source.text(path, table.encoding)
    if text is None:
        return None
    tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    separator, text = excel_separator(text)
    line = text.split(b"\n", 1)[0].decode("utf-8")
    sniffed = "\t" if tabs else max(",;\t|", key=line.count)
    delimiter = table.delimiter or separator or sniffed
    above = table.header_row - 1
    text = without_rows(text, above, delimiter)
    names = [name.strip() for name in first_cells(text[: 1 << 20].decode("utf-8", errors="ignore"), delimiter)]
    if not any(names):
        said = f"row {table.header_row} is not a header" if above else "has no header line"
        advice = "set table.header_row to the row with the column names" if above else "export the table again"
        source.problem("empty file", source.name(path), said, advice=advice)
        return None
    header = text.split(b"\n", 1)[0].decode("utf-8")

    def columns(places: list[int]) -> tuple[pa.Table, np.ndarray] | None:
        return source.csv_cells(path, text, len(names), places, delimiter, above)

    return _Sheet(names, columns, delimiter, header, table.header_row)


def _open_parquet(source: Source, path: Path, table: FileFormat) -> _Sheet | None:
    try:
        file = ParquetColumns(path)
    except UnreadableError as error:
        source.problem("unreadable file", source.name(path), str(error), advice=error.advice)
        return None
    names = file.names

    def columns(places: list[int]) -> tuple[pa.Table, np.ndarray] | None:
        try:
            cells = file.read([names[place] for place in places])
        except UnreadableError as error:
            source.problem("unreadable file", source.name(path), str(error), advice=error.advice)
            return None
        arrays = []
        for place in places:
            array = _as_text(cells[names[place]])
            if array is None:
                text = f"'{names[place]}' holds {cells[names[place]].type}, not text or numbers"
                source.problem("malformed column", source.name(path), text, 1, "export the column as text")
            else:
                arrays.append(array)
        if len(arrays) < len(places):
            return None
        return pa.table(dict(zip(map(str, range(len(arrays))), arrays, strict=True))), row_numbers(cells.num_rows)

    return _Sheet(names, columns)


def _as_text(array: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Strings; lists become JSON; None if the type has no plain text."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _as_text(array.cast(kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        cells = [None if cell is None else json.dumps(cell, default=str) for cell in array.to_pylist()]
        return pa.chunked_array([pa.array(cells, pa.string())])
    if pa.types.is_floating(kind):  # as pandas writes whole numbers of which some are missing
        array = array.cast(pa.float32()) if pa.types.is_float16(kind) else array
        none = pa.scalar(None, array.type)
        array = pc.if_else(pc.is_nan(array), none, array)
        exact = pc.less(pc.abs(array), 2.0 ** (24 if pa.types.is_float32(kind) else 53))
        whole = pc.and_(pc.equal(pc.floor(array), array), exact)
        numbers = pc.if_else(whole, array, none).cast(pa.int64()).cast(pa.string())
        # pyarrow writes rounded numbers of 32 bits in full.
        rounded = (
            pc.if_else(exact, none, array).cast(pa.float64()).to_pandas().map("{:.16e}".format, na_action="ignore")
        )
        others = pc.if_else(exact, array.cast(pa.string()), pa.chunked_array([pa.array(rounded, pa.string())]))
        return pc.if_else(whole, numbers, others)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        return None
    try:
        return array.cast(pa.string())
    except pa.ArrowException:
        return None


def _open_xlsx(source: Source, path: Path, table: FileFormat) -> _Sheet | None:
    try:
        sheets = open_sheets(path)
        name = table.sheet or next(iter(sheets), "")
        if name not in sheets:
            text = f"no sheet '{name}'{nearest(name, sheets)}; found: {', '.join(sheets)}"
            source.problem("missing sheet", source.name(path), text, advice="set table.sheet in the site's YAML")
            return None
        sheet = cells_of(sheets[name], table.header_row)
    except XlsxError as error:
        source.problem("unreadable file", source.name(path), str(error), advice=error.advice)
        return None
    header = sheet.rows.get(table.header_row, {})
    names = [header.get(place, "").strip() for place in range(max(header, default=-1) + 1)]
    if not any(names):
        text = f"row {table.header_row} of the sheet is not a header; the workbook has {', '.join(sheets)}"
        advice = "set table.header_row to the row of the column names, or table.sheet to another sheet"
        source.problem("empty file", source.name(path), text, advice=advice)
        return None

    def columns(places: list[int]) -> tuple[pa.Table, np.ndarray]:
        source.remarks += [
            f"{count[place]:,} cells of '{names[place]}' are merged with the cell {done}"
            for place in places
            for count, done in ((sheet.filled, "above and take its value"), (sheet.covered, "beside and are empty"))
            if count[place]
        ]
        if sheet.hidden:
            told = f"{plural(sheet.hidden, 'hidden row')} of the sheet {'is' if sheet.hidden == 1 else 'are'} read too"
            source.remarks.append(f"{source.name(path)}: {told}")
        rows = {number: row for number, row in sheet.rows.items() if number > table.header_row}
        cells = {str(at): pa.array([row.get(p) for row in rows.values()], pa.string()) for at, p in enumerate(places)}
        return pa.table(cells), np.array(list(rows), dtype=np.int64)

    return _Sheet(names, columns, row=table.header_row)


def _open_json(source: Source, path: Path, table: FileFormat) -> _Sheet | None:
    """A list of objects, or an object on each line; their keys are the columns."""
    text = source.text(path, "utf-8")
    if text is None:
        return None
    objects = _json_objects(text)
    if objects is None:
        said = "is neither a list of JSON objects nor one object per line, or an object has a key twice"
        advice = "use the original file; of a key that is there twice it is not clear which value counts"
        source.problem("malformed JSON", source.name(path), said, advice=advice)
        return None
    names = list(dict.fromkeys(name for row in objects for name in row))

    def columns(places: list[int]) -> tuple[pa.Table, np.ndarray] | None:
        cells, bad = {}, False
        for at, place in enumerate(places):
            column = [_json_cell(row.get(names[place])) for row in objects]
            strange = np.array([cell is _NO_CELL for cell in column], dtype=bool)
            rows, told = row_numbers(len(objects)), f"'{names[place]}' is not text, a number or a list"
            source.bad_rows(path, "malformed column", strange, rows, told, "remove the column from table.columns")
            bad = bad or bool(strange.any())
            cells[str(at)] = pa.array([None if cell is _NO_CELL else cell for cell in column], pa.string())
        return None if bad else (pa.table(cells), row_numbers(len(objects)))

    return _Sheet(names, columns)


def _json_objects(text: bytes) -> list[dict[str, Any]] | None:
    try:
        found = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        try:
            found = [json.loads(line, object_pairs_hook=_object) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        return None
    return found if all(is_text(name) for row in found for name in row) else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs by key; a key that is there twice is an error."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return found


#: In place of a value that has no plain text.
_NO_CELL: Final = object()


def _json_cell(value: Any) -> Any:
    """A cell as text; None if it is empty."""
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return json.dumps(value)
    value = int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
    return _NO_CELL if isinstance(value, dict) or not is_text(str(value)) else str(value)
