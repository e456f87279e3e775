"""The bytes and the text of label files: limits, gzip, encodings, rows of delimited text."""

from __future__ import annotations

import csv
import gzip
import io
import re
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from chestfed.core.errors import Problem, nearest
from chestfed.data.sites.label_files.encodings import as_utf8, is_utf16
from chestfed.data.sites.label_files.options import FileFormat

#: Bytes of a label file, decompressed and decoded: a small file may come to any number.
LARGEST = 256_000_000
#: Message about a larger one, and advice.
TOO_LARGE = f"is larger than {LARGEST:,} bytes", "label files are never this large; check the path"
#: The row numbers beside the columns of a table, which may have a column `row` too.
ROW: Final = "\0row"
#: The name of each row's file, with its sheet, for messages.
FILE: Final = "\0file"
DELIMITERS: Final = (",", ";", "\t", "|")
_START: Final = 1 << 20  # bytes that delimiter and header are looked for in
#: Empty cells as programs write them; in a column that has really empty cells too, they are words.
_NULLS: Final = ["nan", "NaN"]


def convert(line: str) -> str:
    """Advice for a form that is not read: a line of pandas, and the page with more of them."""
    return f"convert it with pandas: {line} (docs/convert.md)"


class UnreadableError(Exception):
    """A file whose bytes cannot be read, or are not text; `advice` says what to do."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


def unpacked(path: Path) -> bytes:
    """The bytes of a file, decompressed if it is gzip.

    Raises `UnreadableError` if it cannot be read, is damaged, or larger than any label file.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UnreadableError(*TOO_LARGE)
        data = path.read_bytes()
        return _gunzip(data) if data[:2] == b"\x1f\x8b" else data
    except FileNotFoundError:
        raise UnreadableError(f"no such file: {path}", "check the path") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableError(f"is damaged or truncated: {error}", "download the file again") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}", "check the file and its permissions") from None


def _gunzip(data: bytes) -> bytes:
    """Decompressed bytes. Where the file states that they are too many, they are counted and not kept."""
    stated, total, blocks = int.from_bytes(data[-4:], "little"), 0, []
    with gzip.open(io.BytesIO(data)) as file:
        while block := file.read(1 << 20):
            total += len(block)
            if total > LARGEST:
                raise UnreadableError(*TOO_LARGE)
            blocks += [block] if stated <= LARGEST else []
    return b"".join(blocks)


def read_text(path: Path, encoding: str | None) -> tuple[bytes, str]:
    """The text as UTF-8 with line feeds, and its encoding: the given one, or the detected.

    Raises `UnreadableError`, or `WrongEncoding` as `as_utf8` does.
    """
    data = unpacked(path)
    if encoding in (None, "utf-8") and b"\x00" not in data:
        bare = data.removeprefix(b"\xef\xbb\xbf")
        try:
            bare.decode()
            return _with_line_feeds(bare), "utf-8"
        except UnicodeDecodeError:
            pass
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise UnreadableError("is not text but a zip file or a workbook", "unpack the archive, or save it as CSV")
    wide = is_utf16(data) or (encoding or "").startswith(("utf-16", "utf-32"))
    text, name = as_utf8(data, encoding) if wide or b"\x00" not in data else (data, "")
    if b"\x00" in text:
        raise UnreadableError("is not text", "name a text file; if it is UTF-16 without a mark, set table.encoding")
    return _with_line_feeds(text), name


def _with_line_feeds(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


#: A first line such as `sep=;`, which Excel writes and does not show.
_SEPARATOR: Final = re.compile(rb"\"?sep=([^\r\n\"\x80-\xff])\"?\r?\n", re.IGNORECASE)
_SNIFFED: Final = 100  # rows
#: Blanks between columns of fixed width.
_GAP: Final = re.compile(r"\S {2,}\S+.* {2,}\S")


@dataclass
class Sheet:
    """One table as text: a string array `[rows]` per column, in the order of `names`, which may repeat or be empty.

    `label` names it in messages. `rows` are the numbers of its rows in the file, int64 `[rows]`; the header is in
    `header_row`, 1 in a format without one.
    """

    label: str
    names: list[str]
    cells: list[pa.ChunkedArray[Any]]
    rows: np.ndarray
    header_row: int = 1
    notes: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)  #: all names of the file, where not all columns are read


#: Which of a table's columns are read, given the names of all.
Choose = Callable[[Sequence[str]], Collection[str]]


class MalformedError(Exception):
    """Text that cannot be cut into rows and cells; `row` is where, if that is known."""

    def __init__(self, message: str, row: int | None) -> None:
        super().__init__(message)
        self.row = row


