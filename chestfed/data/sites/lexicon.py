"""The words of hospitals' tables in five languages: names of columns, diseases, views, splits, sexes and values.

`lexicon.yaml` lists them. Only exact names count: nothing is compared by similar spelling.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, Final, NamedTuple

import yaml

from chestfed.data.sites.reader import NEGATIVE, PER_YEAR, POSITIVE, UNCERTAIN
from chestfed.data.sites.terms import IGNORED, NORMAL, Meaning, parse_meaning

_TEXT: Final = resources.files(__package__).joinpath("lexicon.yaml").read_text(encoding="utf-8")
_DATA: Final[Mapping[str, object]] = yaml.load(_TEXT, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe


def plain(text: str) -> str:
    """Lower case without accents, words separated by single spaces: `ID_Paciente` and `idPaciente` are alike."""
    spaced = re.sub(r"(?<=[a-zäöüß])(?=[A-Z])", " ", text.strip())
    letters = unicodedata.normalize("NFKD", spaced.casefold().replace("ß", "ss").replace("œ", "oe").replace("æ", "ae"))
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.sub(r"[^\w]|_", " ", bare).split())


#: Letters, digits, spaces and signs that separate words; a hyphen between letters; parentheses around words.
_INSIDE: Final = r"(?:[\w\s.,:'’/]|(?<=[^\W\d_])[-\u2010\u2011](?=[^\W\d_]))"
_CLEAR: Final = re.compile(rf"(?=[\w(])(?:{_INSIDE}|\((?=[^\W\d_]){_INSIDE}*\))*(?<=[\w).])")


def is_clear(text: str) -> bool:
    """Whether no sign that `plain` removes may reverse the text; not so `edema (-)` and `edema?`."""
    return _CLEAR.fullmatch(unicodedata.normalize("NFC", text.strip())) is not None


def _list_words(key: str) -> list[str]:
    """The words of a list of the file, or of all languages."""
    node: Any = _DATA[key]
    return [word for words in node.values() for word in words] if isinstance(node, dict) else node


def _read_plain(key: str) -> frozenset[str]:
    return frozenset(map(plain, _list_words(key)))


def _read_groups(key: str) -> dict[str, list[str]]:
    """Meaning -> its words, of all languages."""
    node: Any = _DATA[key]
    return {
        name: [word for inner in words.values() for word in inner] if isinstance(words, dict) else words
        for name, words in node.items()
    }


def _invert(key: str, form: Callable[[str], str] = plain) -> dict[str, str]:
    return {form(word): meaning for meaning, words in _read_groups(key).items() for word in words}


#: Name in `plain` form -> disease; KINDS: names of one kind or place of it, so that denying it denies only that kind.
KINDS: Final = _invert("kinds")
NAMES: Final = {
    **KINDS,
    **_invert("diseases"),
    **{plain(disease + end): disease for disease in _read_groups("diseases") for end in ("", "s")},
}
LOOKALIKES: Final = _read_plain("lookalikes")
UNRELATED: Final = _read_plain("unrelated")
NO_FINDING: Final = _read_plain("normal")
MAYBE_NORMAL: Final = _read_plain("maybe_normal")
_DENIALS: Final = sorted({*_list_words("denials")}, key=len, reverse=True)
_DOUBTS: Final = sorted({*_list_words("doubts")}, key=len, reverse=True)
TURNING: Final = _read_plain("turning")
PASSING: Final = _read_plain("passing")
SIDES: Final = _read_plain("sides")
_JOINING: Final = _read_plain("joining")
_PERCENT: Final = re.compile(r"(?i)\s*(?:[(\[]\s*(?:in\s+)?(?:%|percent)\s*[)\]]|(?:\bin\s+)?(?:%|\bpercent))\s*$")
#: Role of a column -> its possible names, and words that such a name may have besides: `id paciente`, `no de exame`.
COLUMNS: Final = {role: frozenset(map(plain, names)) for role, names in _read_groups("columns").items()}
IDENTIFIERS: Final = _read_plain("identifiers")
#: Words of columns that hold what annotators agreed on, or what a program says: no annotator.
JOINT: Final = COLUMNS["agreed"] | _read_plain("joint")
#: Word in `plain` form -> meaning.
WORDS: Final = {"view": _invert("views"), "split": _invert("splits"), "sex": _invert("sexes")}
#: Label value in lower case -> meaning: unambiguous ones, and those that a person confirms.
VALUES: Final = _invert("values", str)
MAYBE_VALUES: Final = {**dict.fromkeys(_DOUBTS, "uncertain"), **_invert("maybe_values", str)}
NO_ANSWER: Final = frozenset(_list_words("no_answer"))
MISSING: Final = NO_ANSWER | {*_list_words("missing")}

#: Meanings of values that exclude each other, unless they are a pair of these.
_DEFINITE: Final = frozenset(
    ["positive", "negative", "F", "M", "pa", "ap", "frontal", "lateral", "train", "valid", "test"]
)
_COMPATIBLE: Final = ({"frontal", "pa"}, {"frontal", "ap"}, {"valid", "test"})

_BESIDE_VIEWS: Final = _read_plain("beside_views")
_LYING: Final = _read_plain("lying")
_FRONTAL: Final = frozenset(word for word, view in WORDS["view"].items() if view == "frontal")
_LONGEST: Final = max(len(name.split()) for name in NAMES)


def name_view(text: str) -> str | None:
    """The view that a cell names: `a.p. liegend` is ap, `RX torax LAT izquierda` lateral.

    None for unknown words, and for a posture (standing, sitting) alone: that may be any view.
    """
    views = WORDS["view"]
    rest = [word for word in plain(text).split() if word not in _BESIDE_VIEWS]
    bare = [word for word in rest if word not in _LYING]
    ways = (plain(text).split(), rest, bare, [word for word in bare if word not in _FRONTAL])
    view = next((views[word] for word in (" ".join(way) for way in ways) if word in views), None)
    lying = len(bare) < len(rest)
    return "ap" if lying and (view == "frontal" or not bare) and view != "other" else view


def name_unit(header: str) -> str:
    """The unit of the ages of a column that ends like `Age (months)`; empty if it is years, or not told."""
    *before, last = plain(header).split() or [""]
    return last if before and len(last) > 2 and last[-1] in "sen" and PER_YEAR.get(last, 1) > 1 else ""


def holds_percents(header: str) -> bool:
    """Whether a column's name ends like `Cardiomegaly (%)`."""
    return _PERCENT.search(header) is not None


