"""What the user says of a hospital, what has been found out about it with the evidence, and whom to ask."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site.lexicon import COLUMNS, plain
from chestfed.new_site.matching import Pictures
from chestfed.sites.spreadsheet.term_table import LEXICON, YES, TermRow, in_form

#: What a flag is given for "there is no such column", and `--word` for a word that counts as an empty cell.
NONE, MISSING = "none", "missing"
SAID: Final = "given on the command line"
#: Share of the cells that must name a file, or be known words.
ENOUGH: Final = 0.9
#: A word of a cell is shown, or written down, if so many rows have it: it is then not the name of a person.
SHOWN_FROM: Final = 3
_SHOWN_ROWS: Final = 5

#: Asks (what, flag, guess, candidates, why, examples) and returns a candidate. The guess is None where the evidence is
#: weak; the flag would have settled it; the examples may name files of patients, and belong into no error.
Ask = Callable[[str, str, str | None, Sequence[str], str, Sequence[str]], str]


class UnknownWordsError(ConfigError):
    """Words without a meaning; `rows` are those of the mapping table, in which a person may enter it."""

    def __init__(self, text: str, rows: tuple[TermRow, ...]) -> None:
        super().__init__(text)
        self.rows = rows


@dataclass(frozen=True)
class Choices:
    """What the flags say; None, or empty, is a guess.

    `columns` maps image, patient, study, view, split, sex, age, reader, findings and value to a column or `none`;
    `labels` maps a disease to columns or terms; `words` maps label values, view, split, sex and age to words and their
    meanings, which go into the mapping table; `terms` are its rows that an earlier call wrote. `drop` are keys of
    `rows`.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    terms: Sequence[TermRow] = ()
    layout: str | None = None
    uncertain: str | None = None
    blank: str | None = None
    raters: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    header_row: int | None = None
    separator: str | None = None
    title: str | None = None
    drop: Sequence[str] = ()


@dataclass
class Work:
    """A hospital that is being described."""

    name: str
    pictures: Pictures
    choices: Choices
    ask: Ask | None = None  #: who decides where a guess is possible; None: the guess is taken, and without one it stops
    data: Path | None = None
    progress: Callable[[int, int], None] | None = None
    #: frame, image: the table, all cells as text, and the image of each row; the index is the number of the row in the
    #: file.
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    image: pd.Series = field(default_factory=lambda: pd.Series(dtype=object))
    #: columns, evidence: column by what it is; why, by column, disease and key.
    columns: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    #: By kind the rows of the mapping table for label values and for words of views, splits, sexes and ages.
    words: dict[str, list[TermRow]] = field(default_factory=dict)
    layout: str = ""
    #: names, keys, terms: disease -> its columns (none if terms tell it), further keys of `table`, and the mapping
    #: table.
    names: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    terms: tuple[TermRow, ...] = ()
    uncertain: str = "missing"
    blank: str = "missing"
    #: notes, stops: what the user should know, and what must be settled before anything is written.
    notes: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    @property
    def all_columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(map(str, self.frame))

    @property
    def free(self) -> list[str]:
        """Those that nothing has taken yet."""
        return [name for name in self.all_columns if name not in self.columns.values()]

    def take(self, what: str, column: str, evidence: str) -> None:
        """Note a column and why it is that."""
        self.columns[what], self.evidence[what] = column, evidence

    def drop(self, what: str) -> None:
        """Forget a column."""
        for found in (self.evidence, self.words, self.columns):
            found.pop(what, None)

    def meanings(self, kind: str) -> dict[str, str]:
        """What words of a kind mean, by the mapping table and the flags."""
        earlier = {row.term: row.meaning for row in self.choices.terms if row.kind == kind and row.known}
        return {**earlier, **self._by_flags(kind)}

    def _by_flags(self, kind: str) -> dict[str, str]:
        return {in_form(kind, word): meaning for word, meaning in self.choices.words.get(kind, {}).items()}

    def row(self, kind: str, word: str, number: int, known: str | None, suggestion: str = "") -> TermRow:
        """A word's row of the mapping table: as flags say, else as before, else as the lexicon knows it."""
        said = self._by_flags(kind).get(word)
        old = next((row for row in self.choices.terms if (row.kind, row.term) == (kind, word) and row.meaning), None)
        if said is not None:
            return TermRow(word, number, known or suggestion, SAID, said, YES, kind)
        if old is not None:
            return replace(old, rows=number)
        if known is not None:
            return TermRow(word, number, known, "a known word", known, LEXICON, kind)
        return TermRow(word, number, suggestion, "holds a known word" if suggestion else "unknown", kind=kind)

    @property
    def table_rows(self) -> tuple[TermRow, ...]:
        """The mapping table; what a person confirmed stays, also if this export does not hold it."""
        words = [row for rows in self.words.values() for row in rows]
        held = {(row.kind, row.term) for row in (*words, *self.terms)}
        kept = [row for row in self.choices.terms if row.confirmed == YES and (row.kind, row.term) not in held]
        return (*words, *self.terms, *(replace(row, rows=0) for row in kept))

    def said(self, what: str) -> str | None:
        """The column that a flag names, or `none`; None without the flag.

        Raises `ConfigError` if there is no such column; capitals do not matter.
        """
        name = self.choices.columns.get(what)
        if name in (None, NONE) or name in self.all_columns:
            return name
        alike = [other for other in self.all_columns if other.casefold() == str(name).strip().casefold()]
        if len(alike) == 1:
            return alike[0]
        close = difflib.get_close_matches(str(name), self.all_columns, n=1, cutoff=0.6)
        hint = f"; did you mean '{close[0]}'?" if close else f"; found: {', '.join(self.all_columns)}"
        raise ConfigError(f"--{what}-column {name}: no such column{hint}")

    def choose(
        self, what: str, flag: str, guess: str | None, candidates: Sequence[str], why: str, examples: Sequence[str] = ()
    ) -> str:
        """One of the candidates, by whoever decides.

        Raises `ConfigError` without a guess, if nobody can be asked: with the candidates and the flag.
        """
        if self.ask is not None:
            return self.ask(what, flag, guess, candidates, why, examples)
        if guess is not None:
            return guess
        listed = f" Candidates: {', '.join(candidates)}." if candidates else ""
        raise ConfigError(f"{what}: {why}.{listed} Choose with {flag}")


