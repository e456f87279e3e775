"""The mapping table `NAME.terms.csv`: what the terms, label values and words of a hospital's table mean, a row each.

`chestfed site new` writes it, a radiologist fills it in with a spreadsheet program, and the site's reader applies it.
It quotes the cells of the hospital, so it stays with the labels; messages name its rows and never its terms.
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
from chestfed.sites.label_files.encodings import is_utf16, likely
from chestfed.sites.reader import NEGATIVE, SPLITS, UNCERTAIN, VIEWS, canonical
from chestfed.sites.terms import MISSING, Meaning, normal, parse_meaning

#: The columns, in order; the last two are the person's.
COLUMNS: Final[tuple[str, ...]] = ("kind", "term", "rows", "suggestion", "why", "MEANING", "confirmed")
_NEEDED: Final = ("term", "MEANING", "confirmed")
#: Kinds of rows: a term of a findings column, a value of a label column, or a word of one of these columns.
TERM, VALUE, AGE = "term", "value", "age"
#: What counts as an empty cell, or, of a label, as no label.
MISSING_WORD: Final = "missing"
#: What a row of these kinds may mean; an age means years, and a term whatever `parse_meaning` reads.
WORD_MEANINGS: Final[Mapping[str, tuple[str, ...]]] = {
    VALUE: ("positive", "negative", "uncertain", "blank", MISSING_WORD),
    "view": (*VIEWS, MISSING_WORD),
    "split": (*SPLITS, MISSING_WORD),
    "sex": ("F", "M", "unknown", MISSING_WORD),
    AGE: (MISSING_WORD,),
}
_OLDEST: Final = 120
#: How the file writes a cell without any term.
EMPTY: Final = "(empty)"
#: What `confirmed` may say: a person's yes, the lexicon's exact match, or not yet.
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
class TermRow:
    """A term in `normal` form (the empty cell is ""), in how many cells it occurs, and what it means.

    With another `kind` than `term` it is a value in `canonical` form, or a word in lower case.
    """

    term: str
    rows: int = 0
    suggestion: str = ""
    why: str = ""
    meaning: str = ""
    confirmed: str = ""
    kind: str = TERM

    @property
    def known(self) -> bool:
        """Whether it has a meaning that is confirmed."""
        return bool(self.confirmed and self.meaning)

    @property
    def meant(self) -> Meaning | None:
        """The meaning of a term, if it is confirmed."""
        return parse_meaning(self.meaning) if self.known and self.kind == TERM else None


def parse_word(kind: str, text: str) -> str:
    """What a value or word means, as one of `WORD_MEANINGS`, or an age in years.

    Raises `ValueError` if it is anything else.
    """
    found = {word.casefold(): word for word in WORD_MEANINGS[kind]}.get(text.strip().casefold())
    if found is not None:
        return found
    if kind == AGE and re.fullmatch(r"\d+([.,]\d+)?", text.strip()):
        years = float(text.strip().replace(",", "."))
        if years <= _OLDEST:
            return f"{years:g}"
    expected = f"years from 0 to {_OLDEST}, or {MISSING_WORD}" if kind == AGE else ", ".join(WORD_MEANINGS[kind])
    raise ValueError(f"unknown meaning of a {kind}; expected {expected}")


def in_form(kind: str, term: str) -> str:
    """A term, value or word in the form in which it is compared."""
    return normal(term) if kind == TERM else canonical(term) if kind == VALUE else term.strip().lower()


def terms_text(rows: Iterable[TermRow]) -> str:
    """The file's text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        shown = f"'{row.term}" if row.term.startswith(_QUOTED) else row.term or EMPTY
        writer.writerow([row.kind, shown, row.rows, row.suggestion, row.why, row.meaning, row.confirmed])
    return text.getvalue()