@lru_cache(maxsize=20_000)
def name_disease(header: str) -> str | None:
    """The disease that a column is called like, perhaps with a number in front or `(%)` behind; None for all else.

    A kind or place of it, such as `New effusion`, is not the disease: 0 does not say that it is absent.
    """
    header = _PERCENT.sub("", re.sub(r"^\s*\d+\s*[.)]\s*", "", header))
    word = plain(header)
    return NAMES.get(word) if is_clear(header) and word not in LOOKALIKES and word not in KINDS else None


def name_side(header: str) -> str | None:
    """The disease of a column that is called like it and a side; None for all else."""
    bare = " ".join(word for word in plain(header).split() if word not in SIDES)
    return name_disease(bare) if is_clear(header) and bare != plain(header) and bare not in LOOKALIKES else None


class Suggestion(NamedTuple):
    """A proposed meaning of a term (None: unknown), why, and whether it needs no confirmation by a person."""

    meaning: Meaning | None
    why: str
    certain: bool = False


@lru_cache(maxsize=50_000)
def suggest(term: str) -> Suggestion:
    """The proposed meaning of a finding in `normal` form.

    Certain are a name of a disease, an unrelated finding, and a term for no finding, as a whole. Denials, doubts and
    everything else are for a person.
    """
    word = plain(term)
    if is_clear(term):
        if word in NO_FINDING:
            return Suggestion(NORMAL, "means no finding", certain=True)
        if word in NAMES:
            return Suggestion(Meaning({NAMES[word]: POSITIVE}), "a synonym", certain=True)
        if word in UNRELATED:
            return Suggestion(IGNORED, "an unrelated finding", certain=True)
        for prefixes, code in ((_DOUBTS, UNCERTAIN), (_DENIALS, NEGATIVE)):
            for prefix in prefixes:
                start = plain(prefix) + " "
                name = NAMES.get(word.removeprefix(start)) if word.startswith(start) else None
                if name is not None and not (code == NEGATIVE and word.removeprefix(start) in KINDS):
                    return Suggestion(Meaning({name: code}), f"'{prefix}' and a name")
    if term.endswith("?") and plain(term) in NAMES:
        return Suggestion(Meaning({NAMES[plain(term)]: UNCERTAIN}), "a name and '?'")
    return Suggestion(NORMAL, "no finding, or not looked at") if word in MAYBE_NORMAL else _find_names(term)


