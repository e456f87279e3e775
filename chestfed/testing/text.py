"""Rows of label files without knowing what they mean: to shuffle them, or to take a column's name away."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from pathlib import Path

from chestfed.sites.label_files.delimited import excel_separator

_DELIMITERS = ",;\t|"


def records(data: bytes) -> list[bytes]:
    """The lines of a text, those of a quoted cell together; without the line breaks at their ends."""
    found, pending = [], b""
    for line in data.replace(b"\r\n", b"\n").split(b"\n"):
        pending += line
        if pending.count(b'"') % 2:
            pending += b"\n"
        else:
            found.append(pending)
            pending = b""
    found += [pending] if pending else []
    return found[:-1] if found and not found[-1] else found


def shuffled(data: bytes, name: Path, seed: int, header_lines: int) -> bytes | None:
    """The same rows in another order; None if the format is not known here."""
    order = random.Random(seed)
    if data[:2] == b"\x1f\x8b":
        text = shuffled(gzip.decompress(data), name.with_suffix(""), seed, header_lines)
        return None if text is None else gzip.compress(text)
    if data[:4] == b"PAR1":
        return _shuffled_parquet(data, order)
    if b"\0" in data or data[:2] == b"PK":
        return None
    if data.lstrip()[:1] in (b"[", b"{"):
        rows = json.loads(data)
        if not isinstance(rows, list):
            return None
        order.shuffle(rows)
        return json.dumps(rows, indent=1).encode()
    above, lines = _above(data)
    head, rest = lines[:header_lines], lines[header_lines:]
    order.shuffle(rest)
    return above + b"\n".join([*head, *rest]) + b"\n"


def columns(data: bytes, header_row: int = 1) -> list[str]:
    """Names in the header of a delimited text or a parquet file; empty if there is no such header."""
    if data[:2] == b"\x1f\x8b":
        return columns(gzip.decompress(data), header_row)
    if data[:4] == b"PAR1":
        import pyarrow.parquet as pq

        return list(pq.read_schema(io.BytesIO(data)).names)
    if b"\0" in data or data[:2] == b"PK" or data.lstrip()[:1] in (b"[", b"{"):
        return []
    return _header(data, header_row)[0]


def without_column(data: bytes, place: int, header_row: int = 1) -> bytes:
    """The same file with another name in place of a column's."""
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(without_column(gzip.decompress(data), place, header_row))
    if data[:4] == b"PAR1":
        import pyarrow.parquet as pq

        table = pq.read_table(io.BytesIO(data))
        out = io.BytesIO()
        pq.write_table(table.rename_columns([*_renamed(list(table.column_names), place)]), out)
        return out.getvalue()
    names, delimiter = _header(data, header_row)
    head = io.StringIO()
    csv.writer(head, delimiter=delimiter, lineterminator="").writerow(_renamed(names, place))
    above, lines = _above(data)
    return above + b"\n".join([*lines[: header_row - 1], head.getvalue().encode(), *lines[header_row:]]) + b"\n"


def _above(data: bytes) -> tuple[bytes, list[bytes]]:
    """Excel's line `sep=;`, if the text begins with it, and the lines that count."""
    rest = excel_separator(data)[1]
    return data[: len(data) - len(rest)], records(rest)


def _renamed(names: list[str], place: int) -> list[str]:
    return [*names[:place], f"x{place} was here", *names[place + 1 :]]


def _header(data: bytes, row: int) -> tuple[list[str], str]:
    """Names and delimiter of the header's line; no names if nothing delimits it."""
    line = next(iter(_above(data)[1][row - 1 :]), b"")
    first = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    delimiter = max(_DELIMITERS, key=first.count)
    if delimiter not in first:
        return [], delimiter
    return next(csv.reader([first], delimiter=delimiter), []), delimiter


def _shuffled_parquet(data: bytes, order: random.Random) -> bytes:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    places = list(range(table.num_rows))
    order.shuffle(places)
    out = io.BytesIO()
    pq.write_table(table.take(places), out)
    return out.getvalue()
