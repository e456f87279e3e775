"""The sheets of a workbook (xlsx, xlsm, xlsb, xls, ods) as columns of strings, by calamine.

calamine reads the value that a formula had when the file was saved. Where there is none, or an error, it gives an empty
cell: these cells are looked for, and refused as formulas. A date is written as 2024-02-29.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum

from chestfed.core.console import plural
from chestfed.data.sites.label_files import text as limits
from chestfed.data.sites.label_files.columns import as_text
from chestfed.data.sites.label_files.error_cells import find_xls_errors, find_xlsb_errors
from chestfed.data.sites.label_files.text import TOO_LARGE, Sheet, UnreadableError, mention_nearest

_AGAIN: Final = "save it as xlsx without a password, or as CSV"
#: Limits of Excel itself: a small file may name any place.
_MOST_ROWS, _MOST_COLUMNS = 1 << 20, 1 << 14
_MOST_CELLS: Final = 50_000_000
_NO_VALUE: Final = re.compile(  # in an ods
    rb'calcext:value-type="error"|<table:table-cell(?=[^>]*table:formula=)(?![^>]*office:value-type=)'
)


@dataclass
class _SheetGaps:
    """Hidden rows of a sheet, and cells (row and column, from 0) without a value; calamine tells neither."""

    hidden: set[int] = field(default_factory=set)
    empty: list[tuple[int, int]] = field(default_factory=list)


def open_workbook(data: bytes, label: str, sheet: str | None, header_row: int) -> list[Sheet]:
    """The visible sheets with the header of the first one, or the one that is named; a note names the others.

    Raises `UnreadableError` if the file is damaged or too large, or has no such sheet or header.
    """
    scans = _scan(data)
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = [about for about in book.sheets_metadata if about.typ == SheetTypeEnum.WorkSheet]
        visible = [about.name for about in sheets if about.visible == SheetVisibleEnum.Visible]
        names = [about.name for about in sheets]
        if sheet is not None and sheet not in names:
            message = f"no sheet '{sheet}'{mention_nearest(sheet, names)}; the sheets are {', '.join(names)}"
            raise UnreadableError(message, "set table.sheet in the site's YAML")
        chosen = [sheet] if sheet is not None else visible
        tables = [_read_sheet(book, name, f"{label}, sheet '{name}'", header_row, scans.get(name)) for name in chosen]
    except PasswordError:
        raise UnreadableError("is a workbook with a password", _AGAIN) from None
    except (CalamineError, OSError, ValueError, OverflowError):  # messages may quote a cell
        raise UnreadableError("is not a workbook, or is damaged", _AGAIN) from None
    first = next((table for table in tables if any(table.names)), None)
    if first is None:
        message = f"row {header_row} of the sheet is not a header; the sheets are {', '.join(names)}"
        advice = "set table.header_row to the row of the column names, or table.sheet to another sheet"
        raise UnreadableError(message, advice)
    alike = [table for table in tables if table is first or (set(table.names) == set(first.names))]
    others = [name for name, table in zip(visible, tables, strict=False) if sheet is None and table not in alike]
    others += [] if sheet is not None else [name for name in names if name not in visible]
    if others:
        why = f"hidden, or another header in row {header_row}"
        keys = "table.sheet reads another one, and table.join adds its columns"
        first.notes.append(f"{label}: not read: {', '.join(others)} ({why}); {keys}")
    return alike


def _read_sheet(book: CalamineWorkbook, name: str, label: str, header_row: int, scan: _SheetGaps | None) -> Sheet:
    """The text of a sheet; what is merged with its header is left as it is."""
    sheet = book.get_sheet_by_name(name)
    if sheet.total_height > _MOST_ROWS or sheet.total_width > _MOST_COLUMNS:
        raise UnreadableError("is not a workbook, or is damaged", _AGAIN)
    lines = sheet.to_python(skip_empty_area=False)
    above, lines = lines[: header_row - 1], lines[header_row - 1 :]
    header = [as_text(cell) or "" for cell in lines[0]] if lines else []
    width = max((place + 1 for place, cell in enumerate(header) if cell.strip()), default=0)
    names = [cell.strip() for cell in header[:width]]
    columns = [[_as_cell(line[place]) for line in lines[1:]] for place in range(width)]
    notes = _fill_merged(sheet.merged_cell_ranges or [], columns, names, len(above) + 1)
    for row, place in scan.empty if scan is not None else ():
        if row > len(above) and place < width:
            columns[place][row - len(above) - 1] = "="
    hidden = sum(row > len(above) and row < len(above) + len(lines) for row in scan.hidden) if scan is not None else 0
    if hidden:
        notes.append(f"{label}: {plural(hidden, 'hidden row')} read too")
    numbers = header_row + 1 + np.arange(len(lines[1:]), dtype=np.int64)
    cells = [pa.chunked_array([pa.array(column, pa.string())]) for column in columns]
    return Sheet(label, names, cells, numbers, header_row, notes)


def _as_cell(value: Any) -> str | None:
    return as_text(value) if value != "" else None


def _fill_merged(ranges: list[Any], columns: list[list[str | None]], names: list[str], start: int) -> list[str]:
    """Repeat the text of merged cells in all rows that have another cell; notes count what was merged."""
    above, beside = Counter[int](), Counter[int]()
    for (first, left), (last, right) in ranges:
        if first < start or left >= len(columns) or columns[left][first - start] is None:
            continue
        below = range(first + 1 - start, min(last + 1 - start, len(columns[left])))
        rows = [row for row in below if any(column[row] is not None for column in columns)]
        for row in rows:
            columns[left][row] = columns[left][first - start]
        above[left] += len(rows)
        beside.update(dict.fromkeys(range(left + 1, min(right + 1, len(columns))), 1 + len(rows)))
    return [
        f"{count[place]:,} cells of '{names[place]}' are merged with the cell {effect}"
        for place in range(len(columns))
        for count, effect in ((above, "above and take its value"), (beside, "beside and are empty"))
        if count[place]
    ]


def _scan(data: bytes) -> dict[str, _SheetGaps]:
    """The sheets by name; none of an ods, which is refused where a cell lacks a value.

    Raises `UnreadableError` if a cell is where Excel has none, the cells hold more text than a table, or formulas of an
    ods have no value.
    """
    try:
        if not data.startswith(b"PK"):
            return {name: _SheetGaps(empty=places) for name, places in find_xls_errors(data).items()}
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            if sum(part.file_size for part in parts.infolist()) > limits.LARGEST:
                raise UnreadableError(*TOO_LARGE)
            names = parts.namelist()
            if "content.xml" in names:
                if _NO_VALUE.search(parts.read("content.xml")):
                    message = "has formulas without a value, or with an error"
                    raise UnreadableError(message, "paste these columns as values and save the file again")
                return {}
            main = "workbook.xml" if "xl/workbook.xml" in names else "workbook.bin"
            targets = {
                part.get("Id"): re.sub("^(?!/)", "xl/", part.get("Target", "")).removeprefix("/")
                for _, part in _iterate_elements(parts, f"xl/_rels/{main}.rels", "Relationship")
            }
            if main == "workbook.bin":
                return {name: _SheetGaps(empty=places) for name, places in find_xlsb_errors(parts, targets).items()}
            listed = [part.attrib for _, part in _iterate_elements(parts, "xl/workbook.xml", "sheet")]
            lengths = _measure_texts(parts) if "xl/sharedStrings.xml" in names else []
            places = {
                about["name"]: targets.get(next((about[key] for key in about if key.endswith("}id")), None))
                for about in listed
            }
            return {name: _scan_sheet(parts, path, lengths) for name, path in places.items() if path in names}
    except (zipfile.BadZipFile, ElementTree.ParseError, KeyError, ValueError, IndexError, struct.error):
        raise UnreadableError("is not a workbook, or is damaged", _AGAIN) from None


def _iterate_elements(parts: zipfile.ZipFile, path: str, *kinds: str) -> Iterator[tuple[str, ElementTree.Element]]:
    """The elements of these kinds, whatever their namespace, with the kind; each is emptied afterwards."""
    with parts.open(path) as file:
        for _, element in ElementTree.iterparse(file):  # noqa: S314 (expat limits entities)
            kind = element.tag.rpartition("}")[2]
            if kind in kinds:
                yield kind, element
                element.clear()


def _measure_texts(parts: zipfile.ZipFile) -> list[int]:
    return [sum(map(len, text.itertext())) for _, text in _iterate_elements(parts, "xl/sharedStrings.xml", "si")]


def _scan_sheet(parts: zipfile.ZipFile, path: str, lengths: list[int]) -> _SheetGaps:
    scan, row, column, letters, right = _SheetGaps(), 0, 0, 0, 0
    empty: list[int] = []
    for kind, element in _iterate_elements(parts, path, "row", "c"):
        if kind == "c":
            place = element.get("r")
            column = column + 1 if place is None else _parse_column(place)
            right = max(right, column)
            values = {part.tag.rpartition("}")[2]: part.text for part in element}
            text, stored = values.get("v"), element.get("t")
            letters += lengths[int(text)] if stored == "s" and text else len(text or "")
            if stored == "e" or ("f" in values and not text and stored != "str"):
                empty.append(column - 1)
            continue
        row = int(element.get("r", row + 1))
        if letters > limits.LARGEST:
            raise UnreadableError(*TOO_LARGE)
        if not 0 < row <= _MOST_ROWS or right > _MOST_COLUMNS or row * right > _MOST_CELLS:
            raise UnreadableError("is not a workbook, or is damaged", _AGAIN)
        scan.empty += [(row - 1, place) for place in empty]
        scan.hidden |= {row - 1} if element.get("hidden") in ("1", "true") else set()
        column, empty = 0, []
    return scan


def _parse_column(place: str) -> int:
    """The column of a place such as AB12, from 1."""
    number = 0
    for letter in place.rstrip("0123456789"):
        if not "A" <= letter <= "Z":
            raise ValueError("not a place")
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
