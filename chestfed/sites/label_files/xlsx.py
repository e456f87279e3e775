"""The cells of an Excel sheet as text, read row by row with the standard library alone.

An xlsx file is a zip of XML parts (ECMA-376, part 1, 18.2 to 18.4). Numbers come as they are stored: a date is the
number of its day. A formula, or the error of one, comes as an equals sign and is not computed.
"""

from __future__ import annotations

import posixpath
import string
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final
from xml.parsers import expat

_CHUNK: Final = 1 << 20
_DIGITS, _LETTERS = string.digits, string.ascii_uppercase
#: What Excel itself allows, and the largest part in bytes: a small file may claim any number of each.
_MOST_ROWS, _MOST_COLUMNS, _LARGEST_PART = 1 << 20, 1 << 14, 1 << 31


class XlsxError(Exception):
    """A file that is not xlsx, or is damaged. The message has no content of a cell."""


class Workbook:
    """An open workbook; use it in a `with` statement.

    Raises
    ------
    XlsxError
        Here and while rows are read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile):
            raise XlsxError("is not an xlsx file") from None
        try:
            (book,) = [part for kind, part in self._links("").values() if kind == "officeDocument"]
            links = self._links(book)
            listed = _Listed()
            self._parse(book, listed)
            #: Name of a sheet -> its part, in the order of the book.
            self.sheets = {
                name: links[link][1] for name, link in listed.sheets if links.get(link, ("", ""))[0] == "worksheet"
            }
            self._strings = [part for kind, part in links.values() if kind == "sharedStrings"]
            self._shared: list[str] | None = None
            #: Of the sheet whose rows were taken to the last: row and column where cells are merged -> the last row.
            self.merged: dict[tuple[int, int], int] = {}
        except (KeyError, ValueError):
            self._zip.close()
            raise XlsxError("is not an xlsx file") from None
        except XlsxError:
            self._zip.close()
            raise

    def __enter__(self) -> Workbook:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def rows(self, sheet: str, columns: Collection[int] | None = None) -> Iterator[tuple[int, dict[int, str]]]:
        """Number of each row that has cells, from 1, and their texts by column, from 0; empty cells are left out."""
        if self._shared is None:
            texts = _Strings()
            for part in self._strings:
                self._parse(part, texts)
            self._shared = texts.found
        cells = _Cells(self._shared, columns)
        self.merged = cells.merged
        for _ in self._chunks(self.sheets[sheet], cells):
            yield from cells.rows
            cells.rows.clear()

    def _links(self, part: str) -> dict[str, tuple[str, str]]:
        """Id of each relation of a part -> the last word of its type, and the part that it leads to."""
        folder, name = posixpath.split(part)
        links = _Links(folder)
        self._parse(posixpath.join(folder, "_rels", f"{name}.rels"), links)
        return links.found

    def _parse(self, part: str, handler: _Handler) -> None:
        for _ in self._chunks(part, handler):
            pass

    def _chunks(self, part: str, handler: _Handler) -> Iterator[None]:
        """Parse a part; stops after each piece of it."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = handler.start
        parser.EndElementHandler = handler.end
        parser.CharacterDataHandler = handler.text
        parser.StartDoctypeDeclHandler = _refuse  # entities of its own can grow without bound
        try:
            with self._zip.open(part) as file:
                for piece in _pieces(file):
                    parser.Parse(piece, not piece)
                    yield
        except (expat.ExpatError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError):
            raise XlsxError("is damaged") from None
        except (KeyError, ValueError, IndexError):
            raise XlsxError("is not an xlsx file, or is damaged") from None


def fill_down(rows: Sequence[tuple[int, dict[int, str]]], merged: Mapping[tuple[int, int], int]) -> Counter[int]:
    """Copy the text of cells merged over several rows into the rows below; returns how many cells by column."""
    filled: Counter[int] = Counter()
    columns = {column for _, column in merged}
    running: dict[int, tuple[int, str]] = {}
    for number, row in rows:
        for column in columns:
            if column in row:
                running[column] = (merged.get((number, column), 0), row[column])
            elif number <= running.get(column, (0, ""))[0]:
                row[column] = running[column][1]
                filled[column] += 1
    return filled


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    total = 0
    while piece := file.read(_CHUNK):
        total += len(piece)
        if total > _LARGEST_PART:
            raise XlsxError(f"is larger than {_LARGEST_PART:,} bytes")
        yield piece
    yield b""


def _refuse(*_: object) -> None:
    raise ValueError


