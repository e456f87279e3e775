"""Opens what a hospital has as one frame of strings, whatever program wrote it; the content tells the format."""

from __future__ import annotations

import csv
import gzip
import io
import re
import traceback
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.plugins.loading import load_module
from chestfed.sites.folders import composed
from chestfed.sites.label_files import source as limits
from chestfed.sites.label_files.source import (
    DELIMITERS,
    ROW,
    TOO_LARGE,
    Source,
    UnreadableError,
    first_cells,
    shown,
    unpacked,
)
from chestfed.sites.tables.columns import (
    Sheet,
    from_frame,
    from_objects,
    open_feather,
    open_parquet,
    open_sqlite,
    open_statistics,
    parse_json,
)
from chestfed.sites.tables.schema import FileFormat
from chestfed.sites.tables.workbook import open_workbook

#: The name of each row's file, with its sheet, for messages.
FILE: Final = "\0file"
#: The column of the file's name, where several files are read as one table.
FILE_NAME: Final = "file_name"
_ENDINGS: Final = (
    *(".csv", ".tsv", ".tab", ".txt", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".feather", ".arrow"),
    *(".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".dta", ".sav", ".zsav", ".sqlite", ".sqlite3", ".db"),
)
_MOST_FILES: Final = 10_000
#: A first line such as `sep=;`, which Excel writes and does not show.
_SEPARATOR: Final = re.compile(rb"\"?sep=([^\r\n\"\x80-\xff])\"?\r?\n", re.IGNORECASE)
_SNIFFED: Final = 100  # rows


@dataclass(frozen=True)
class OpenedTable:
    """A table as text.

    `frame` has a column of strings per column of the file, in its order, without outer blanks and with accented letters
    as single characters (NFC); an empty cell is missing. Names may be empty or repeated. `ROW` is the number of the row
    as the program of the file shows it, the header being row 1 in a format without one; `FILE` is the file's name.
    `notes` say how the file was read where it leaves that open.
    """

    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)


def open_table(source: Source, paths: Sequence[Path], options: FileFormat) -> OpenedTable | None:
    """The rows of the files, or of those in a folder, which have the same columns; None, with problems in the source.

    Several files have a further column `file_name`, and `name=value` in their folders is a column, as in partitioned
    parquet.
    """
    if options.prepare is not None:
        prepared = _run(source, paths[0], lambda: [_prepare(options.prepare or "", paths)])
        return None if prepared is None else _join(source, prepared)
    files = [file for path in paths for file in _list_files(path)]
    if not files:
        message = f"no table in this folder; tables end with {', '.join(_ENDINGS)}"
        advice = "name the folder of the tables, and unzip an archive first"
        source.problem("missing file", source.name(paths[0]), message, advice=advice)
        return None
    if len(files) > 1 and (len(files) > _MOST_FILES or sum(file.stat().st_size for file in files) > limits.LARGEST):
        source.problem("unreadable file", source.name(paths[0]), TOO_LARGE[0], advice=TOO_LARGE[1])
        return None
    sheets: list[Sheet] = []
    failed = False
    for file in files:
        opened = _run(source, file, lambda: _open_file(source, file, options))  # noqa: B023
        failed |= opened is None
        for sheet in opened or []:
            sheets.append(sheet if len(files) == 1 else _with_places(sheet, file, paths))
    return None if failed else _join(source, sheets)


def _run(source: Source, path: Path, opener: Callable[[], list[Sheet] | None]) -> list[Sheet] | None:
    """The sheets of an opener; None, with a problem, where it raises `UnreadableError`."""
    try:
        return opener()
    except UnreadableError as error:
        source.problem("unreadable file", source.name(path), str(error), advice=error.advice)
        return None


def _list_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = (file for file in path.rglob("*") if not any(part[0] in "._" for part in file.relative_to(path).parts))
    return sorted(file for file in files if file.name.lower().removesuffix(".gz").endswith(_ENDINGS) and file.is_file())