def read_terms(
    path: Path, diseases: Sequence[str] | None = None, separator: str | None = None
) -> tuple[list[TermRow], list[Problem]]:
    """The rows of the file, however a spreadsheet program saved it, and everything that is wrong with it.

    Meanings must fit the site's `diseases`, and the `separator` that its cells are cut at, where these are given.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        advice = "`chestfed site new` writes it beside the YAML; set table.terms to its name"
        return [], [Problem("missing file", path.name, f"cannot be read: {error.strerror}", None, advice)]
    text = _decoded(data)
    if text is None:
        advice = "save it as 'CSV UTF-8' in the spreadsheet program"
        return [], [Problem("wrong encoding", path.name, "is not UTF-8, and not surely in another", None, advice)]
    try:
        header, *lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)) or [
            []
        ]
    except csv.Error:  # or a cell of more than 128 KiB
        advice = "look for a quotation mark that is opened and not closed"
        return [], [Problem("malformed CSV", path.name, "cannot be read as rows and cells", None, advice)]
    places = {name: header.index(name) for name in COLUMNS if name in header}
    lacking = [name for name in _NEEDED if name not in places]
    if lacking:
        text = f"no column {', '.join(lacking)}"
        return [], [Problem("missing column", path.name, text, 1, f"the columns are {', '.join(COLUMNS)}")]
    rows: list[TermRow] = []
    problems: list[Problem] = []
    first: dict[tuple[str, str], int] = {}
    for number, cells in enumerate(lines, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        told = {name: cells[place].strip() if place < len(cells) else "" for name, place in places.items()}
        row, mistake = _row(told, diseases or ())
        key = (row.kind, row.term)
        if mistake is None and key in first:
            mistake = ("duplicate term", f"row {first[key]} has the same term", "keep one row per term")
        mistake = mistake or _misplaced(row, diseases, separator)
        if mistake is not None:
            problems.append(Problem(mistake[0], path.name, mistake[1], number, mistake[2]))
            row = replace(row, meaning="", confirmed="")
        if key not in first:
            rows.append(row)
        first.setdefault(key, number)
    return rows, problems


def _row(told: Mapping[str, str], diseases: Sequence[str]) -> tuple[TermRow, tuple[str, str, str] | None]:
    """One row, and what is wrong with it: kind, message, advice."""
    quoted = told["term"].startswith("'") and told["term"][1:].startswith(_QUOTED)
    term = told["term"].removeprefix("'") if quoted else told["term"]
    confirmed = _CONFIRMED.get(told["confirmed"].casefold())
    number, kind = told.get("rows", ""), told.get("kind", TERM).casefold() or TERM
    if kind not in (TERM, *WORD_MEANINGS):
        known = ", ".join((TERM, *WORD_MEANINGS))
        return TermRow(term), ("unknown kind", f"'kind' is not one of {known}", "write one of them")
    row = TermRow(
        "" if term == EMPTY and not quoted else in_form(kind, term),
        int(number) if number.isdecimal() else 0,
        told.get("suggestion", ""),
        told.get("why", ""),
        told["MEANING"],
        confirmed or "",
        kind,
    )
    if not term:
        return row, ("blank name", "no term", f"remove the row, or write {EMPTY} for the empty cell")
    if confirmed is None:
        return row, ("unknown confirmation", "'confirmed' is not yes or empty", "write yes, or leave it empty")
    if confirmed and not row.meaning:
        return row, ("unknown meaning", "confirmed, but MEANING is empty", "write MEANING, or empty 'confirmed'")
    if row.meaning:
        try:
            row = replace(
                row,
                meaning=str(parse_meaning(row.meaning, diseases)) if kind == TERM else parse_word(kind, row.meaning),
            )
        except ValueError as error:
            return row, ("unknown meaning", f"MEANING: {error}", "fix the cell in the column MEANING")
    return row, None


def _misplaced(row: TermRow, diseases: Sequence[str] | None, separator: str | None) -> tuple[str, str, str] | None:
    """What does not fit the site: kind, message, advice."""
    meaning = row.meant or MISSING
    strange = [name for name in meaning.findings if diseases is not None and name not in diseases]
    if strange:
        known = ", ".join(name for name in strange if name in TITLES) or "a disease"
        text = f"MEANING: {known} is not among the site's 'diseases'"
        return "unknown meaning", text, "add it to 'diseases' in the site's YAML, or write ignore"
    if separator in LOOSE_SEPARATORS and {NEGATIVE, UNCERTAIN} & set(meaning.findings.values()):
        text = f"negates or doubts a disease, but the split at '{separator}' may cut part of it off"
        return "unsafe separator", text, "set a separator that does not occur, so that each cell is one term"
    return None


def _decoded(data: bytes) -> str | None:
    """The text; None if its encoding is uncertain: a radiologist's words must not come back as nonsense."""
    if is_utf16(data):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:  # as spreadsheet programs save a csv on Windows
        found = likely(data)
    name = found[0] if len(found) == 1 else "cp1252" if not found or "cp1252" in found else None
    try:
        return None if name is None else data.decode(name)
    except UnicodeDecodeError:
        return None


def _delimiter(text: str) -> str:
    line = text.partition("\n")[0]
    return max((",", ";", "\t"), key=line.count)
