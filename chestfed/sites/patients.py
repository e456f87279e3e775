"""Names of patients: one spelling for what spreadsheets write in several ways."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

import numpy as np
import pandas as pd

#: Characters of no width.
_NO_WIDTH: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_INVISIBLE: Final = ("Cc", "Cf", "Zs", "Zl", "Zp")
#: Letters and one number, as a spreadsheet may have rewritten it: `0012`, `12`, `12.0`.
_NUMBERED: Final = re.compile(r"(\D*)(\d+)(?:[.,]0+)?")


def without_invisible(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows whose patients' names are without characters of no width, and how many names had any.

    A byte order mark or a zero-width space within a name, as copied text may have them, would make another patient,
    and so put one person into two splits.
    """
    names = frame["patient"].dropna().drop_duplicates().astype("str")
    marked = names[names.str.contains(_NO_WIDTH)]
    if marked.empty:
        return frame, 0
    seen = {name: _NO_WIDTH.sub("", name).strip() or None for name in marked}
    return frame.assign(patient=frame["patient"].map(lambda name: seen.get(name, name))), len(seen)


def plain_id(name: str) -> str:
    """An id in small letters, without blanks, invisible characters, leading zeros, or the `.0` of a number."""
    if name.isascii() and name.isprintable():
        visible = name.lower().replace(" ", "")
    else:
        folded = unicodedata.normalize("NFKC", _drop_invisible(name)).casefold()
        visible = _drop_invisible(folded)
    numbered = _NUMBERED.fullmatch(visible)
    return visible if numbered is None else f"{numbered[1]}{numbered[2].lstrip('0') or '0'}"


def group_spellings(patients: Iterable[str]) -> list[list[str]]:
    """Different names with one `plain_id`, together; all others are left out."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(patients):
        groups.setdefault(plain_id(name), []).append(name)
    return [names for plain, names in groups.items() if plain and len(names) > 1]


def similar_ids(frame: pd.DataFrame) -> dict[int, int]:
    """Rows whose patient is, except for the spelling of the id, in another split at an earlier row.

    Keys and values are places in the frame, which has the columns `patient` and `split`: one pair per person. Ids that
    are the same are not reported.
    """
    groups = {name: number for number, names in enumerate(group_spellings(frame["patient"])) for name in names}
    persons, splits = frame["patient"].map(groups).to_numpy(), frame["split"].tolist()
    names = frame["patient"].tolist()
    first: dict[int, list[int]] = {}
    pairs: dict[int, tuple[int, int]] = {}
    for place in np.flatnonzero(~np.isnan(persons.astype(float))).tolist():
        person = int(persons[place])
        for earlier in first.setdefault(person, []):
            if names[place] != names[earlier] and splits[place] != splits[earlier]:
                pairs.setdefault(person, (place, earlier))
        if all((names[place], splits[place]) != (names[other], splits[other]) for other in first[person]):
            first[person].append(place)
    return dict(pairs.values())


def _drop_invisible(name: str) -> str:
    return "".join(letter for letter in name if unicodedata.category(letter) not in _INVISIBLE)
