"""An unknown spreadsheet: its encoding, delimiter and format, and all its columns as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pydantic import ValidationError

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import ConfigError, SiteError
from chestfed.new_site.diseases import disease_of
from chestfed.new_site.lexicon import COLUMNS, plain
from chestfed.new_site.work import SAID, Choices
from chestfed.sites.config import SiteConfig
from chestfed.sites.label_files.delimited import DELIMITERS, excel_separator, leading_rows
from chestfed.sites.label_files.encodings import is_utf16, likely
from chestfed.sites.label_files.source import FORMULA, ROW, Source, UnreadableError, a_formula, unpacked
from chestfed.sites.label_files.xlsx import XlsxError, cells_of, open_sheets
from chestfed.sites.spreadsheet.cells import by_ending, column_names, read_cells
from chestfed.sites.spreadsheet.files import FileFormat

_SHOWN: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
_ROWS: Final = 200
#: Rows that are looked at.
_LOOKED_AT: Final = 60
_NUMBER: Final = re.compile(r"[-+]?[\d\s.,:/-]+%?")


@dataclass(frozen=True)
class Spreadsheet:
    """The columns as strings (empty is missing), and the keys of `table` that it takes to read them, each with why.

    The index of `frame` is the number of the row in the file; `formulas` are the columns with cells that are formulas,
    which are missing. `doubt` says why the header may be another row; empty if nothing speaks for it.
    """

    frame: pd.DataFrame
    keys: dict[str, tuple[str | int, str]]
    notes: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()
    doubt: str = ""


def read_spreadsheet(path: Path, site: str, choices: Choices) -> Spreadsheet:
    """Find out how the file is to be read, and read it.

    Raises `ConfigError` if it has no columns or a flag does not apply, `SiteError` if it cannot be read.
    """
    keys, notes, header = _format(path, choices)
    told = {key: value for key, (value, _) in keys.items()}
    table = {"layout": "onehot", "columns": {"image": "image", "patient": "image"}, **told}
    source = Source(any_site(site, ".", {"table": ["*"]}, table), path.parent, path)
    form = source.config.table
    assert form is not None
    names = column_names(source, path, form)
    if names is None:
        raise SiteError(site, source.problems)
    kept, doubt = _kept_columns(path, names, header, keys, notes)
    frame = read_cells(source, path, form, kept)
    if frame is None or {problem.kind for problem in source.problems} - {FORMULA}:
        raise SiteError(site, source.problems)
    problems = Counter(problem.message for problem in source.problems)
    formulas = {name: problems[a_formula(name)] for name in kept if problems[a_formula(name)]}
    if formulas:  # in columns that perhaps are not needed
        listed = ", ".join(f"'{name}' ({number:,})" for name, number in formulas.items())
        notes.append(f"cells with formulas are not evaluated and count as empty: {listed}")
    notes += source.remarks
    return Spreadsheet(frame.set_index(ROW)[kept], keys, tuple(notes), tuple(formulas), doubt)


#: Format -> the flags that apply to none of its files.
_FLAGS: Final = ("delimiter", "encoding", "sheet", "header_row")
_IDLE: Final = {"csv": ("sheet",), "xlsx": ("delimiter", "encoding")}
_Keys = dict[str, tuple[str | int, str]]


def _format(path: Path, choices: Choices) -> tuple[_Keys, list[str], int]:
    """The keys of `table` that the file needs with the evidence for them, notes, and the header's row."""
    keys, header, notes = _Keys(), 1, list[str]()
    said = _said(choices)
    kind = by_ending(path)
    for flag in _IDLE.get(kind, _FLAGS):
        if flag in said:
            raise ConfigError(f"--{flag.replace('_', '-')} does not apply to {path.name}: omit it")
    if kind == "csv":
        try:
            data = unpacked(path)
        except UnreadableError as error:
            raise ConfigError(f"{path.name}: {error}") from None
        keys["encoding"] = encoding, _ = _encoding(path, data, said.get("encoding"))
        content = data.decode("utf-8-sig" if encoding == "utf-8" else encoding, errors="replace")
        separator, plain_text = excel_separator(content.replace("\r\n", "\n").replace("\r", "\n").encode())
        delimiter, why, header = _delimiter(plain_text.decode(), said.get("delimiter"), separator)
        keys["delimiter"] = delimiter, why
        if separator is not None:
            notes.append("the file's first line is Excel's 'sep=', which is not counted as a row")
    elif kind == "xlsx":
        keys |= {} if choices.sheet is None else {"sheet": (choices.sheet, SAID)}
        header = _header_of_sheet(path, choices.sheet)
    if choices.header_row is not None:
        keys["header_row"] = header, _ = choices.header_row, SAID
    elif header > 1:
        keys["header_row"] = header, "the rows above it are empty or have only a cell or two"
        notes.append(
            f"row {header} is taken as the header; {header - 1} rows above it are ignored (--header-row NUMBER if "
            f"this is wrong)"
        )
    return keys, notes, header


def _said(choices: Choices) -> dict[str, Any]:
    """What the flags say of the file.

    Raises `ConfigError` if no file can be like that.
    """
    tab = {"tab": "\t", "\\t": "\t"}.get(choices.delimiter or "")
    given = {flag: getattr(choices, flag) for flag in _FLAGS if getattr(choices, flag) is not None}
    try:
        return FileFormat.model_validate(given | ({"delimiter": tab} if tab else {})).model_dump(exclude_unset=True)
    except ValidationError as error:
        wrong = error.errors()[0]
        flag, why = str(wrong["loc"][-1]).replace("_", "-"), wrong["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--{flag} {wrong['input']}: {why}") from None