def read_header(text: bytes) -> list[str]:
    """The names of the columns of a delimited text whose first row has them; none if its delimiter is ambiguous."""
    start = text[:_START].decode("utf-8", errors="ignore")
    delimiter = _sniff(start, 0)
    return [] if delimiter is None else [composed(name.strip()) for name in first_cells(start, delimiter)]


def cut_text(
    label: str, text: bytes, options: FileFormat, choose: Choose, *, published: bool = False
) -> tuple[Sheet | None, list[Problem]]:
    """The chosen columns of a delimited text, and its problems: rows of another width, or why there is no sheet.

    In a `published` file `nan` is always an empty cell.
    """
    stated = _SEPARATOR.match(text)
    text = text if stated is None else text[stated.end() :]
    above = options.header_row - 1
    start = text[:_START].decode("utf-8", errors="ignore")
    delimiter = options.delimiter or (stated and stated[1].decode("latin-1")) or _sniff(start, above)
    if delimiter is None:
        message = "the delimiter is ambiguous: " + " and ".join(map(quote_delimiter, DELIMITERS)) + " fit several ways"
        advice = "set table.delimiter in the site's YAML"
        return None, [Problem("wrong delimiter", label, message, None, advice)]
    text = _skip_rows(text, above, delimiter)
    start = text[:_START].decode("utf-8", errors="ignore")
    names = [name.strip() for name in first_cells(start, delimiter)]
    if not any(names):
        message = f"row {options.header_row} is not a header" if above else "has no header line"
        advice = "set table.header_row to the row with the column names" if above else "export the table again"
        return None, [Problem("empty file", label, message, None, advice)]
    if len(names) == 1 and sum(bool(_GAP.search(line)) for line in start.splitlines()[:9]) > 2:
        advice = convert("pd.read_fwf('labels.txt', dtype=str).to_csv('labels.csv', index=False)")
        return None, [Problem("wrong delimiter", label, "has columns of fixed width, not delimited ones", None, advice)]
    if len(names) == 1 and (problem := _find_other_delimiter(label, start, delimiter)):
        return None, [problem]
    names, width = _fit_header(start, names, delimiter)
    chosen = {*choose([composed(name) for name in names])}
    places = [place for place, name in enumerate(names) if composed(name) in chosen]
    try:
        columns, rows, ragged = _read_cells(text, width, places, delimiter, published)
    except MalformedError as error:
        advice = "export or download the file again; a quotation mark in a cell is doubled, and the cell quoted"
        row = None if error.row is None else error.row + above
        return None, [Problem("malformed CSV", label, str(error), row, advice)]
    problems = [_describe_ragged(label, line, len(names), delimiter, above) for line in ragged]
    chosen_names = [names[place] for place in places]
    return Sheet(label, chosen_names, columns, rows + above, options.header_row, [], names), problems


def _find_other_delimiter(label: str, start: str, delimiter: str) -> Problem | None:
    """The problem of a table that has one column only because it is cut at a wrong sign, or its rows are quoted."""
    lines = [line for line in start.splitlines() if line.strip()][:2]
    for other in DELIMITERS:
        counts = [line.count(other) for line in lines]
        if counts[0] and counts == [counts[0]] * 2:
            signs = f"{quote_delimiter(delimiter)}, {counts[0] + 1} by {quote_delimiter(other)}"
            text = f"has one column if separated by {signs}"
            quoted = len(first_cells(start, other)) == 1
            advice = f"set table.delimiter in the site's YAML, to {quote_delimiter(other)}"
            advice = "export the table again, without quotation marks around whole rows" if quoted else advice
            return Problem("wrong delimiter", label, text, None, advice)
    return None


def _fit_header(start: str, names: list[str], delimiter: str) -> tuple[list[str], int]:
    """The names of the columns and the number of cells per row, which is that of the header, as the first row has it.

    The first row may have unnamed empty cells at its end, or lack them; and a name such as `Size[x,y]` two columns.
    """
    rows = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
    try:
        next(rows, None)
        first = next((cells for cells in rows if cells), names)
    except csv.Error:  # a cell of more than 128 KiB
        return names, len(names)
    parts = [part.strip() for name in names for part in name.split(delimiter)]
    names = parts if len(parts) == len(first) else names
    named, filled = (max((n for n, cell in enumerate(cells, 1) if cell), default=0) for cells in (names, first))
    return names, len(first) if named <= len(first) and filled <= len(names) else len(names)