def _open_file(source: Source, path: Path, options: FileFormat) -> list[Sheet] | None:
    """The sheets of a file; None, with problems, or `UnreadableError`."""
    label = source.name(path)
    start = _read_start(path)
    if start.startswith(b"PAR1"):
        return [open_parquet(path, label)]
    if start.startswith((b"ARROW1", b"FEA1")):
        return [open_feather(path, label)]
    if start.startswith(b"SQLite format 3\0"):
        return [open_sqlite(path, label, options.table_name)]
    if start.startswith((b"<stata_dta>", b"$FL2", b"$FL3")) or path.suffix.lower() == ".dta":
        return [open_statistics(path, label)]
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        data = unpacked(path)
        if start.startswith(b"PK"):
            _refuse_archive(data, path)
        return open_workbook(data, label, options.sheet, options.header_row)
    sheet = _open_text(source, path, options)
    return None if sheet is None else [sheet]


def _read_start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            start = file.read(16)
            if start.startswith(b"\x1f\x8b"):
                file.seek(0)
                start = gzip.GzipFile(fileobj=file).read(16)
                if start.startswith((b"PK", b"PAR1", b"ARROW1", b"SQLite", b"\xd0\xcf\x11\xe0")):
                    raise UnreadableError("is compressed by gzip", f"unpack it: gunzip --keep '{path.name}'")
        return start
    except (OSError, EOFError):  # named by the reader of text
        return b""


def _open_text(source: Source, path: Path, options: FileFormat) -> Sheet | None:
    """The cells of a delimited or JSON file; None, with problems, if it cannot be used."""
    before = len(source.problems)
    text = source.text(path, options.encoding)
    if text is None:
        return None
    if text.lstrip()[:1] in (b"{", b"["):
        objects = parse_json(text)
        if objects is not None:
            return from_objects(source.name(path), objects)
        message = "is neither a list of JSON objects nor an object per line, or an object has a key twice"
        source.problem("malformed JSON", source.name(path), message, advice="export the file again")
        return None
    return _open_delimited(source, path, text, options) if len(source.problems) == before or source.keep_going else None


def _open_delimited(source: Source, path: Path, text: bytes, options: FileFormat) -> Sheet | None:
    stated = _SEPARATOR.match(text)
    text = text if stated is None else text[stated.end() :]
    above = options.header_row - 1
    start = text[: 1 << 20].decode("utf-8", errors="ignore")
    delimiter = options.delimiter or (stated and stated[1].decode("latin-1")) or _sniff(start, above)
    if delimiter is None:
        message = "the delimiter is ambiguous: " + " and ".join(map(shown, DELIMITERS)) + " fit several ways"
        source.problem("wrong delimiter", source.name(path), message, advice="set table.delimiter in the site's YAML")
        return None
    text = _skip_rows(text, above, delimiter)
    names = [name.strip() for name in first_cells(text[: 1 << 20].decode("utf-8", errors="ignore"), delimiter)]
    if not any(names):
        message = f"row {options.header_row} is not a header" if above else "has no header line"
        advice = "set table.header_row to the row with the column names" if above else "export the table again"
        source.problem("empty file", source.name(path), message, advice=advice)
        return None
    cells = source.csv_cells(path, text, len(names), range(len(names)), delimiter, above)
    if cells is None:
        return None
    return Sheet(source.name(path), names, list(cells[0].columns), cells[1], options.header_row)


def _sniff(start: str, above: int) -> str | None:
    """The delimiter of most rows' width; None if two fit equally. A file of one column has commas."""
    shares: dict[str, tuple[float, int]] = {}
    for delimiter in DELIMITERS:
        rows = []
        try:
            lines = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
            rows += [row for _, row in zip(range(above + _SNIFFED), lines, strict=False)]
        except csv.Error:
            pass
        widths = [len(row) for row in rows[above:] if row]
        if widths and widths[0] > 1:
            shares[delimiter] = sum(width == widths[0] for width in widths) / len(widths), widths[0]
    best = max(shares.values(), default=None)
    fitting = [delimiter for delimiter, share in shares.items() if share == best]
    return "," if not fitting else fitting[0] if len(fitting) == 1 else None


def _skip_rows(text: bytes, number: int, delimiter: str) -> bytes:
    """The text behind its first rows, cells with line breaks being one; empty if it has no more of them."""
    if not number:
        return text
    rows = csv.reader(io.StringIO(text.decode("utf-8"), newline=""), delimiter=delimiter)
    try:
        for _ in zip(range(number), rows, strict=False):
            pass
    except csv.Error:
        return b""
    return text.split(b"\n", rows.line_num)[rows.line_num] if text.count(b"\n") >= rows.line_num else b""


