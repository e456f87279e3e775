"""What the user says beforehand, and whom to ask where a guess is weak."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from chestfed.core.errors import ConfigError
from chestfed.sites.spreadsheet.term_table import TermRow

#: What a flag is given for "there is no such column".
NONE = "none"
#: What `--word` is given for a word that counts as an empty cell.
MISSING = "missing"


@dataclass(frozen=True)
class Choices:
    """What the flags say; None, or empty, is a guess.

    `columns` maps image, patient, study, view, split, sex, age, reader, findings and value to a column or `none`;
    `labels` maps a disease to columns or terms; `values` maps a cell to positive, negative, uncertain or blank; `words`
    maps view, split, sex and age to words, in lower case, and their meanings. `terms` are the rows of the mapping table
    that an earlier call wrote.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
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


class Chooser(Protocol):
    """Who decides."""

    def choose(
        self,
        what: str,
        flag: str,
        guess: str | None,
        candidates: Sequence[str],
        why: str,
        examples: Sequence[str] = (),
    ) -> str:
        """One of the candidates. `guess` is None where the evidence, `why`, is weak; `flag` would have settled it.

        `examples` may name files of patients: they are for a person at the terminal and belong into no error.
        """
        ...


class TakesGuesses:
    """Nobody is asked: a guess is taken, and without one it stops."""

    def choose(
        self,
        what: str,
        flag: str,
        guess: str | None,
        candidates: Sequence[str],
        why: str,
        examples: Sequence[str] = (),
    ) -> str:
        """The guess.

        Raises
        ------
        ConfigError
            Without a guess: with the candidates and the flag.
        """
        if guess is not None:
            return guess
        listed = f" Candidates: {', '.join(candidates)}." if candidates else ""
        raise ConfigError(f"{what}: {why}.{listed} Say which with {flag}")


def named_column(name: str, names: Sequence[str], flag: str) -> str:
    """The column that a flag names; capitals do not matter.

    Raises
    ------
    ConfigError
        If there is none.
    """
    alike = [other for other in names if other.casefold() == name.strip().casefold()]
    if name in names or len(alike) == 1:
        return name if name in names else alike[0]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean '{close[0]}'?" if close else f"; found: {', '.join(names)}"
    raise ConfigError(f"{flag} {name}: no such column{hint}")
