"""A site's folder as a reader sees it: finds label files, reads them strictly, collects problems."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from chestfed.core.errors import Problem
from chestfed.sites.label_files.encodings import WrongEncoding, as_utf8, is_utf16

if TYPE_CHECKING:
    from chestfed.sites.config import SiteConfig

#: Bytes of a label file, decompressed and decoded: a small file may come to any number.
LARGEST = 256_000_000
#: What is wrong with a larger one, and what to do.
TOO_LARGE = f"is larger than {LARGEST:,} bytes", "label files are never this large; check the path"
#: The kind of problem of a cell that is a formula.
FORMULA = "formula cell"
#: The row numbers beside the columns of a hospital's own table, one of which may be called `row`.
ROW = "\0row"
_NULLS = ["", "nan", "NaN"]
_NAMED = 3  # files, in a message about many
DELIMITERS = (",", ";", "\t", "|")


@dataclass
class Source:
    """Where a reader reads from, and the problems found on the way.

    `labels_file` replaces the site's label files; then files that belong to it (splits, metadata) are looked for
    beside it, and no image is looked for. `progress(done, total)` counts headers where images are read for labels.
    With `keep_going` a file in the wrong encoding is read as far as possible, to find its other problems. `remarks` say
    how a file was interpreted where its cells alone leave it open. `not_understood` counts labels that are missing
    because nobody knows what a cell means: reason -> disease -> images.
    """

    config: SiteConfig
    root: Path
    labels_file: Path | None = None
    problems: list[Problem] = field(default_factory=list)
    progress: Callable[[int, int], None] | None = None
    keep_going: bool = False
    remarks: list[str] = field(default_factory=list)
    not_understood: dict[str, Counter[str]] = field(default_factory=dict)
    last_opened: str = field(default="", init=False)  #: the name of the text file that was opened last
    _held: tuple[Path, bytes | None] | None = field(default=None, init=False, repr=False)

    @property
    def folder(self) -> Path:
        """The folder that label files are looked for in."""
        return self.root if self.labels_file is None else self.labels_file.parent

    @property
    def has_images(self) -> bool:
        """Whether folders of images may be listed."""
        return self.labels_file is None

    def problem(self, kind: str, file: str, message: str, row: int | None = None, advice: str = "") -> None:
        """Note a problem; reading continues to find the others."""
        self.problems.append(Problem(kind, file, message, row, advice))

    def unread(self, reason: str, disease: str, number: int) -> None:
        """Count labels that are missing because a cell is not understood; the reason quotes none."""
        if number:
            self.not_understood.setdefault(reason, Counter())[disease] += number

    def name(self, path: Path) -> str:
        """The name of a file in messages: relative to the site's root."""
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else path.name

    def find(self, role: str, *, required: bool = True, folder: bool = False) -> Path | None:
        """The file of a role: the first pattern of `label_files` that matches; None, with a problem, if none does.

        With `folder`, a folder of files may be named too.
        """
        patterns = self.config.label_files.get(role, [])
        for pattern in patterns:
            paths = [self.folder / pattern] if folder and (self.folder / pattern).is_dir() else self._matches(pattern)
            if len(paths) > 1:
                names = ", ".join(self.name(path) for path in paths[:_NAMED])
                more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
                all_of_them = ", or the folder of all of them" if folder else ""
                advice = f"name the one to use in label_files.{role} of the site's YAML{all_of_them}"
                self.problem("ambiguous label file", pattern, f"several files match: {names}{more}", advice=advice)
                return None
            if paths:
                return paths[0]
        if required:
            self._missing(role, f"no {role} file")
        return None

    def find_all(self, role: str) -> list[Path]:
        """All files that match any pattern of a role, sorted by path; empty, with a problem, if none does."""
        patterns = self.config.label_files.get(role, [])
        paths = sorted({path for pattern in patterns for path in self._matches(pattern)})
        if not paths:
            self._missing(role, f"no {role} files")
        return paths

    def _missing(self, role: str, what: str) -> None:
        patterns = self.config.label_files.get(role, [])
        text = f"{what} in {self.folder}; looked for {', '.join(patterns) or 'nothing'} (also as .gz)"
        advice = f"set the site's root to the folder of the release, or name the file in label_files.{role} of its YAML"
        self.problem("missing file", patterns[0] if patterns else role, text, advice=advice)

    def read(self, path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> pd.DataFrame | None:
        """The named columns of a CSV as strings (blank is missing), and `row`, the line in the file.

        Optional columns that the file lacks come out blank. None, with a problem, if the file cannot be used.
        """
        text = self.text(path)
        if text is None:
            return None
        names = _header(text)
        if not names:
            self.problem("empty file", self.name(path), "has no header line", advice="download the file again")
            return None
        advice = "check that this is the release's own label file, unedited"
        if not self.has_columns(path, names, required, optional, advice=advice):
            return None
        return self._parse(path, text, names, required, optional)

    def has_columns(
        self,
        path: Path,
        header: Sequence[str],
        required: Sequence[str],
        optional: Sequence[str] = (),
        *,
        row: int = 1,
        advice: str,
    ) -> bool:
        """Whether a header, in this row of the file, has the columns, each of them once; else that is a problem."""
        lacking = [name for name in required if name not in header]
        # The names of the others are shown only if this is a header: it may be the first patient.
        others = f"; the columns are {', '.join(filter(None, header))}" if len(lacking) < len(required) else ""
        for name in lacking:
            text = f"no column '{name}'{nearest(name, header)} among {len(header)}{others}"
            self.problem("missing column", self.name(path), text, row, advice)
        repeated = [name for name in dict.fromkeys([*required, *optional]) if header.count(name) > 1]
        for name in repeated:
            text = f"{header.count(name)} columns are named '{name}'"
            self.problem("duplicate column", self.name(path), text, row, "rename or remove all but one of them")
        return not lacking and not repeated

    def read_role(
        self, role: str, required: Sequence[str], optional: Sequence[str] = (), *, given: Path | None = None
    ) -> tuple[Path, pd.DataFrame] | None:
        """The file of a role, or the given one, and its columns as `read` has them; None, with a problem, without."""
        path = given or self.find(role)
        frame = None if path is None else self.read(path, required, optional)
        return None if path is None or frame is None else (path, frame)

    def header(self, path: Path) -> list[str]:
        """Column names of a CSV; empty, with a problem, if it cannot be read. The text is kept for `read`."""
        text = self.text(path)
        self._held = (path, text)
        return [] if text is None else _header(text)

    def lines(self, path: Path) -> list[str]:
        """The lines of a text file, stripped; blank ones are empty strings."""
        text = self.text(path)
        return [] if text is None else [line.strip() for line in text.decode("utf-8").splitlines()]

    def bad_rows(
        self, path: Path, kind: str, bad: np.ndarray, rows: np.ndarray, tell: str | Callable[[int], str], advice: str
    ) -> None:
        """Note one problem per place where `bad`; `tell` is the message, or a function of the place."""
        for place in np.flatnonzero(bad).tolist():
            text = tell if isinstance(tell, str) else tell(place)
            self.problem(kind, self.name(path), text, row=int(rows[place]), advice=advice)

    def _matches(self, pattern: str) -> list[Path]:
        """Files that match, or are called just so (`labels[1].csv`); a plain file wins over its compressed twin."""
        bare = pattern.removesuffix(".gz")
        names = (bare, f"{bare}.gz")
        paths = [path for name in names if (path := self.folder / name).is_file()]
        paths = paths or sorted({path for name in names for path in self.folder.glob(name) if path.is_file()})
        return [path for path in paths if not (path.suffix == ".gz" and path.with_suffix("") in paths)]

    def text(self, path: Path, encoding: str | None = "utf-8") -> bytes | None:
        """A file's text as UTF-8 bytes without BOM, decompressed if it is gzip, whatever its name.

        With an encoding (a name that Python knows) no other is accepted; with None it is detected, and noted.
        """
        if self._held is not None and self._held[0] == path and encoding == "utf-8":
            text, self._held = self._held[1], None
            return text
        self.last_opened = self.name(path)
        try:
            text, detected = _decoded(path, encoding)
        except WrongEncoding as error:
            for line in (error.lines if self.keep_going else ()) or (None,):
                self.problem("wrong encoding", self.name(path), str(error), line, error.advice)
            return error.text if self.keep_going else None
        except UnreadableError as error:
            self.problem("unreadable file", self.name(path), str(error), advice=error.advice)
            return None
        if encoding is None and detected not in ("utf-8", "utf-16"):
            self.remarks.append(f"{self.name(path)} is read as {detected}, which was detected, not declared")
        return text

    def clean(self, path: Path, frame: pd.DataFrame, columns: Sequence[str], rows: str, *, empty: str) -> pd.DataFrame:
        """The rows with a cell in one of these columns; `rows` is the column of their numbers.

        A cell that is a formula is a problem, and emptied, so that it causes no second one. So is a file without any
        such row, with `empty` as its advice, unless that is empty.
        """
        frame = frame[frame[list(columns)].notna().any(axis=1).to_numpy()].reset_index(drop=True)
        if frame.empty and empty:
            self.problem("empty file", self.name(path), "has a header and no rows", advice=empty)
        advice = "paste the column as values and export the table again; formulas are not evaluated"
        for name in columns:
            bad = frame[name].str.startswith("=").fillna(False).to_numpy(dtype=bool)
            if bad.any():
                text = f"'{name}' is a formula or the error value of one"
                self.bad_rows(path, FORMULA, bad, frame[rows].to_numpy(), text, advice)
                frame[name] = frame[name].mask(bad, None)
        return frame

    def _parse(
        self, path: Path, text: bytes, names: list[str], required: Sequence[str], optional: Sequence[str]
    ) -> pd.DataFrame | None:
        kept = [column for column in dict.fromkeys([*required, *optional]) if column in names]
        places = [names.index(column) for column in kept]
        width = _width(text, names)
        before, read = len(self.problems), self.csv_cells(path, text, width, places)
        if read is None:
            return None
        table, rows = read
        frame = pd.DataFrame(
            {column: table[f"c{place}"].to_pandas() for column, place in zip(kept, places, strict=True)}
        )
        frame["row"] = rows
        empty = "download the file again" if len(self.problems) == before else ""
        frame = self.clean(path, frame, kept, "row", empty=empty)
        for column in optional:
            if column not in frame:
                frame[column] = pd.Series(None, index=frame.index, dtype=object)
        return frame

    def csv_cells(
        self, path: Path, text: bytes, width: int, places: Sequence[int], delimiter: str = ",", above: int = 0
    ) -> tuple[pa.Table, np.ndarray] | None:
        """The columns at these places as strings, named `c0`, `c1`, ..., and their row numbers, with `above` rows more.

        Rows that have not `width` cells are problems. None, with a problem, if the text is not CSV, or rows would be
        lost in a cell whose quotation mark is not closed.
        """
        ragged: list[pa.csv.InvalidRow] = []

        def note(row: pa.csv.InvalidRow) -> Literal["skip"]:
            ragged.append(row)
            return "skip"

        names = [f"c{place}" for place in range(width)]
        row, wrong = None, "cannot be read as rows and cells"  # pyarrow's message may quote a row
        try:
            table: pa.Table | None = pa.csv.read_csv(
                io.BytesIO(text),
                pa.csv.ReadOptions(use_threads=False, block_size=1 << 24, column_names=names, skip_rows_after_names=1),
                pa.csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=note
                ),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=True,
                    null_values=_NULLS,
                    include_columns=[names[place] for place in places],
                ),
            )
        except pa.ArrowInvalid:
            table = None
        else:
            assert table is not None
            lines, rows = text.count(b"\n") + (not text.endswith(b"\n")), 1 + table.num_rows + len(ragged)
            if lines > rows or text.count(b'"') % 2:
                row = _open_quote(text, delimiter.encode())
                wrong = "a quotation mark opens a cell that holds the rows below it and is not closed"
        if table is None or row is not None:
            advice = "export or download the file again; a quotation mark in a cell is doubled, and the cell quoted"
            self.problem("malformed CSV", self.name(path), wrong, None if row is None else row + above, advice)
            return None
        numbers = [line.number or 0 for line in ragged]  # None only with several threads
        for line, number in zip(ragged, numbers, strict=True):
            self._tell_ragged(path, line, number + above, width, delimiter)
        return table, row_numbers(table.num_rows, numbers) + above

    def _tell_ragged(self, path: Path, line: Any, row: int, width: int, delimiter: str) -> None:
        """Report a row whose number of cells is not that of the header, without its content."""
        kind, text = "malformed row", f"{line.actual_columns} cells where the header has {width}"
        advice = (
            "fix or remove the row; cells that contain the delimiter must be quoted; a truncated file ends like this"
        )
        other = next((d for d in DELIMITERS if d != delimiter and len(first_cells(line.text, d)) == width > 1), None)
        if other is not None:
            kind, text = "mixed delimiters", f"{text}; it has {width} if separated by {shown(other)}"
            advice = "the file has rows with different delimiters: export it again"
        self.problem(kind, self.name(path), text, row, advice)


