"""The cells of an xls or xlsb whose value is an error (`#N/A`, `#DIV/0!`), which calamine reads as empty ones.

Both formats are sequences of records; only the few that lead to such cells are looked at ([MS-XLS] 2.4, [MS-XLSB] 2.3).
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import Final

#: Places of cells, row and column from 0.
Places = list[tuple[int, int]]
_FREE: Final = 0xFFFFFFFA  # sector numbers from here on are marks


def find_xls_errors(data: bytes) -> dict[str, Places]:
    """Sheet -> its error cells. Raises `ValueError`, `IndexError` or `struct.error` if the file is damaged."""
    stream = _read_stream(data)
    errors: dict[str, Places] = {}
    for kind, body in _list_records(stream, 0):
        if kind == 0x85:  # BoundSheet8, or that of Excel 5
            wide = stream[4:6] == b"\x00\x06"
            start, flags = (8, body[7]) if wide else (7, 0)
            name = body[start : start + body[6] * (1 + (flags & 1))].decode("utf-16-le" if flags & 1 else "latin-1")
            errors[name] = _find_in_sheet(stream, _unpack("I", body)[0])
    return errors


def _find_in_sheet(stream: bytes, start: int) -> Places:
    places: Places = []
    for kind, body in _list_records(stream, start):
        is_error = kind == 0x205 and body[7] == 1  # BoolErr
        is_error |= kind == 0x06 and body[6] == 2 and body[12:14] == b"\xff\xff"  # Formula
        if is_error:
            row, column = _unpack("HH", body)
            places.append((row, column))
    return places


def _list_records(stream: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Kind and body of the records of a substream, without those of charts in it."""
    depth = 0
    while start + 4 <= len(stream):
        kind, size = _unpack("HH", stream, start)
        depth += (kind == 0x809) - (kind == 0x0A)  # BOF, EOF
        if depth == 0:
            return
        if depth == 1:
            yield kind, stream[start + 4 : start + 4 + size]
        start += 4 + size


def _read_stream(data: bytes) -> bytes:
    """The stream `Workbook` (Excel 5: `Book`) of a compound file ([MS-CFB])."""
    size = 1 << _unpack("H", data, 30)[0]
    table_at, more = _unpack("109I", data, 76), _unpack("I", data, 68)[0]
    while more < _FREE:
        *numbers, more = _unpack(f"{size // 4}I", data, (more + 1) * size)
        table_at += numbers
    table: list[int] = []
    for sector in table_at:
        table += _unpack(f"{size // 4}I", data, (sector + 1) * size) if sector < _FREE else []

    def read(sector: int) -> bytes:
        parts: list[bytes] = []
        while sector < _FREE:
            if len(parts) > len(table):
                raise ValueError("a chain of sectors without an end")
            parts.append(data[(sector + 1) * size : (sector + 2) * size])
            sector = table[sector]
        return b"".join(parts)

    folder = read(_unpack("I", data, 48)[0])
    for place in range(0, len(folder), 128):
        name = folder[place : place + 64].decode("utf-16-le").partition("\0")[0]
        start, length = _unpack("II", folder, place + 116)
        if name in ("Workbook", "Book") and length >= 4096:  # a shorter one has no room for the records of a workbook
            return read(start)[:length]
    raise ValueError("no stream of a workbook")


def find_xlsb_errors(parts: zipfile.ZipFile, targets: Mapping[str | None, str]) -> dict[str, Places]:
    """Sheet -> its error cells; `targets` are the files of the sheets by the ids of their relations.

    Raises `ValueError`, `IndexError`, `KeyError` or `struct.error` if the file is damaged.
    """
    errors: dict[str, Places] = {}
    for kind, body in _list_parts(parts.read("xl/workbook.bin")):
        if kind == 156:  # BrtBundleSh
            relation, place = _read_text(body, 8)
            name, _ = _read_text(body, place)
            errors[name], row = [], 0
            for cell, content in _list_parts(parts.read(targets[relation])):
                row = _unpack("I", content)[0] if cell == 0 else row  # BrtRowHdr
                if cell in (3, 11):  # BrtCellError, BrtFmlaError
                    errors[name].append((row, _unpack("I", content)[0]))
    return errors


def _list_parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(data):
        kind, place = _read_number(data, place, 2)
        size, place = _read_number(data, place, 4)
        yield kind, data[place : place + size]
        place += size


def _read_number(data: bytes, place: int, most: int) -> tuple[int, int]:
    """A number of seven bits per byte, and the place behind it."""
    number = 0
    for shift in range(0, 7 * most, 7):
        number |= (data[place] & 0x7F) << shift
        place += 1
        if not data[place - 1] & 0x80:
            break
    return number, place


def _read_text(data: bytes, place: int) -> tuple[str, int]:
    end = place + 4 + 2 * _unpack("I", data, place)[0]
    return data[place + 4 : end].decode("utf-16-le"), end


def _unpack(form: str, data: bytes, place: int = 0) -> list[int]:
    """Little-endian numbers."""
    return list(struct.unpack_from(f"<{form}", data, place))
