"""Opens what a hospital has as one frame of strings, whatever program wrote it; the content tells the format."""

from __future__ import annotations

import gzip
import io
import re
import traceback
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.core.plugins.loading import load_module
from chestfed.data.sites.label_files import text as limits
from chestfed.data.sites.label_files.columns import (
    from_frame,
    from_objects,
    open_feather,
    open_parquet,
    parse_json,
)
from chestfed.data.sites.label_files.options import FileFormat
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import (
    FILE,
    ROW,
    TOO_LARGE,
    Choose,
    Sheet,
    UnreadableError,
    as_frame,
    composed,
    convert,
    unpacked,
)
from chestfed.data.sites.label_files.workbook import open_workbook

#: The column of the file's name, where several files are read as one table.
FILE_NAME: Final = "file_name"
_ENDINGS: Final = (
    *(".csv", ".tsv", ".tab", ".txt", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".feather", ".arrow"),
    *(".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
)
#: Beginnings of other programs' files, for which `prepare` is needed.
_BY_PREPARE: Final = {
    (b"SQLite format 3\0",): "an SQLite file",
    (b"<stata_dta>", b"\x71\x01\x01", b"\x72\x02\x01", b"\x73\x02\x01"): "a Stata file",
    (b"$FL2", b"$FL3"): "an SPSS file",
}
_MOST_FILES: Final = 10_000


@dataclass(frozen=True)
class OpenedTable:
    """A table as text.

    `frame` has a column of strings per column of the file, in its order, without outer blanks and with accented letters
    as single characters (NFC); an empty cell is missing. Names may be empty or repeated. `ROW` is the number of the row
    as the program of the file shows it, the header being row 1 in a format without one; `FILE` is the file's name.
    `headers` are the names of all columns, where only some were chosen.
    `notes` say how the file was read where it leaves that open.
    """

    frame: pd.DataFrame
    headers: list[str]
    notes: list[str] = field(default_factory=list)


def open_table(
    source: Source, paths: Sequence[Path], options: FileFormat, choose: Choose = lambda headers: headers
) -> OpenedTable | None:
    """The rows of the files, or of those in a folder, which have the same columns; None, with problems in the source.

    Several files have a further column `file_name`, and `name=value` in their folders is a column, as in partitioned
    parquet.
    """
    if options.prepare is not None:
        prepared = _run(source, paths[0], lambda: [_prepare(options.prepare or "", paths)])
        return None if prepared is None else _join(source, prepared, choose)
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
        opened = _run(source, file, lambda: _open_file(source, file, options, choose))  # noqa: B023
        failed |= opened is None
        for sheet in opened or []:
            sheets.append(sheet if len(files) == 1 else _with_places(sheet, file, paths))
    return None if failed else _join(source, sheets, choose)


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


def _open_file(source: Source, path: Path, options: FileFormat, choose: Choose) -> list[Sheet] | None:
    """The sheets of a file; None, with problems, or `UnreadableError`."""
    label = source.name(path)
    start = _read_start(path)
    if start.startswith(b"PAR1"):
        return [open_parquet(path, label)]
    if start.startswith((b"ARROW1", b"FEA1")):
        return [open_feather(path, label)]
    for beginnings, name in _BY_PREPARE.items():
        if start.startswith(beginnings):
            advice = "read it by a function of ten lines, which table.prepare names: docs/convert.md has them"
            raise UnreadableError(f"is {name}, which chestfed does not read by itself", advice)
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        data = unpacked(path)
        if start.startswith(b"PK"):
            _refuse_archive(data, path)
        return open_workbook(data, label, options.sheet, options.header_row)
    _refuse_foreign(path)
    sheet = _open_text(source, path, options, choose)
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


#: Beginnings of files that are no tables to this reader -> what they are, and the line of pandas that makes one.
_FOREIGN: Final = {
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!doctype html|<html|<table|<style|<meta)": (
        "is an HTML page, whatever its name ends with",
        "pd.read_html('labels.xls')[0].to_csv('labels.csv', index=False)",
    ),
    rb"(?s)\s*<\?xml.*urn:schemas-microsoft-com:office:spreadsheet": (
        "is a workbook in XML (SpreadsheetML)",
        "save it as .xlsx; or rows = [[c.text for c in r.iter('{*}Data')] for r in ET.parse(f).iter('{*}Row')]",
    ),
    rb"\s*<\?xml": ("is XML", "rows = [element.attrib for element in ET.parse('labels.xml').iter('image')]"),
    rb"(?s)\0{12}\xc2\xea\x81\x60|HEADER RECORD\*{7}LIB": (
        "is a SAS file",
        "pd.read_sas('labels.sas7bdat', encoding='latin-1').to_csv('labels.csv', index=False)",
    ),
}


def _refuse_foreign(path: Path) -> None:
    """Raise `UnreadableError` for files of other programs, with what converts them."""
    try:
        with path.open("rb") as file:
            start = file.read(2000).removeprefix(b"\xef\xbb\xbf")
    except OSError:  # named by the reader of text
        return
    for pattern, (message, line) in _FOREIGN.items():
        if re.match(pattern, start, re.IGNORECASE):
            raise UnreadableError(message, convert(line))


def _open_text(source: Source, path: Path, options: FileFormat, choose: Choose) -> Sheet | None:
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
    read = len(source.problems) == before or source.keep_going
    return source.cut(path, text, options, choose) if read else None


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
        if name not in (sheet.headers or sheet.names):
            sheet.names.append(name)
            sheet.headers += [name] if sheet.headers else []
            sheet.cells.append(pa.chunked_array([pa.array([value] * len(sheet.rows), pa.string())]))
    return sheet


def _join(source: Source, sheets: Sequence[Sheet], choose: Choose) -> OpenedTable | None:
    """The chosen columns of all sheets; None, with problems, if one has other columns than the first."""
    names = [composed(name) for name in sheets[0].headers or sheets[0].names]
    chosen = {*choose(names)}
    columns = [name for name in names if name in chosen]
    frames, failed = [], False
    for sheet in sheets:
        headers = [composed(name) for name in sheet.headers or sheet.names]
        if headers != names and (sorted(headers) != sorted(names) or len(set(names)) < len(names)):
            message = f"has other columns than {sheets[0].label}: {len(set(headers) ^ set(names))} differ"
            advice = "files that are read as one table need the same header; join others with table.join"
            source.problem("other header", sheet.label, message, sheet.header_row, advice)
            failed = True
            continue
        read = [composed(name) for name in sheet.names]
        places = [place for place, name in enumerate(read) if name in chosen]
        order = places if headers == names else [read.index(name) for name in columns]
        frames.append(as_frame(sheet, order))
    if failed:
        return None
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    frame.columns = pd.Index([*columns, ROW, FILE])
    notes = [note for sheet in sheets for note in sheet.notes]
    if len(sheets) > 1:
        notes.append(f"{len(sheets):,} files or sheets with the same header are read as one table")
    return OpenedTable(frame, names, notes)