class _Handler:
    """Takes the elements of a part by their local names."""

    def start(self, name: str, given: dict[str, Any]) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def text(self, data: str) -> None:
        """Text between."""


class _Links(_Handler):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.found: dict[str, tuple[str, str]] = {}

    def start(self, name: str, given: dict[str, Any]) -> None:
        if _local(name) == "Relationship" and given.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", self._folder, given["Target"]))
            self.found[given["Id"]] = (given["Type"].rsplit("/", 1)[-1], target.lstrip("/"))


class _Listed(_Handler):
    def __init__(self) -> None:
        self.sheets: list[tuple[str, str]] = []

    def start(self, name: str, given: dict[str, Any]) -> None:
        if _local(name) == "sheet":
            links = [value for key, value in given.items() if _local(key) == "id"]
            self.sheets.append((given["name"], links[0]))


class _Strings(_Handler):
    """The texts that cells share; readings of characters (`rPh`) do not belong to them."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._parts: list[str] = []
        self._open = False
        self._aside = False

    def start(self, name: str, given: dict[str, Any]) -> None:
        name = _local(name)
        self._open = name == "t" and not self._aside
        self._aside = self._aside or name == "rPh"

    def end(self, name: str) -> None:
        name = _local(name)
        self._open = False
        if name == "rPh":
            self._aside = False
        elif name == "si":
            self.found.append("".join(self._parts))
            self._parts.clear()

    def text(self, data: str) -> None:
        if self._open:
            self._parts.append(data)


class _Cells(_Handler):
    """The cells of a sheet; `rows` are those that are complete."""

    def __init__(self, shared: list[str], columns: Collection[int] | None) -> None:
        self.rows: list[tuple[int, dict[int, str]]] = []
        self._shared, self._wanted = shared, columns
        self._number, self._column = 0, -1
        self._row: dict[int, str] = {}
        self._kind = "n"
        self._parts: list[str] = []
        self._open = self._aside = self._formula = False
        self._places: dict[str, int] = {}
        self.merged: dict[tuple[int, int], int] = {}

    def start(self, name: str, given: dict[str, Any]) -> None:
        if ":" in name:
            name = _local(name)
        if name == "c":
            at = given.get("r")
            self._column = self._column + 1 if at is None else self._place(at.rstrip(_DIGITS))
            if not 0 <= self._column < _MOST_COLUMNS:
                raise ValueError
            self._kind, self._formula = given.get("t", "n"), False
            self._parts.clear()
        elif name in ("v", "t"):
            self._open = not self._aside
        elif name == "f":
            self._formula = True
        elif name == "rPh":
            self._aside = True
        elif name == "mergeCell":
            self._merge(*given["ref"].partition(":")[::2])
        elif name == "row":
            self._number = int(given.get("r", self._number + 1))
            if not 0 < self._number <= _MOST_ROWS:
                raise ValueError
            self._row, self._column = {}, -1

    def end(self, name: str) -> None:
        if ":" in name:
            name = _local(name)
        if name in ("v", "t"):
            self._open = False
        elif name == "c":
            if self._wanted is None or self._column in self._wanted:
                text = self._value("".join(self._parts))
                if text:
                    self._row[self._column] = text
        elif name == "rPh":
            self._aside = False
        elif name == "row" and self._row:
            self.rows.append((self._number, self._row))

    def text(self, data: str) -> None:
        if self._open:
            self._parts.append(data)

    def _value(self, text: str) -> str:
        if self._formula or self._kind == "e":
            return "="
        if self._kind == "s":
            return self._shared[int(text)] if text else ""
        if self._kind == "b":
            return "true" if text == "1" else "false"
        if self._kind == "n" and text and not text.isdigit():
            number = float(text)
            return str(int(number)) if number.is_integer() else text
        return text

    def _merge(self, first: str, last: str) -> None:
        """An area such as A2 to A5, of which the first column counts."""
        column = self._place(first.rstrip(_DIGITS))
        top, bottom = (int(place.lstrip(_LETTERS)) for place in (first, last or first))
        if bottom > top and (self._wanted is None or column in self._wanted):
            self.merged[top, column] = bottom

    def _place(self, letters: str) -> int:
        """0 for A, 26 for AA."""
        if letters not in self._places:
            place = 0
            for letter in letters:
                place = 26 * place + ord(letter) - ord("A") + 1
            self._places[letters] = place - 1
        return self._places[letters]


def _local(name: str) -> str:
    return name.rsplit(":", 1)[-1]