def terms_file(name: str) -> str:
    """What the mapping table of a site is called, beside its YAML."""
    return f"{name}.terms.csv"


def called(what: str, names: Collection[str]) -> list[str]:
    """The columns that are called like an image, a patient, a view, ..."""
    return [name for name in names if plain(name) in COLUMNS[what]]


def hint(word: str, known: Mapping[str, str]) -> str:
    """The one meaning that the known words in an unknown one have; empty if there is none, or several."""
    found = {known[part] for part in plain(word).split() if len(part) > 1 and part in known}
    return found.pop() if len(found) == 1 else ""


def is_small(cells: pd.Series) -> bool:
    """Whether many of the cells are small whole numbers: they name a file, or are in a header, by chance."""
    return bool(cells.dropna().str.fullmatch(r"\d{1,6}").mean() >= 0.5)


def count(number: int, total: int, noun: str = "cells") -> str:
    """`9,812 of 9,900 cells`."""
    return f"{number:,} of {total:,} {noun}"


def listed_rows(rows: Sequence[int] | pd.Index) -> str:
    """`row 7`, or the first of several."""
    shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
    more = len(rows) - _SHOWN_ROWS
    return f"row{'s' if len(rows) != 1 else ''} {shown}" + (f" and {more:,} more" if more > 0 else "")


def unknown_words(cells: pd.Series, words: Collection[str]) -> str:
    """Words of cells with their counts; of those that few rows have, which may be names, the rows."""
    counts = cells.value_counts()
    shown = [f"'{word}' ({counts[word]:,})" for word in words if counts[word] >= SHOWN_FROM]
    hidden = [word for word in words if counts[word] < SHOWN_FROM]
    if hidden:
        rows = listed_rows(cells.index[cells.isin(hidden)])
        shown.append(
            f"{len(hidden)} that fewer than {SHOWN_FROM} rows have ({rows}; remove totals, or add --drop total)"
        )
    return ", ".join(shown)