def _read_cells(
    text: bytes, width: int, places: Sequence[int], delimiter: str, published: bool
) -> tuple[list[pa.ChunkedArray[Any]], np.ndarray, list[pa.csv.InvalidRow]]:
    """The columns at these places of a text with `width` columns, the numbers of their rows, and rows of another width.

    Raises `MalformedError` if it is not CSV, or rows would be lost in a cell whose quotation mark is not closed.
    """
    ragged: list[pa.csv.InvalidRow] = []

    def skip(row: pa.csv.InvalidRow) -> Literal["skip"]:
        ragged.append(row)
        return "skip"

    names, nan = [f"c{place}" for place in range(width)], not published and (b"nan" in text or b"NaN" in text)
    try:
        table = pa.csv.read_csv(
            io.BytesIO(text),
            pa.csv.ReadOptions(use_threads=False, block_size=1 << 24, column_names=names, skip_rows_after_names=1),
            pa.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=skip
            ),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                null_values=[""] if nan else [*_NULLS, ""],
                include_columns=[names[place] for place in places],
            ),
        )
    except pa.ArrowInvalid:  # its message may quote a row
        raise MalformedError("cannot be read as rows and cells", None) from None
    lines, rows = text.count(b"\n") + (not text.endswith(b"\n")), 1 + table.num_rows + len(ragged)
    if (lines > rows or text.count(b'"') % 2) and (row := _find_open_quote(text, delimiter.encode())) is not None:
        raise MalformedError("a quotation mark opens a cell that holds the rows below it and is not closed", row)
    numbers = [line.number or 0 for line in ragged]  # None only with several threads
    columns = [_empty_nulls(cells) for cells in table.columns] if nan else table.columns
    return columns, row_numbers(table.num_rows, numbers), ragged


def _empty_nulls(cells: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """The cells with `nan` empty, unless others are really empty: then it is a word of its own, for no answer."""
    if cells.null_count:
        return cells
    words: Any = pc.is_in(cells, value_set=pa.array(_NULLS))
    return pc.if_else(words, pa.scalar(None, pa.string()), cells) if pc.any(words).as_py() else cells


def empty_nan(frame: pd.DataFrame, but: Collection[str]) -> pd.DataFrame:
    """The frame with `nan` empty in all columns `but` those of labels, where it is a word for no answer.

    Columns that share a name are left as they are: they cannot be named.
    """
    headers = [*map(str, frame)]
    names = [name for name in headers if headers.count(name) == 1 and name not in (*but, ROW, FILE)]
    names = [name for name in names if frame[name].isin(_NULLS).any()]
    return frame.assign(**{name: frame[name].mask(frame[name].isin(_NULLS), None) for name in names})


def _find_open_quote(text: bytes, delimiter: bytes) -> int | None:
    """The row of a quoted cell over several lines that never ends, or not where a cell does; pyarrow accepts both."""
    inside, sign = 0, re.escape(delimiter)
    for cell in re.finditer(rb'(?:\A|[\n%b])"((?>[^"]*(?:""[^"]*)*))("(?=[\n%b]|\Z))?' % (sign, sign), text):
        breaks = cell[1].count(b"\n")
        if breaks and cell[2] is None:
            return text.count(b"\n", 0, cell.start(1)) - inside + 1
        inside += breaks
    return None


def _describe_ragged(label: str, line: Any, width: int, delimiter: str, above: int) -> Problem:
    """The problem of a row whose number of cells is not that of the header, without its content."""
    kind, text = "malformed row", f"{line.actual_columns} cells where the header has {width}"
    advice = "fix or remove the row; cells that contain the delimiter must be quoted; a truncated file ends like this"
    other = next((d for d in DELIMITERS if d != delimiter and len(first_cells(line.text, d)) == width > 1), None)
    if other is not None:
        kind, text = "mixed delimiters", f"{text}; it has {width} if separated by {quote_delimiter(other)}"
        advice = "the file has rows with different delimiters: export it again"
    return Problem(kind, label, text, (line.number or 0) + above, advice)


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


def first_cells(text: str, delimiter: str) -> list[str]:
    """The cells of the first row; none if it cannot be parsed."""
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error:  # a cell of more than 128 KiB
        return []


def row_numbers(count: int, skipped: Sequence[int] = ()) -> np.ndarray:
    """Numbers int64 [count] of the rows kept: the header is row 1, `skipped` rows are left out."""
    lines = np.arange(2, 2 + count + len(skipped))
    return lines[~np.isin(lines, skipped)] if skipped else lines


def quote_delimiter(delimiter: str) -> str:
    """A delimiter as messages show it."""
    return "a tab" if delimiter == "\t" else f"'{delimiter}'"


def mention_nearest(name: str, names: Iterable[str]) -> str:
    """A remark on the closest name, ignoring case; empty if none is close."""
    close = nearest(name, names)
    return f" (the nearest is '{close}')" if close else ""


def as_frame(sheet: Sheet, order: Sequence[int]) -> pd.DataFrame:
    """The columns at these places, `ROW` and `FILE`, of the rows that are not blank; columns are numbered."""
    cells = [sheet.cells[place] for place in order]
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


def composed(text: str) -> str:
    """The text with each accented letter as one character (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)