def _kept_columns(path: Path, names: list[str], header: int, keys: _Keys, notes: list[str]) -> tuple[list[str], str]:
    """The columns with a name of their own, and why the header may be another row."""
    counts = Counter(names)
    kept = [name for name in names if name and counts[name] == 1]
    notes += [f"{n} columns are named '{name}': not used" for name, n in counts.items() if name and n > 1]
    lacking = f"{counts['']} of {len(names)} columns have no name in row {header}"
    another = ", which is taken as the header. If it is another row, use --header-row NUMBER"
    if counts[""] * 2 > len(names):
        raise ConfigError(f"{path.name}: {lacking}{another}; remove empty columns")
    if len(kept) < 2:
        found = "only one column has a name" if kept else "no column has a name"
        other = "--delimiter for another delimiter" if "delimiter" in keys else "--sheet for another sheet"
        sheets = f" ({', '.join(open_sheets(path))})" if by_ending(path) == "xlsx" else ""
        raise ConfigError(f"{path.name}: {found} in row {header}{another}; or {other}{sheets}")
    notes += [f"{lacking}: not used"] if counts[""] else []
    return kept, f"{lacking}{another}" if counts[""] else ""


def any_site(name: str, root: str, files: dict[str, list[str]], table: dict[str, Any]) -> SiteConfig:
    """A site that reads the files like this; what its labels mean is not used."""
    labels = {} if "terms" in table else {"labels": {disease: [disease] for disease in DISEASES}}
    site = {"site": name, "title": name, "reader": "table", "root": root, "label_files": files, "table": table}
    policy = {"views": "all", "uncertain": "missing", "blank": "missing"}
    return SiteConfig.model_validate({**site, **policy, **labels})


def _encoding(path: Path, data: bytes, said: str | None) -> tuple[str, str]:
    if said is not None:
        return said, SAID
    if is_utf16(data):
        return "utf-16", "by its byte order mark"
    if data.isascii() or b"\x00" in data:  # what is not text is the reader's to refuse
        return "utf-8", "ASCII only"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        found = likely(data)
        if len(found) == 1:
            return found[0], "not UTF-8; its letters make words in no other encoding"
        ways = " or ".join(f"--encoding {name}" for name in found)
        known = "NAME as Python calls it: cp1252, cp1250, cp1251, shift_jis, gb18030, big5, euc_kr, ..."
        text = f"is not UTF-8; add {ways}" if found else f"is not UTF-8, nor recognized; add --encoding NAME ({known})"
        raise ConfigError(f"{path.name}: {text}; or save it as UTF-8") from None
    return "utf-8", "by its byte order mark" if data.startswith(b"\xef\xbb\xbf") else "valid UTF-8"


def _delimiter(text: str, said: str | None, separator: str | None) -> tuple[str, str, int]:
    """The delimiter that cuts most rows into as many cells as the header has; why; the header's row."""
    if said is not None or separator is not None:
        told = said if said is not None else str(separator)
        why = SAID if said is not None else "its first line says so (sep=)"
        return told, why, find_header(list(leading_rows(text, told, _LOOKED_AT))) + 1
    best = ((0.0, 1), ",", "no other found", 1)
    for delimiter in DELIMITERS:
        rows = list(leading_rows(text, delimiter, _ROWS))
        header = find_header(rows[:_LOOKED_AT])
        widths = [len(row) for row in rows[header:] if row]
        even = sum(width == widths[0] for width in widths)
        number = f"{len(widths)}" if header else f"the first {len(widths)}"
        if widths and widths[0] > 1 and (score := (even / len(widths), widths[0])) > best[0]:
            why = f"{_SHOWN[delimiter]} cuts {even} of {number} rows into {widths[0]} cells"
            best = (score, delimiter, why, header + 1)
    return best[1:]


def _header_of_sheet(path: Path, sheet: str | None) -> int:
    """The header's row; 1 for a workbook that cannot be read, which the reader reports."""
    try:
        sheets = open_sheets(path)
        name = sheet or next(iter(sheets), "")
        rows = cells_of(sheets[name]).rows if name in sheets else {}
    except XlsxError:
        return 1
    first = dict(islice(rows.items(), _LOOKED_AT))
    width = max((max(cells) for cells in first.values()), default=-1) + 1
    place = find_header([[cells.get(column, "") for column in range(width)] for cells in first.values()])
    return list(first)[place] if first else 1


def find_header(rows: Sequence[Sequence[str]]) -> int:
    """The index of the header among the first rows: 0, unless those before another are nearly empty.

    A header fills more than half of what the fullest rows do (one may have cells too many), with texts that differ from
    each other and from what is below. If a row above it has more than one filled cell, one of its names must be known.
    """
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    full = sorted(filled)[-2:][0] if filled else 0
    place = next((at for at, number in enumerate(filled) if 2 * number > full), 0)
    names = [cell.strip() for cell in rows[place] if cell.strip()] if rows else []
    titles_only = all(number <= 1 for number in filled[:place])
    below = {cell.strip() for row in rows[place + 1 :] for cell in row}
    unlike = len(set(names)) == len(names) > 1 and not below.intersection(names)
    known = any(
        any(plain(name) in known for known in COLUMNS.values()) or disease_of(name) is not None for name in names
    )
    return place if unlike and not any(map(_NUMBER.fullmatch, names)) and (titles_only or known) else 0