def _refuse_archive(data: bytes, path: Path) -> None:
    """Raise `UnreadableError` for a zip file that is not a workbook, with the command that unpacks it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            names = parts.namelist()
    except zipfile.BadZipFile:
        raise UnreadableError("is a damaged zip file or workbook", "copy or export it again") from None
    if not {"xl/workbook.xml", "xl/workbook.bin", "content.xml"} & set(names) and "[Content_Types].xml" not in names:
        advice = f"unpack it: unzip '{path.name}' -d '{path.stem}'; then name the files in that folder"
        raise UnreadableError(f"is a zip file with {len(names):,} files, not a table", advice)


def _prepare(reference: str, paths: Sequence[Path]) -> Sheet:
    """The frame that a user's function makes of the paths."""
    module, _, name = reference.partition(":")
    code = load_module(reference, module).module
    function = getattr(code, name, None)
    if not callable(function):
        raise ConfigError(f"table.prepare: module '{module}' has no function '{name}'")
    try:
        frame = function(list(paths))
    except ChestfedError:
        raise
    except Exception as error:  # its message may quote a cell
        steps = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
        line = [step.lineno for step in steps if step.filename == code.__file__][-1:] or [steps[-1].lineno]
        message = f"table.prepare: {reference} raised {type(error).__name__} (line {line[0]})"
        raise UnreadableError(message, "call the function in Python to see the whole error") from error
    if not isinstance(frame, pd.DataFrame):
        raise UnreadableError(f"table.prepare: {reference} returned no pandas frame", "return one")
    return from_frame(reference, frame)


def _with_places(sheet: Sheet, file: Path, paths: Sequence[Path]) -> Sheet:
    """The sheet with columns of the file's name and of `name=value` in the names of its folders."""
    root = next((path for path in paths if path.is_dir() and file.is_relative_to(path)), file.parent)
    pairs = [part.split("=", 1) for part in file.relative_to(root).parent.parts if "=" in part]
    for name, value in [*pairs, (FILE_NAME, file.name)]:
        if name not in sheet.names:
            sheet.names.append(name)
            sheet.cells.append(pa.chunked_array([pa.array([value] * len(sheet.rows), pa.string())]))
    return sheet


def _join(source: Source, sheets: Sequence[Sheet]) -> OpenedTable | None:
    """The rows of all sheets; None, with problems, if one has other columns than the first."""
    names = [composed(name) for name in sheets[0].names]
    frames, failed = [], False
    for sheet in sheets:
        columns = [composed(name) for name in sheet.names]
        if columns != names and (sorted(columns) != sorted(names) or len(set(names)) < len(names)):
            message = f"has other columns than {sheets[0].label}: {len(set(columns) ^ set(names))} differ"
            advice = "files that are read as one table need the same header; join others with table.join"
            source.problem("other header", sheet.label, message, sheet.header_row, advice)
            failed = True
            continue
        order = range(len(names)) if columns == names else [columns.index(name) for name in names]
        frames.append(_as_frame(sheet, [sheet.cells[place] for place in order]))
    if failed:
        return None
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    frame.columns = pd.Index([*names, ROW, FILE])
    notes = [note for sheet in sheets for note in sheet.notes]
    if len(sheets) > 1:
        notes.append(f"{len(sheets):,} files or sheets with the same header are read as one table")
    return OpenedTable(frame, notes)


def _as_frame(sheet: Sheet, cells: list[pa.ChunkedArray[Any]]) -> pd.DataFrame:
    """The rows that are not blank, with their numbers; columns are numbered."""
    sheet.cells.clear()  # as large as the frame: each column goes once it is done
    columns: dict[int, pd.Series | np.ndarray | pd.Categorical] = {}
    blank = np.ones(len(sheet.rows), dtype=bool)
    for place in range(len(cells)):
        columns[place] = _strip(cells.pop(0))
        blank &= columns[place].isna().to_numpy()  # type: ignore[union-attr]
    columns[len(columns)] = sheet.rows
    frame = pd.DataFrame(columns)
    frame[len(columns)] = sheet.label
    return frame[~blank].reset_index(drop=True) if blank.any() else frame


def _strip(cells: pa.ChunkedArray[Any]) -> pd.Series:
    plain = pc.utf8_trim_whitespace(cells)
    text = pc.if_else(pc.equal(plain, pa.scalar("")), pa.scalar(None, pa.string()), plain).to_pandas()
    return text if pc.all(pc.string_is_ascii(plain)).as_py() is not False else text.str.normalize("NFC")
