"""The code book `NAME.codes.csv`: what the values in a hospital's table mean, a row each.

`chestfed site new` writes it, a person confirms it in a spreadsheet program, and the site's reader applies it. It
quotes the cells of the hospital, so it stays with the labels; messages name its rows and never its values.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from chestfed.core.diseases import TITLES
from chestfed.core.errors import Problem
from chestfed.data.sites.label_files.encodings import is_utf16, likely
from chestfed.data.sites.reader import NEGATIVE, SPLITS, UNCERTAIN, VIEWS, canonical
from chestfed.data.sites.terms import normal, parse_meaning

#: The columns, in order; the last two are the person's.
COLUMNS: Final[tuple[str, ...]] = ("column", "kind", "value", "rows", "proposal", "evidence", "MEANING", "confirmed")
_NEEDED: Final = ("kind", "value", "MEANING", "confirmed")
MISSING: Final = "missing"
FINDING, LABEL, AGE, KEEP = "finding", "label", "age", "keep"
#: Kind -> what its values may mean; an age means years, and a finding whatever `parse_meaning` reads.
MEANINGS: Final[Mapping[str, tuple[str, ...]]] = {
    LABEL: ("positive", "negative", "uncertain", "blank", MISSING),
    "view": (*VIEWS, MISSING),
    "split": (*SPLITS, MISSING),
    "sex": ("F", "M", "unknown", MISSING),
    AGE: (MISSING,),
    KEEP: ("keep", "drop"),
}
KINDS: Final = (FINDING, *MEANINGS)
_OLDEST: Final = 120
#: Word of the file for the empty cell.
EMPTY: Final = "(empty)"
#: Values of `confirmed`: a person's yes, the lexicon's exact match, or not yet.
YES, LEXICON = "yes", "lexicon"
_CONFIRMED: Final = {
    **dict.fromkeys(("yes", "y", "x", "1", "true", "ja", "j", "oui", "si", "sí", "sim"), YES),
    LEXICON: LEXICON,
    **dict.fromkeys(("", "no", "n", "0", "false", "nein", "non", "não", "nao"), ""),
}
#: A spreadsheet program takes a cell that begins like this for a formula, unless it is quoted with a ' in front.
_QUOTED: Final = ("=", "+", "-", "@", "'", EMPTY)
#: Behind these a denial or a doubt may go on: `no edema, effusion`.
LOOSE_SEPARATORS: Final = (",", "/", "+", "&")


@dataclass(frozen=True)
class Code:
    """A value in the form in which it is compared (the empty cell is ""), and what it means.

    `column` is a header, or empty for every column of the kind. `rows` counts the value.
    """

    column: str
    kind: str
    value: str
    rows: int = 0
    proposal: str = ""
    evidence: str = ""
    meaning: str = ""
    confirmed: str = ""

    @property
    def is_known(self) -> bool:
        """Whether its meaning is confirmed."""
        return bool(self.confirmed and self.meaning)


def normalize_value(kind: str, value: str) -> str:
    """A value in the form in which it is compared: case and outer spaces do not matter; of a label 1.0 is 1."""
    return normal(value) if kind == FINDING else canonical(value) if kind == LABEL else value.strip().lower()


def parse_code(kind: str, text: str, diseases: Sequence[str] | None = None) -> str:
    """Parse a meaning of the kind, to one spelling; see `MEANINGS`.

    Raises `ValueError` if it is anything else.
    """
    if kind == FINDING:
        return str(parse_meaning(text, diseases))
    word = {word.casefold(): word for word in MEANINGS[kind]}.get(text.strip().casefold())
    if word is not None:
        return word
    if kind == AGE and re.fullmatch(r"\d+([.,]\d+)?", text.strip()):
        years = float(text.strip().replace(",", "."))
        if years <= _OLDEST:
            return f"{years:g}"
    expected = f"years from 0 to {_OLDEST}, or {MISSING}" if kind == AGE else ", ".join(MEANINGS[kind])
    raise ValueError(f"unknown meaning of a {kind}; expected {expected}")


def write_book(path: Path, codes: Iterable[Code]) -> None:
    """Write the code book as UTF-8 that spreadsheet programs open without running formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for code in codes:
        value = _quote(code.value) or EMPTY
        described = (code.rows, _quote(code.proposal), _quote(code.evidence), code.meaning, code.confirmed)
        writer.writerow([_quote(code.column), code.kind, value, *described])
    path.write_text(text.getvalue(), encoding="utf-8")


