"""The terms in a column of findings: how cells are cut into them, and what each means."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.new_site import words
from chestfed.new_site.phrases import read_phrase
from chestfed.new_site.term_words import AND, DENY, OR, PLACES_AFTER_NO, SEEN, TAKE_BACK
from chestfed.sites.terms import listed, normal, without

_SEPARATORS: Final = ("|", ";", ",", "/", "+", "&")
#: Different cells of a column that are looked at to see whether it is one of findings.
_SAMPLE: Final = 3000
_LONGEST: Final = 100
#: Of these separators it is not certain that a denial or doubt ends there, as in `no effusion/edema`.
_LOOSE: Final = (",", "/", "+", "&")
#: Share of the cells that must hold a list.
_LISTS: Final = 0.95

#: What a term tells: a disease, that there is none, something that has nothing to do with one, or what is not known.
Kind = Literal["disease", "healthy", "other", "open"]


@dataclass(frozen=True)
class Term:
    """A term in `normal` form and what it means; `word` is without denial and doubt, which are the words removed.

    An open term is one whose meaning is not certain; its `word` is the whole of it.
    """

    text: str
    word: str
    kind: Kind
    diseases: tuple[str, ...] = ()
    how: str = ""
    denied: str = ""
    doubted: str = ""

    @property
    def known(self) -> bool:
        """Whether its meaning is certain."""
        return self.kind != "open"


def read_term(term: str, said: Mapping[str, str] = MappingProxyType({})) -> Term:
    """What a term means; `no finding` is no denied `finding`.

    `said` maps a term in `normal` form to a disease, or to healthy, other or open; it wins.
    """
    text = word = normal(term)
    denied = doubted = ""
    while True:
        read = _meaning(word, said, denied=bool(denied))
        if read is not None:
            part = bool(read.diseases and denied and not (read.whole or doubted))
            turned = read.kind == "healthy" and (denied or doubted)
            if part or turned or read.kind == "open":
                return Term(text, text, "open")
            return Term(text, word, read.kind, read.diseases, read.how, denied, doubted)
        before = word
        if not doubted:
            word, doubted = _taken_off(word, words.DOUBTS, words.DOUBT_SIGNS)
        if not denied and word == before:
            word, denied = _taken_off(word, words.NEGATIONS)
        if word == before or (denied == "no" and _first(word) in PLACES_AFTER_NO):
            return Term(text, text, "open")


@dataclass(frozen=True)
class _Meaning:
    kind: Kind
    diseases: tuple[str, ...] = ()
    how: str = ""
    whole: bool = True


def _meaning(word: str, said: Mapping[str, str], *, denied: bool) -> _Meaning | None:
    """What is said of a word, or what it means by itself."""
    clear = words.is_clear(word) and len(word) <= _LONGEST
    phrase = read_phrase(word, denied=denied) if clear else None
    if word in said:
        meaning = said[word]
        if meaning in TITLES:
            return _Meaning("disease", (meaning,), "as said", phrase is None or phrase.whole)
        return _Meaning("healthy" if meaning == "healthy" else "other" if meaning == "other" else "open")
    if clear and words.plain(word) in words.NO_FINDING:
        return _Meaning("healthy")
    if phrase is None:
        return None
    return _Meaning("disease" if phrase.diseases else "other", phrase.diseases, phrase.how, phrase.whole)


def _taken_off(word: str, prefixes: Iterable[str], suffixes: Iterable[str] = ()) -> tuple[str, str]:
    """The word without a prefix, whose accents do not matter, or a suffix; and what was taken off, as it stood."""
    bare = _bare(word)
    for prefix in sorted(prefixes, key=len, reverse=True):
        rest = without(bare, [_bare(prefix)])
        if rest != bare:
            return word[len(word) - len(rest) :], word[: len(prefix)]
    rest = without(word, (), suffixes)
    return rest, word[len(rest) :].strip()


def _first(text: str) -> str:
    return next(iter(words.plain(text).split()), "")


def _bare(text: str) -> str:
    """As many letters, without accents."""
    return "".join(unicodedata.normalize("NFD", letter)[0] for letter in text)


@dataclass(frozen=True)
class TermColumn:
    """A column of findings. `counts` are the terms as read, with the number of cells; `lists` if cells hold lists.

    `telling` cells name a disease or no finding. In `sentences` of them what denies reaches over several terms.
    """

    column: str
    lists: bool
    separator: str | None
    cells: int
    telling: int
    counts: Counter[Term] = field(repr=False)
    sentences: int = 0

    @property
    def diseases(self) -> set[str]:
        """The diseases that some term means."""
        return {disease for term in self.counts for disease in term.diseases}

    @property
    def share(self) -> float:
        """Share of the cells with a term that is known."""
        return self.telling / self.cells if self.cells else 0.0


def look_at_terms(
    cells: pd.Series,
    separators: Sequence[str] = _SEPARATORS,
    *,
    sample: bool,
    said: Mapping[str, str] = MappingProxyType({}),
) -> TermColumn | None:
    """The column as one of findings; None if nothing in it is known. With `sample`, from some of its cells.

    `said` is as in `read_term`.
    """
    counted = cells.dropna().value_counts()
    if sample:
        counted = counted.head(_SAMPLE)
    if counted.empty:
        return None
    name = str(cells.name)
    pairs = [(str(cell), int(number)) for cell, number in counted.items()]
    total = sum(number for _, number in pairs)
    lists = sum(number for cell, number in pairs if listed(cell) is not None)
    if lists >= _LISTS * total and any(cell.startswith("[") for cell, _ in pairs):
        best = _read(name, [(listed(cell) or [], number) for cell, number in pairs], None, said, lists=True)
        return best if best.telling else None
    found = [_read(name, [([cell], number) for cell, number in pairs], None, said, lists=False)]
    for separator in separators:
        if any(separator in cell for cell, _ in pairs):
            cut = [(cell.split(separator), number) for cell, number in pairs]
            found.append(_read(name, cut, separator, said, lists=False))
    best = max(found, key=lambda column: (_known(column), column.separator is None))
    return best if best.telling else None


def _known(column: TermColumn) -> float:
    """Known terms, less those that are not: a separator too few or too many makes nonsense of terms."""
    known = sum(number for term, number in column.counts.items() if term.known)
    return known - 0.25 * (sum(column.counts.values()) - known)


def _read(
    column: str,
    cells: Sequence[tuple[list[str], int]],
    separator: str | None,
    said: Mapping[str, str],
    *,
    lists: bool,
) -> TermColumn:
    counts: Counter[Term] = Counter()
    telling = sentences = 0
    seen: dict[str, Term] = {}
    for terms, number in cells:
        read = [seen.setdefault(term, read_term(term, said)) for term in terms if term.strip()]
        telling += number if any(term.kind in ("disease", "healthy") for term in read) else 0
        sentences += number if _is_sentence(read, separator) else 0
        for term in read:
            counts[term] += number
    return TermColumn(column, lists, separator, sum(number for _, number in cells), telling, counts, sentences)


def _is_sentence(terms: Sequence[Term], separator: str | None) -> bool:
    """`no a, b or c`, where b is denied too, and `a, absent`: terms that cannot be read one by one.

    Behind a separator that is loose, neither can `no a, b`, `possible a/b`, `a, b absent` and `a/b?`.
    """
    loose = separator in _LOOSE
    joints = OR | AND if loose else OR
    reaches = named = False
    for term in terms:
        parts = words.plain(term.text).split()
        own = bool(term.denied or term.doubted)
        if reaches and not term.denied and not joints.isdisjoint(parts):
            return True
        if loose and reaches and term.kind == "disease" and not own:
            return True
        if named and (_takes_back(term, parts, separator) if loose else _only_takes_back(term, parts)):
            return True
        doubts = loose and _taken_off(term.text, words.DOUBTS)[1] != ""
        reaches = reaches or doubts or not DENY.isdisjoint(parts)
        named = named or term.kind == "disease"
    return False


def _only_takes_back(term: Term, parts: Sequence[str]) -> bool:
    return term.kind == "open" and bool(parts) and (TAKE_BACK | SEEN).issuperset(parts)


def _takes_back(term: Term, parts: Sequence[str], separator: str | None) -> bool:
    """Whether it may take back what stands before it: `absent`, `b ruled out`, `-`; behind other than a comma `b?`."""
    if separator != "," and (term.kind == "open" or term.doubted) and not words.is_clear(term.text):
        return True
    if term.kind != "open" or _only_takes_back(term, parts):
        return term.kind == "open"
    return not parts or parts[-1] in TAKE_BACK or (parts[-1] in SEEN and not DENY.isdisjoint(parts[1:]))