def _find_names(term: str) -> Suggestion:
    """The names among the words of a term; no meaning if a word or sign may reverse it."""
    names, rest = list_names(term), list_unread(term)
    if not names:
        return Suggestion(None, "unknown")
    listed = ", ".join(f"'{name}'" for name in names)
    listed += f"; leaves out {', '.join(map(repr, rest))}" if rest else ""
    if may_turn(term):
        return Suggestion(None, f"contains {listed}, and a word or sign that may reverse it")
    if any(f" {words} " in f" {plain(term)} " for words in PASSING):
        return Suggestion(None, f"contains {listed}, and a word for an earlier or a slight one")
    return Suggestion(Meaning(dict.fromkeys(names.values(), POSITIVE)), f"contains {listed}")


def list_names(term: str) -> dict[str, str]:
    """Name -> disease, of the names among the words of a text."""
    return {word: NAMES[word] for word in _cut_words(term) if word in NAMES and word not in LOOKALIKES}


def list_unread(term: str) -> list[str]:
    """The words of a text that name no disease, place, side or degree."""
    words = [word for word in _cut_words(term) if word in LOOKALIKES or word not in NAMES]
    return [word for word in words if word not in SIDES | _JOINING]


def _cut_words(term: str) -> list[str]:
    """The words of a text; those of a name, or of what resembles one or is unrelated, together."""
    parts, words = plain(term).split(), list[str]()
    while parts:
        sizes = range(min(_LONGEST, len(parts)), 1, -1)
        known = (size for size in sizes if " ".join(parts[:size]) in NAMES.keys() | LOOKALIKES | UNRELATED)
        size = next(known, 1)
        words.append(" ".join(parts[:size]))
        del parts[:size]
    return words


def may_deny(header: str) -> bool:
    """Whether a word of a column's name denies, doubts, or says that it is normal."""
    return not {*plain(header).split()}.isdisjoint(TURNING | NO_FINDING)


def may_turn(term: str) -> bool:
    """Whether a word or sign in a term may deny or doubt it, or the term after it."""
    words = plain(term).split()
    return not is_clear(term) or not TURNING.isdisjoint((*words, *map(" ".join, pairwise(words))))


def denies(header: str, disease: str) -> bool:
    """Whether a column's name says that the disease is absent, as `No Edema` does."""
    meaning = suggest(header).meaning
    return meaning is not None and meaning.findings.get(disease) == NEGATIVE


def is_opposite(kind: str, value: str, meaning: str) -> bool:
    """Whether a word that means the same in every table is given the opposite meaning: `no` positive, `male` F."""
    if kind == "finding":
        return _is_opposite_finding(suggest(value), parse_meaning(meaning))
    word = plain(value) if len(value) > 1 else ""  # a letter is of some language
    usual = VALUES.get(value) if kind == "label" else WORDS.get(kind, {}).get(word)
    both = {usual, meaning}
    return len(both) == 2 and both <= _DEFINITE and both not in _COMPATIBLE


def _is_opposite_finding(usual: Suggestion, meaning: Meaning) -> bool:
    """Whether a name, its denial, or a term for no finding, is given the opposite meaning."""
    says = usual.meaning
    if says is None or not (usual.certain or NEGATIVE in says.findings.values()):
        return False
    if says.healthy:
        return POSITIVE in meaning.findings.values()
    other = {disease: meaning.findings.get(disease, NEGATIVE if meaning.healthy else None) for disease in says.findings}
    return any({code, other[disease]} == {POSITIVE, NEGATIVE} for disease, code in says.findings.items())
