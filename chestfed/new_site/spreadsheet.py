"""A spreadsheet of which nothing is known: its encoding, delimiter and format, and all its columns as text."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from chestfed.diseases import DISEASES
from chestfed.errors import ConfigError, SiteError
from chestfed.new_site.choosing import Choices
from chestfed.sites.cells import column_names, read_cells
from chestfed.sites.config import SiteConfig
from chestfed.sites.source import FORMULA, Source, a_formula

_DELIMITERS: Final = (",", ";", "\t", "|")
_SHOWN: Final = {",": "a comma", ";": "a semicolon", "\t": "a tabulator", "|": "a vertical bar"}
_LINES: Final = 200


@dataclass(frozen=True)
class Spreadsheet:
    """The columns as strings (empty is missing), the keys of `table` that it takes to read them, and why.

    `formulas` are the columns with cells that are formulas, which are missing.
    """

    frame: pd.DataFrame
    keys: dict[str, str]
    evidence: dict[str, str]
    notes: tuple[str, ...] = ()
    formulas: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The columns, in their order."""
        return [str(name) for name in self.frame]


def read_spreadsheet(path: Path, site: str, choices: Choices) -> Spreadsheet:
    """Find out how the file is to be read, and read it.

    Raises
    ------
    ConfigError
        If it is not there, or has no columns.
    SiteError
        If it cannot be read; nothing of a cell is shown.
    """
    if not path.is_file():
        raise ConfigError(f"--labels {path}: no such file")
    keys: dict[str, str] = {}
    evidence: dict[str, str] = {}
    if path.suffix.lower() not in (".parquet", ".pq", ".xlsx", ".xlsm"):
        data = _bytes(path)
        keys["encoding"], evidence["encoding"] = _encoding(data, choices.encoding)
        text = data.removeprefix(b"\xef\xbb\xbf").decode(keys["encoding"], errors="replace")
        keys["delimiter"], evidence["delimiter"] = _delimiter(path, text, choices.delimiter)
    elif choices.sheet is not None:
        keys["sheet"], evidence["sheet"] = choices.sheet, "as said"
    source = Source(_anything(site, keys), path.parent, path)
    table = source.config.table
    assert table is not None
    names = column_names(source, path, table)
    if names is None:
        raise SiteError(site, source.problems)
    counts = Counter(names)
    kept = [name for name in names if name and counts[name] == 1]
    notes = [
        f"{count} columns are called '{name}': not looked at" for name, count in counts.items() if name and count > 1
    ]
    unnamed = sum(not name for name in names)
    if unnamed * 2 > len(names):
        raise ConfigError(
            f"{path.name}: {unnamed} of {len(names)} columns have no name in the first row, which must be the header: "
            "remove the rows above it, such as a title, and columns that are empty"
        )
    if unnamed:
        notes.append(f"{unnamed} of {len(names)} columns have no name in the first row: not looked at")
    if len(kept) < 2:
        found = f"the only column is '{kept[0]}'" if kept else "no column has a name"
        raise ConfigError(
            f"{path.name}: {found}; the first row must be the header. "
            + ("Name another sheet with --sheet" if "delimiter" not in keys else "Say what separates with --delimiter")
        )
    frame = read_cells(source, path, table, kept)
    if frame is None or {problem.kind for problem in source.problems} - {FORMULA}:
        raise SiteError(site, source.problems)
    told = Counter(problem.message for problem in source.problems)
    formulas = {name: told[a_formula(name)] for name in kept if told[a_formula(name)]}
    if formulas:  # in columns that perhaps are not needed
        listed = ", ".join(f"'{name}' ({number:,})" for name, number in formulas.items())
        notes.append(f"cells that hold formulas, which are not computed here, and count as empty: {listed}")
    return Spreadsheet(frame[kept], keys, evidence, tuple(notes), tuple(formulas))


def _anything(site: str, keys: dict[str, str]) -> SiteConfig:
    """A site that reads the file so; what it says of columns and labels is not used."""
    table: dict[str, Any] = {"layout": "onehot", "columns": {"image": "image", "patient": "image"}, **keys}
    return SiteConfig.model_validate(
        {
            "site": site,
            "title": site,
            "reader": "table",
            "root": ".",
            "label_files": {"table": ["*"]},
            "views": "all",
            "labels": {disease: [disease] for disease in DISEASES},
            "uncertain": "missing",
            "blank": "missing",
            "table": table,
        }
    )


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path.name}: cannot be read: {error}") from None


def _encoding(data: bytes, said: str | None) -> tuple[str, str]:
    if said is not None:
        return said, "as said"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        odd = any(0x80 <= byte < 0xA0 for byte in data)
        name = "cp1252" if odd else "latin-1"
        return name, f"not UTF-8; {'cp1252 has its signs at 80 to 9F' if odd else 'no byte from 80 to 9F'}"
    if data.isascii():
        return "utf-8", "plain letters only"
    return "utf-8", "with BOM" if data.startswith(b"\xef\xbb\xbf") else "letters beyond ASCII fit it"


def _delimiter(path: Path, text: str, said: str | None) -> tuple[str, str]:
    """The sign that cuts most of the first rows into the same number of cells."""
    if said is not None:
        return {"tab": "\t", "\\t": "\t"}.get(said, said), "as said"
    lines = text.splitlines()[:_LINES]
    scores = {}
    for delimiter in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter) if row]
        except csv.Error:
            continue
        if widths and widths[0] > 1:
            scores[delimiter] = (sum(width == widths[0] for width in widths), widths[0], len(widths))
    if not scores:
        return ",", "no other found"
    best = max(scores, key=lambda delimiter: (scores[delimiter][0] / scores[delimiter][2], scores[delimiter][1]))
    even, width, rows = scores[best]
    return best, f"{_SHOWN[best]} cuts {even} of the first {rows} rows into {width} cells"
