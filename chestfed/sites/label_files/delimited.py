"""The first rows of a text with a delimiter: the lines above its table, and its cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Final

DELIMITERS: Final = (",", ";", "\t", "|")
_SEPARATOR: Final = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=([^\r\n\"\x80-\xff])\"?\r?\n", re.IGNORECASE)


def excel_separator(text: bytes) -> tuple[str | None, bytes]:
    """What a first line such as `sep=;` says, and the text without it; Excel reads and shows such a file so."""
    found = _SEPARATOR.match(text)
    return (None, text) if found is None else (found[1].decode("latin-1"), text[found.end() :])


def leading_rows(text: str, delimiter: str, most: int) -> Iterator[list[str]]:
    """The cells of the first rows, up to the first that cannot be parsed; a blank line is a row without cells."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for _, row in zip(range(most), rows, strict=False):
            yield row
    except csv.Error:
        return


def first_cells(text: str, delimiter: str) -> list[str]:
    """The cells of the first row; none if it cannot be parsed."""
    return next(leading_rows(text, delimiter, 1), [])


def without_rows(text: bytes, number: int, delimiter: str) -> bytes:
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
