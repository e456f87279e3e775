"""The words of hospitals' tables in five languages, as `lexicon.yaml` lists them, in the form they are compared in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import yaml


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


_DATA: Final[Any] = yaml.safe_load(resources.files(__package__).joinpath("lexicon.yaml").read_text(encoding="utf-8"))


def _plain_set(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(plain, words))


def _all(languages: Mapping[str, Iterable[str]]) -> list[str]:
    return [word for words in languages.values() for word in words]


def _reversed(key: str) -> dict[str, str]:
    return {plain(word): meaning for meaning, words in _DATA[key].items() for word in words}


@dataclass(frozen=True)
class Name:
    """A name of a disease; `kind`: of one kind or place of it, so that denying it does not deny the disease."""

    disease: str
    why: str
    kind: bool = False


#: Name in `plain` form -> what it means.
NAMES: Final[Mapping[str, Name]] = {
    **{plain(name): Name(of, "a kind of it", kind=True) for of, names in _DATA["kinds"].items() for name in names},
    **{plain(name): Name(of, "a synonym") for of, names in _DATA["diseases"].items() for name in _all(names)},
    **{plain(f"{disease}s"): Name(disease, "a synonym") for disease in _DATA["diseases"]},
    **{plain(disease): Name(disease, "its name") for disease in _DATA["diseases"]},
}
LOOKALIKES: Final = _plain_set(_DATA["lookalikes"])
UNRELATED: Final = _plain_set(_all(_DATA["unrelated"]))
NORMAL: Final = _plain_set(_all(_DATA["normal"]))
MAYBE_NORMAL: Final = _plain_set(_DATA["maybe_normal"])
#: As they are written in lower case, the longest first.
DENIALS: Final = tuple(sorted({str(word) for word in _all(_DATA["denials"])}, key=len, reverse=True))
DOUBTS: Final = tuple(sorted({str(word) for word in _all(_DATA["doubts"])}, key=len, reverse=True))
DOUBT_SIGNS: Final = tuple(_DATA["doubt_signs"])
TURNING: Final = _plain_set(_DATA["turning"])
QUALIFIERS: Final = _plain_set(_DATA["qualifiers"])
#: What a column is -> what it may be called.
COLUMNS: Final = {what: _plain_set(names) for what, names in _DATA["columns"].items()}
VIEWS: Final = _reversed("views")
SPLITS: Final = _reversed("splits")
SEXES: Final = _reversed("sexes")
#: As the cells are written, in lower case: `plain` would make `?` and `+` empty.
VALUES: Final = {word: meaning for meaning, words in _DATA["values"].items() for word in words}
MISSING: Final = frozenset(_DATA["missing"])

_BESIDE_VIEWS: Final = _plain_set(_DATA["beside_views"])
_LYING: Final = _plain_set(_DATA["lying"])
_FRONTAL: Final = frozenset(word for word, view in VIEWS.items() if view == "frontal")


def view_of(text: str) -> str | None:
    """The view that a cell names: `a.p. liegend` is ap, `RX torax LAT izquierda` lateral.

    None for unknown words, and for a posture (standing, sitting) alone: that may be any view.
    """
    rest = [word for word in plain(text).split() if word not in _BESIDE_VIEWS]
    bare = [word for word in rest if word not in _LYING]
    ways = (plain(text).split(), rest, bare, [word for word in bare if word not in _FRONTAL])
    found = next((VIEWS[word] for word in (" ".join(way) for way in ways) if word in VIEWS), None)
    lying = len(bare) < len(rest)
    return "ap" if lying and (found == "frontal" or not bare) and found != "other" else found