def first_cells(text: str, delimiter: str) -> list[str]:
    """The cells of the first row; none if it cannot be parsed."""
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error:  # a cell of more than 128 KiB
        return []


def shown(delimiter: str) -> str:
    """A delimiter in a message."""
    return "a tab" if delimiter == "\t" else f"'{delimiter}'"


def nearest(name: str, names: Iterable[str]) -> str:
    """A remark on the closest name, ignoring case; empty if none is close."""
    by_letters = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), by_letters, n=1, cutoff=0.6)
    return f" (the nearest is '{by_letters[close[0]]}')" if close else ""


def _open_quote(text: bytes, delimiter: bytes) -> int | None:
    """The row of a quoted cell over several lines that never ends, or not where a cell does; pyarrow accepts both."""
    inside, sign = 0, re.escape(delimiter)
    for cell in re.finditer(rb'(?:\A|[\n%b])"((?>[^"]*(?:""[^"]*)*))("(?=[\n%b]|\Z))?' % (sign, sign), text):
        breaks = cell[1].count(b"\n")
        if breaks and cell[2] is None:
            return text.count(b"\n", 0, cell.start(1)) - inside + 1
        inside += breaks
    return None


def row_numbers(count: int, skipped: Sequence[int] = ()) -> np.ndarray:
    """Numbers int64 [count] of the rows kept: the header is row 1, `skipped` rows are left out."""
    lines = np.arange(2, 2 + count + len(skipped))
    return lines[~np.isin(lines, skipped)] if skipped else lines


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


