"""Which disease a column is called like, and what a term seems to mean: by exact names, else as a suggestion."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from chestfed.new_site import lexicon
from chestfed.new_site.lexicon import DENIALS, DOUBT_SIGNS, DOUBTS, LOOKALIKES, NAMES, UNRELATED, Name, is_clear, plain
from chestfed.sites.reader import NEGATIVE, POSITIVE, UNCERTAIN
from chestfed.sites.terms import IGNORED, NORMAL, Meaning

_NEAR: Final = 0.9
#: A shorter word has too many neighbors.
_SHORTEST: Final = 6
#: What may follow a name in an inflected form of it.
_INFLECTIONS: Final = ("s", "es", "e", "n", "en", "r", "er", "em")
_LONGEST_NAME: Final = max(len(name.split()) for name in NAMES)
#: The first letters of the names: a word in a sentence that begins otherwise is not compared with them.
_STARTS: Final = frozenset(name[:3] for name in NAMES)
_DENYING: Final = frozenset(plain(word).split()[0] for word in DENIALS)
_DOUBTING: Final = frozenset(part for word in DOUBTS if len(parts := plain(word).split()) == 1 for part in parts)


def _without_accents(text: str) -> str:
    """As many letters, without their accents."""
    return "".join(unicodedata.normalize("NFD", letter)[0] for letter in text)


#: Denials and doubts as they are written, as a term begins with them, and what they make of a name.
_PREFIXES: Final = [
    (word, _without_accents(word) + ("" if word.endswith(("'", "’")) else " "), code)
    for words, code in ((DOUBTS, UNCERTAIN), (DENIALS, NEGATIVE))
    for word in words
]


@lru_cache(maxsize=20_000)
def disease_of(name: str) -> Name | None:
    """The disease that a column is called like, misspelled or with words of place and degree; None if uncertain."""
    if not is_clear(name):
        return None
    word = plain(name)
    bare = " ".join(part for part in word.split() if part not in lexicon.QUALIFIERS)
    return _look_up(word) or (_look_up(bare) if bare else None)


@lru_cache(maxsize=50_000)
def _look_up(word: str) -> Name | None:
    """The disease of a name in `plain` form, as it is or misspelled."""
    if word in LOOKALIKES:
        return None
    if word in NAMES:
        return NAMES[word]
    if len(word) < _SHORTEST or any(letter.isdigit() for letter in word):
        return None
    if difflib.get_close_matches(word, LOOKALIKES, n=1, cutoff=_NEAR):
        return None
    comparable = [name for name in NAMES if len(name) >= _SHORTEST and _may_be_misspelled(name, word)]
    near = difflib.get_close_matches(word, comparable, n=5, cutoff=_NEAR)
    diseases = {NAMES[name].disease for name in near}
    return Name(diseases.pop(), "a similar spelling") if len(diseases) == 1 else None


def _may_be_misspelled(name: str, word: str) -> bool:
    """Whether they have as many words, none with letters added in front or behind, such as `no` or `un`."""
    ours, theirs = word.split(), name.split()
    return len(ours) == len(theirs) and not any(
        our != their
        and (our.endswith(their) or (our.startswith(their) and our.removeprefix(their) not in _INFLECTIONS))
        for our, their in zip(ours, theirs, strict=True)
    )


@dataclass(frozen=True)
class Suggestion:
    """What a term seems to mean (None: unknown) and why; `exact`: the whole of it is known to the lexicon.

    `about` are the diseases that it mentions, also where it is uncertain what it says of them.
    """

    meaning: Meaning | None
    why: str
    exact: bool = False
    about: frozenset[str] = frozenset()


#: What the lexicon knows as a whole, in `plain` form.
_WHOLE: Final = {
    **dict.fromkeys(lexicon.NORMAL, Suggestion(NORMAL, "means no finding", exact=True)),
    **dict.fromkeys(UNRELATED, Suggestion(IGNORED, "an unrelated finding", exact=True)),
    **{word: Suggestion(Meaning({name.disease: POSITIVE}), name.why, exact=True) for word, name in NAMES.items()},
}


@lru_cache(maxsize=50_000)
def suggest(term: str) -> Suggestion:
    """What a term in `normal` form seems to mean.

    Exact is only a name of a disease, with a denial or a doubt around the whole of it, an unrelated finding, or a term
    that means no finding. Everything else is for a person to confirm.
    """
    if not term:
        return Suggestion(None, "empty cell")
    found = _WHOLE.get(plain(term)) if is_clear(term) else None
    if found is None and is_clear(term):
        bare = _without_accents(term)
        for prefix, start, code in _PREFIXES:
            if found is None and bare.startswith(start):
                found = _turned(term[len(start) :].strip(), code, f"'{prefix}' and a name")
    for sign in DOUBT_SIGNS:
        if found is None and term.endswith(sign):
            found = _turned(term.removesuffix(sign).strip(), UNCERTAIN, f"a name and '{sign}'")
    return found or _contained(term)


def suggest_value(term: str, says: str | None) -> Suggestion:
    """What a term seems to mean beside a value that is positive, negative, uncertain, blank, or None if unknown."""
    found = suggest(term)
    if says not in ("positive", "negative", "uncertain"):
        return Suggestion(None, f"{says or 'unknown'} value; {found.why}")
    if says == "positive":
        return found
    if found.meaning is None or set(found.meaning.findings.values()) != {POSITIVE}:
        return Suggestion(None, f"{says}: {found.why}")
    name = NAMES.get(plain(term))
    whole = found.exact and (says == "uncertain" or (name is not None and not name.kind))
    code = NEGATIVE if says == "negative" else UNCERTAIN
    return Suggestion(Meaning(dict.fromkeys(found.meaning.findings, code)), f"{says}: {found.why}", exact=whole)


def _turned(rest: str, code: object, why: str) -> Suggestion | None:
    """A name that is denied or doubted as a whole; a denied kind of a disease leaves the others open."""
    name = NAMES.get(plain(rest)) if is_clear(rest) else None
    if name is None or (code == NEGATIVE and name.kind):
        return None
    return Suggestion(Meaning({name.disease: code}), why, exact=True)  # type: ignore[dict-item]


def _contained(term: str) -> Suggestion:
    """The names among the words of a term, each denied or doubted by the words before it."""
    if plain(term) in lexicon.MAYBE_NORMAL:
        return Suggestion(NORMAL, "no finding, or not looked at")
    parts, findings, names, unrelated = plain(term).split(), {}, [], False
    turned = not is_clear(term)  # a sign, or a word that no denial or doubt in front of a name accounts for
    place = 0
    while place < len(parts):
        length, name, other = _longest_name(parts[place:])
        unrelated = unrelated or other
        if name is not None:
            before = _DENYING.intersection(parts[:place]), _DOUBTING.intersection(parts[:place])
            findings[name.disease] = NEGATIVE if before[0] else UNCERTAIN if before[1] else POSITIVE
            names.append(" ".join(parts[place : place + length]))
        elif parts[place] in lexicon.TURNING:
            turned = turned or bool(names) or parts[place] not in _DENYING | _DOUBTING
        place += length
    if not findings:
        return Suggestion(IGNORED, "contains an unrelated finding") if unrelated else Suggestion(None, "unknown")
    listed = ", ".join(f"'{name}'" for name in names)
    if turned:
        why = f"contains {listed}, and a word or sign that may reverse it"
        return Suggestion(None, why, about=frozenset(findings))
    return Suggestion(Meaning(findings), f"contains {listed}", about=frozenset(findings))


def _longest_name(parts: Sequence[str]) -> tuple[int, Name | None, bool]:
    """How many words the longest name at the beginning has, its disease, and whether it is of something else."""
    for length in range(min(_LONGEST_NAME, len(parts)), 0, -1):
        word = " ".join(parts[:length])
        if word in LOOKALIKES or word in UNRELATED:
            return length, None, word in UNRELATED
        if word in NAMES:
            return length, NAMES[word], False
    near = _look_up(parts[0]) if parts[0][:3] in _STARTS else None
    return 1, near, False


def diseases_in(meanings: Iterable[Meaning | None]) -> set[str]:
    """The diseases that some of the meanings mention."""
    return {disease for meaning in meanings if meaning is not None for disease in meaning.findings}
