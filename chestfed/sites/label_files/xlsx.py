"""The cells of an Excel sheet as text, as openpyxl reads them.

A formula, or the error of one, comes as an equals sign and is not computed. A date is the number of its day: a column
of numbers may have the format of a date. Sheets are read whole: row by row, openpyxl believes the size that a sheet
states of itself and drops the rows beyond it, and does not know which cells are merged.
"""

from __future__ import annotations

import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from chestfed.sites.label_files.source import LARGEST, TOO_LARGE

#: What Excel itself allows: a small file may claim any number of each.
_MOST_ROWS, _MOST_COLUMNS = 1 << 20, 1 << 14


class XlsxError(Exception):
    """A file that is not xlsx, damaged or too large. The message has no content of a cell; `advice` says what to do."""

    def __init__(self, message: str, advice: str = "save it as xlsx without a password, or as CSV") -> None:
        super().__init__(message)
        self.advice = advice


@dataclass(frozen=True)
class Sheet:
    """Row, from 1 -> column, from 0 -> text; empty cells are left out.

    The text of cells that are merged over several rows is in each of them; `filled` counts those copies by column.
    What is merged over several columns is in the first alone; `covered` counts the cells of the others by column.
    `hidden` of the rows below the header are not shown by Excel.
    """

    rows: dict[int, dict[int, str]]
    filled: Counter[int]
    covered: Counter[int]
    hidden: int


def open_sheets(path: Path) -> dict[str, Any]:
    """The worksheets of a book by name, for `cells_of`; hidden ones come last.

    Raises `XlsxError` if the file is not xlsx, damaged, or larger than any table.
    """
    from openpyxl.reader.excel import ExcelReader

    try:
        with zipfile.ZipFile(path) as parts:
            if sum(part.file_size for part in parts.infolist()) > LARGEST:
                raise XlsxError(*TOO_LARGE)
        with warnings.catch_warnings(action="ignore"):  # of what is not read, such as styles
            reader = ExcelReader(path, keep_links=False)
            reader.read()
        book = reader.wb
        if not book.worksheets:
            raise XlsxError("has no worksheet, or is damaged")
        listed = (part for _, part in reader.parser.find_sheets() if part.Type.endswith("/worksheet"))
        if any(part.target not in reader.valid_files for part in listed):  # openpyxl goes on with the others
            raise XlsxError("is damaged: it lists a sheet that it does not contain")
        shown_first = sorted(book.worksheets, key=lambda sheet: sheet.sheet_state != "visible")
        return {sheet.title: sheet for sheet in shown_first}
    except XlsxError:
        raise
    except (OSError, zipfile.BadZipFile):
        raise XlsxError("is not an xlsx file, or is damaged") from None
    except Exception:  # openpyxl raises many kinds on damaged parts; their messages may quote a cell
        raise XlsxError("is not an xlsx file, or is damaged") from None


def cells_of(sheet: Any, header_row: int = 1) -> Sheet:
    """The cells of a sheet; what is merged with the header is left as it is.

    Raises `XlsxError` if a cell is where Excel has none, or the cells hold more text than any table.
    """
    rows: dict[int, dict[int, str]] = {}
    letters = 0  # a text that many cells share is stored once, and read as often as they are
    # Its public iterators create every cell of the rectangle around the first and the last one.
    for (row, column), cell in sheet._cells.items():
        if not (0 < row <= _MOST_ROWS and 0 < column <= _MOST_COLUMNS):
            raise XlsxError("is not an xlsx file, or is damaged")
        if text := _text(cell, sheet.parent.epoch):
            letters += len(text)
            if letters > LARGEST:
                raise XlsxError(*TOO_LARGE)
            rows.setdefault(row, {})[column - 1] = text
    filled, covered = Counter[int](), Counter[int]()
    for area in sheet.merged_cells.ranges:
        first, column = area.min_row, area.min_col - 1
        if first > header_row and column in rows.get(first, {}):
            below = [row for row in range(first + 1, area.max_row + 1) if row in rows]
            filled[column] += len(below)
            for row in below:  # a row without any other cell is empty
                rows[row][column] = rows[first][column]
            covered.update(dict.fromkeys(range(column + 1, area.max_col), 1 + len(below)))
    about = sheet.row_dimensions.items()
    hidden = sum(bool(row.hidden) for number, row in about if number > header_row and number in rows)
    return Sheet(dict(sorted(rows.items())), filled, covered, hidden)


def _text(cell: Any, epoch: datetime) -> str:
    value = cell.value
    if cell.data_type in ("f", "e"):
        return "="
    if isinstance(value, datetime | date | time | timedelta):
        from openpyxl.utils.datetime import to_excel

        value = to_excel(value, epoch)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:  # a larger one is rounded
        return str(int(value))
    return "" if value is None else str(value)
