"""The terms in a column of findings: how cells are cut into them, and what each means."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pandas as pd

from chestfed.new_site import words
from chestfed.new_site.diseases import Match, disease_of
from chestfed.sites.terms import listed, normal

_SEPARATORS: Final = ("|", ";", ",", "/", "+", "&")
#: Different cells of a column that are looked at to see whether it is one of findings.
_SAMPLE: Final = 3000
_LONGEST: Final = 60
#: Signs before or behind a term, as in `-edema` or `edema?`, may turn it round.
_WHOLE: Final = re.compile(r"[\w(].*[\w).]|\w")
#: Share of the cells that must hold a list.
_LISTS: Final = 0.95


@dataclass(frozen=True)
class Term:
    """A term without denial and doubt, and what it means; `denied` and `doubted` are the words removed."""

    word: str
    match: Match | None
    healthy: bool
    denied: str = ""
    doubted: str = ""

    @property
    def known(self) -> bool:
        """Whether it means a disease, or none."""
        return self.healthy or self.match is not None


def read_term(term: str) -> Term:
    """What a term means; `no finding` is no denied `finding`."""
    word = normal(term)
    denied = doubted = ""
    while True:
        whole = _WHOLE.fullmatch(word) is not None
        healthy = whole and words.plain(word) in words.NO_FINDING
        match = disease_of(word) if whole and not healthy and len(word) <= _LONGEST else None
        if healthy and (denied or doubted):
            return Term(normal(term), None, False)
        if healthy or match is not None:
            return Term(word, match, healthy, denied, doubted)
        before = word
        if not doubted:
            word, doubted = _without(word, words.DOUBTS, words.DOUBT_SIGNS)
        if not denied and word == before:
            word, denied = _without(word, words.NEGATIONS)
        if word == before:
            return Term(word, None, False, denied, doubted)


def _without(word: str, prefixes: Iterable[str], suffixes: Iterable[str] = ()) -> tuple[str, str]:
    for prefix in sorted(prefixes, key=len, reverse=True):
        if word.startswith(f"{prefix} "):
            return word[len(prefix) + 1 :], prefix
    for suffix in suffixes:
        if word.endswith(suffix) and word != suffix:
            return word[: -len(suffix)].rstrip(), suffix
    return word, ""


@dataclass(frozen=True)
class TermColumn:
    """A column of findings. `counts` are the terms as read, with the number of cells; `lists` if cells hold lists."""

    column: str
    lists: bool
    separator: str | None
    cells: int
    telling: int
    counts: Counter[Term] = field(repr=False)

    @property
    def diseases(self) -> set[str]:
        """The diseases that some term means."""
        return {term.match.disease for term in self.counts if term.match is not None}

    @property
    def share(self) -> float:
        """Share of the cells with a term that is known."""
        return self.telling / self.cells if self.cells else 0.0


def look_at_terms(cells: pd.Series, separators: Sequence[str] = _SEPARATORS, *, sample: bool) -> TermColumn | None:
    """The column as one of findings; None if nothing in it is known. With `sample`, from some of its cells."""
    counted = cells.dropna().value_counts()
    if sample:
        counted = counted.head(_SAMPLE)
    if counted.empty:
        return None
    pairs = [(str(cell), int(number)) for cell, number in counted.items()]
    total = sum(number for _, number in pairs)
    lists = sum(number for cell, number in pairs if listed(cell) is not None)
    if lists >= _LISTS * total and any(cell.startswith("[") for cell, _ in pairs):
        return _read(str(cells.name), [(listed(cell) or [], number) for cell, number in pairs], None, lists=True)
    found = [_read(str(cells.name), [([cell], number) for cell, number in pairs], None, lists=False)]
    for separator in separators:
        if any(separator in cell for cell, _ in pairs):
            cut = [(cell.split(separator), number) for cell, number in pairs]
            found.append(_read(str(cells.name), cut, separator, lists=False))
    best = max(found, key=lambda column: (_known(column), column.separator is None))
    return best if best.telling else None


def _known(column: TermColumn) -> float:
    """Known terms, less those that are not: a separator too few or too many makes nonsense of terms."""
    known = sum(number for term, number in column.counts.items() if term.known)
    return known - 0.25 * (sum(column.counts.values()) - known)


def _read(column: str, cells: Sequence[tuple[list[str], int]], separator: str | None, *, lists: bool) -> TermColumn:
    counts: Counter[Term] = Counter()
    telling = 0
    seen: dict[str, Term] = {}
    for terms, number in cells:
        read = [seen.setdefault(term, read_term(term)) for term in terms if term.strip()]
        telling += number if any(term.known for term in read) else 0
        for term in read:
            counts[term] += number
    return TermColumn(column, lists, separator, sum(number for _, number in cells), telling, counts)