def _decoded(path: Path, encoding: str | None) -> tuple[bytes, str]:
    data = unpacked(path)
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise UnreadableError("is not text but a zip file or a workbook", "unpack the archive, or save it as CSV")
    wide = is_utf16(data) or (encoding or "").startswith(("utf-16", "utf-32"))
    text, name = as_utf8(data, encoding) if wide or b"\x00" not in data else (data, "")
    if b"\x00" in text:
        raise UnreadableError("is not text", "name a text file; if it is UTF-16 without a mark, set table.encoding")
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), name


def _header(text: bytes) -> list[str]:
    """Names of the columns. A name that contains commas, such as `A[b,c]`, counts as that many cells, quoted or not."""
    line = text[: text.find(b"\n")] if b"\n" in text else text
    return [piece.strip() for cell in first_cells(line.decode("utf-8"), ",") for piece in cell.split(",")]


def _width(text: bytes, names: list[str]) -> int:
    """Cells per row: as in the header, unless one of the two has unnamed empty cells at its end."""
    lines = csv.reader(io.StringIO(text[:1_000_000].decode("utf-8", errors="ignore")))
    try:
        next(lines, None)
        first = next((cells for cells in lines if cells), names)
    except csv.Error:  # a cell of more than 128 KiB
        return len(names)
    named = len(names) - next((place for place, name in enumerate(reversed(names)) if name), 0)
    filled = len(first) - next((place for place, cell in enumerate(reversed(first)) if cell), 0)
    return len(first) if named <= len(first) and filled <= len(names) else len(names)
