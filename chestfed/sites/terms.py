"""Terms of findings: the list in a cell, negated and uncertain terms, what a cell says of each disease."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from chestfed.sites.findings import BLANK, NEGATIVE, POSITIVE, STRENGTH, UNCERTAIN, UNLABELLED

#: A longer cell is no list of findings.
_LONGEST = 20_000


def normal(term: str) -> str:
    """A term in small letters with single blanks."""
    return " ".join(term.lower().split())


def listed(cell: str) -> list[str] | None:
    """The strings of a cell that holds a list, written as in Python or JSON; None if it does not. Nothing is run."""
    if len(cell) > _LONGEST:
        return None
    try:
        items = ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        try:
            items = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return None
    return items


@dataclass(frozen=True)
class Grammar:
    """The terms of a site and the words around them, all in `normal` form.

    `labels` maps a disease to its terms. `silent` terms say nothing of the diseases; with `lenient` any other does so.
    Beside an `unlabelled` term what is not named is not labelled; with `wary` any other term is one.
    """

    labels: Mapping[str, frozenset[str]]
    no_finding: frozenset[str]
    silent: frozenset[str]
    unlabelled: frozenset[str]
    lenient: bool
    wary: bool
    negations: tuple[str, ...]
    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]
    #: All terms of diseases, and all that the site names.
    findings: frozenset[str] = field(init=False)
    known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        findings: frozenset[str] = frozenset().union(*self.labels.values())
        object.__setattr__(self, "findings", findings)
        object.__setattr__(self, "known", findings | self.no_finding | self.silent | self.unlabelled)

    def read(self, term: str) -> tuple[str, np.int8] | None:
        """The plain term and what is said of it; None if it is not known. A term in doubt is uncertain, negated or not.

        A term that the site names as it stands wins over its parts: "no finding" is no negated "finding".
        """
        word, negated, doubtful = term, False, False
        while word not in self.known:
            before = word
            if not doubtful:
                word = without(word, self.prefixes, self.suffixes)
                doubtful = word != before
            if not negated and word == before:
                word = without(word, self.negations)
                negated = word != before
            if word == before:
                return (term, POSITIVE) if self.lenient or self.wary else None
        if (negated or doubtful) and word in self.no_finding:
            return None
        return word, UNCERTAIN if doubtful else NEGATIVE if negated else POSITIVE


@dataclass(frozen=True)
class Said:
    """What is said of an image: a raw finding per disease, and whether that contradicts itself."""

    findings: Mapping[str, np.int8]
    contrary: bool = False


def together(pairs: Collection[tuple[str, np.int8]], grammar: Grammar) -> Said:
    """What terms, each with its raw finding, say together.

    A disease that is not named is blank, beside a term of `no_finding` negative; without terms, or beside a term of
    `unlabelled`, it is unlabelled.
    Contrary: a finding beside `no_finding`, the same term both there and not, or a disease denied as a whole that is
    there under another name: `pulmonary edema` beside `no edema`, not `effusion` beside `no large effusion`.
    """
    healthy = any(word in grammar.no_finding and code == POSITIVE for word, code in pairs)
    unread = any(word in grammar.unlabelled or (grammar.wary and word not in grammar.known) for word, _ in pairs)
    rest = UNLABELLED if not pairs or unread else NEGATIVE if healthy else BLANK
    given = [(word, code) for word, code in pairs if code != BLANK]
    codes = {
        disease: max(
            (code for word, code in given if word in names), key=lambda code: STRENGTH[int(code)], default=rest
        )
        for disease, names in grammar.labels.items()
    }
    there = {word for word, code in given if code != NEGATIVE and word in grammar.findings}
    absent = {word for word, code in given if code == NEGATIVE}
    turned = any(
        _denies(disease, word, other)
        for disease, names in grammar.labels.items()
        for word in absent & names
        for other, code in given
        if code == POSITIVE and other in names
    )
    return Said(codes, turned or bool(there & absent) or (healthy and bool(there)))


def _denies(disease: str, denied: str, there: str) -> bool:
    """Whether a denied term is the name of the disease, or one of which the other is a closer description."""
    return denied == disease.replace("_", " ") or set(denied.split()) <= set(there.split())


def terms_of(cell: Iterable[str], grammar: Grammar) -> list[str]:
    """The terms of a cell in `normal` form; the empty cell is one if `no_finding` names it."""
    return [term for term in map(normal, cell) if term] or ([""] if "" in grammar.no_finding else [])


def without(word: str, prefixes: Iterable[str], suffixes: Iterable[str] = ()) -> str:
    """The word without the first of these before or behind it; what ends with an apostrophe needs no blank behind."""
    for prefix in prefixes:
        if word.startswith(prefix if prefix.endswith(("'", "’")) else f"{prefix} ") and word != prefix:
            return word[len(prefix) :].lstrip()
    for suffix in suffixes:
        if word.endswith(suffix) and word != suffix:
            return word[: -len(suffix)].rstrip()
    return word