def read_book(
    path: Path, diseases: Sequence[str] | None = None, separator: str | None = None
) -> tuple[list[Code], list[Problem]]:
    """The codes of the file, however a spreadsheet program saved it, and everything that is wrong with it.

    Meanings of findings must fit the site's `diseases`, and the `separator` that its cells are cut at, where these are
    given. A code with a problem is returned without its meaning.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        advice = "`chestfed site new` writes it beside the YAML; set table.codes to its name"
        return [], [Problem("missing file", path.name, f"cannot be read: {error.strerror}", None, advice)]
    text = _decode(data)
    if text is None:
        advice = "save it as 'CSV UTF-8' in the spreadsheet program"
        return [], [Problem("wrong encoding", path.name, "is not UTF-8, and not surely in another", None, advice)]
    delimiter = max((",", ";", "\t"), key=text.partition("\n")[0].count)
    try:
        header, *lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)) or [[]]
    except csv.Error:  # or a cell of more than 128 KiB
        advice = "look for a quotation mark that is opened and not closed"
        return [], [Problem("malformed CSV", path.name, "cannot be read as rows and cells", None, advice)]
    places = {name: header.index(name) for name in COLUMNS if name in header}
    if lacking := [name for name in _NEEDED if name not in places]:
        advice = f"the columns are {', '.join(COLUMNS)}"
        return [], [Problem("missing column", path.name, f"no column {', '.join(lacking)}", 1, advice)]
    codes: list[Code] = []
    problems: list[Problem] = []
    first: dict[tuple[str, str, str], int] = {}
    for number, cells in enumerate(lines, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        row = {name: cells[place].strip() if place < len(cells) else "" for name, place in places.items()}
        code, mistake = _parse_row(row, diseases, separator)
        key = (code.column, code.kind, code.value)
        if mistake is None and key in first:
            mistake = ("duplicate value", f"row {first[key]} has the same value", "keep one row per value")
        if mistake is not None:
            problems.append(Problem(mistake[0], path.name, mistake[1], number, mistake[2]))
            code = replace(code, meaning="", confirmed="")
        if first.setdefault(key, number) == number:
            codes.append(code)
    return codes, problems


def _parse_row(
    row: Mapping[str, str], diseases: Sequence[str] | None, separator: str | None
) -> tuple[Code, tuple[str, str, str] | None]:
    """One code, and what is wrong with it: kind, message, advice."""
    kind, value, number = row["kind"].casefold(), _unquote(row["value"]), row.get("rows", "")
    if kind not in KINDS:
        text = f"'kind' is not one of {', '.join(KINDS)}"
        return Code("", FINDING, value), ("unknown kind", text, "write one of them")
    confirmed = _CONFIRMED.get(row["confirmed"].casefold())
    code = Code(
        _unquote(row.get("column", "")),
        kind,
        "" if row["value"] == EMPTY else normalize_value(kind, value),
        int(number) if number.isdecimal() else 0,
        _unquote(row.get("proposal", "")),
        _unquote(row.get("evidence", "")),
        row["MEANING"],
        confirmed or "",
    )
    if not value:
        return code, ("blank name", "no value", f"remove the row, or write {EMPTY} for the empty cell")
    if confirmed is None:
        return code, ("unknown confirmation", "'confirmed' is not yes or empty", "write yes, or leave it empty")
    if confirmed and not code.meaning:
        return code, ("unknown meaning", "confirmed, but MEANING is empty", "write MEANING, or empty 'confirmed'")
    if not code.meaning:
        return code, None
    try:
        code = replace(code, meaning=parse_code(kind, code.meaning, diseases or ()))
    except ValueError as error:
        return code, ("unknown meaning", f"MEANING: {error}", "fix the cell in the column MEANING")
    return code, _find_misplaced(code, diseases, separator) if kind == FINDING and confirmed else None


def _find_misplaced(code: Code, diseases: Sequence[str] | None, separator: str | None) -> tuple[str, str, str] | None:
    """Find a part of a meaning that does not fit the site: kind, message, advice."""
    findings = parse_meaning(code.meaning, diseases).findings
    strange = [name for name in findings if diseases is not None and name not in diseases]
    if strange:
        known = ", ".join(name for name in strange if name in TITLES) or "a disease"
        text = f"MEANING: {known} is not among the site's 'diseases'"
        return "unknown meaning", text, "add it to 'diseases' in the site's YAML, or write ignore"
    if separator in LOOSE_SEPARATORS and {NEGATIVE, UNCERTAIN} & set(findings.values()):
        text = f"negates or doubts a disease, but the split at '{separator}' may cut part of it off"
        return "unsafe separator", text, "set a separator that does not occur, so that each cell is one finding"
    return None


def _quote(text: str) -> str:
    return f"'{text}" if text.startswith(_QUOTED) else text


def _unquote(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith(_QUOTED) else text


def _decode(data: bytes) -> str | None:
    """The text; None if its encoding is uncertain: a radiologist's words must not come back as nonsense."""
    if is_utf16(data):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:  # as spreadsheet programs save a csv on Windows
        names = likely(data)
    name = names[0] if len(names) == 1 else "cp1252" if not names or "cp1252" in names else None
    try:
        return None if name is None else data.decode(name)
    except UnicodeDecodeError:
        return None
