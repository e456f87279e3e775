"""What a finding in words is about: the name of a disease among words of place, shape, degree and time.

Every word has to be known: one that is not may turn the rest round, as in `resolved effusion`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from chestfed.new_site import words
from chestfed.new_site.diseases import KIN, NAMES, OTHERS, PARTS, Match, look_up
from chestfed.new_site.term_words import ABOUT, AND, DENY, FILLERS, MODIFIERS, NEUTRAL, OR, OTHER_FINDINGS

_AROUND: Final = NEUTRAL | MODIFIERS
#: What `Phrase.how` adds where words stand around a name.
AROUND: Final = "with words around it"


def _bare(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part not in _AROUND)


#: Names without the words around them. One word that is no name by itself, such as heart, is none so either.
_BARE: Final = {
    bare: Match(*meaning)
    for name, meaning in NAMES.items()
    if (bare := _bare(name.split())) in NAMES or bare.count(" ") > 0
}
_OTHERS: Final = frozenset(_bare(name.split()) for name in OTHERS) - {_bare(name.split()) for name in KIN}
_KNOWN: Final = (
    _AROUND
    | AND
    | OR
    | DENY
    | OTHER_FINDINGS
    | {
        part
        for text in (*NAMES, *OTHERS, *words.NEGATIONS, *words.DOUBTS, *words.NO_FINDING)
        for part in words.plain(text).split()
    }
)


@dataclass(frozen=True)
class Phrase:
    """The diseases that a finding names, none for a finding of another kind, and why.

    `whole`: denied, it denies them altogether; `large effusion` does not, for a small one may be there.
    """

    diseases: tuple[str, ...]
    how: str
    whole: bool


@lru_cache(maxsize=20_000)
def read_phrase(text: str, *, denied: bool = False) -> Phrase | None:
    """What a finding means, without the word that denied it if it is `denied`; None if that is not certain."""
    parts = words.plain(text).split()
    match = look_up(" ".join(parts))
    if match is not None:
        return Phrase((match.disease,), match.how, _is_whole(parts))
    joints = OR if denied else AND
    if any(part in (AND if denied else OR) for part in parts):
        return None
    read = [_read_part(group) for group in _groups(parts, joints)]
    if not read or None in read:
        return None
    found = [phrase for phrase in read if phrase is not None]
    diseases = tuple(dict.fromkeys(disease for phrase in found for disease in phrase.diseases))
    how = next((phrase.how for phrase in found if phrase.diseases), "another finding")
    return Phrase(diseases, how, all(phrase.whole for phrase in found))


def about(text: str) -> tuple[str, ...]:
    """The diseases of which a text holds a word, understood or not."""
    word = words.plain(text)
    return tuple(disease for disease, stems in ABOUT.items() if any(stem in word for stem in stems))


def of_known_words(text: str) -> bool:
    """Whether a text holds nothing but words that are known here, and so no name of a person."""
    return all(part in _KNOWN for part in words.plain(text).split())


def _groups(parts: Sequence[str], joints: frozenset[str]) -> list[list[str]]:
    """The words between `and`; `left and right effusion` is one group."""
    groups: list[list[str]] = [[]]
    for part in parts:
        if part not in joints:
            groups[-1].append(part)
        elif _bare(groups[-1]):
            groups.append([])
    return groups


def _read_part(parts: Sequence[str]) -> Phrase | None:
    bare = _bare(parts)
    if not bare:
        return None
    if bare in _OTHERS or all(part in OTHER_FINDINGS for part in bare.split()):
        return Phrase((), "another finding", whole=True)
    match = look_up(" ".join(parts)) or _BARE.get(bare) or look_up(bare)
    if match is None:
        return None
    plainly = " ".join(part for part in parts if part not in FILLERS) in (bare, *NAMES)
    return Phrase((match.disease,), match.how if plainly else f"{match.how}, {AROUND}", _is_whole(parts))


def _is_whole(parts: Sequence[str]) -> bool:
    return not any(part in MODIFIERS or part in PARTS for part in parts)
