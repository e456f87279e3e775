"""Patients whose names differ only in how they are written: capitals, leading zeros, signs that cannot be seen."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Final

from chestfed.core.errors import Problem
from chestfed.inspection.problems import PATIENTS_ALIKE, Looked

#: Letters and one number, as a spreadsheet may have rewritten it: `0012`, `12`, `12.0`.
_NUMBERED: Final = re.compile(r"(\D*)(\d+)(?:[.,]0+)?")
_INVISIBLE: Final = ("Cc", "Cf", "Zs", "Zl", "Zp")


def bare(name: str) -> str:
    """A patient's name in one spelling: small letters, no leading zeros of its number, no blanks or invisible signs."""
    seen = _seen(unicodedata.normalize("NFKC", _seen(name)).casefold())
    numbered = _NUMBERED.fullmatch(seen)
    return f"{numbered[1]}{numbered[2].lstrip('0') or '0'}" if numbered is not None else seen


def _seen(name: str) -> str:
    return "".join(letter for letter in name if unicodedata.category(letter) not in _INVISIBLE)


def alike(patients: Iterable[str]) -> list[list[str]]:
    """The names that are written differently, but alike but for that, together; the others are left out."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(patients):
        groups.setdefault(bare(name), []).append(name)
    return [names for spelling, names in groups.items() if spelling and len(names) > 1]


def alike_in_two_splits(site: Looked) -> list[Problem]:
    """One problem per such group that is in several splits, at the first row whose split differs from an earlier one.

    A name that is itself in several splits is another problem, and not reported here.
    """
    frame = site.survey.table.frame
    group_of = {name: number for number, names in enumerate(alike(frame["patient"].tolist())) for name in names}
    told = frame[["patient", "split"]].assign(group=frame["patient"].map(group_of)).dropna().drop_duplicates()
    splits, earlier = frame["split"].astype(object).to_numpy(), dict[int, int]()
    for _, members in told.groupby("group"):
        cells = list(members[["patient", "split"]].itertuples(name=None))
        pairs = (
            (here, there)
            for place, (here, patient, split) in enumerate(cells)
            for there, other, its in cells[:place]
            if other != patient and its != split
        )
        earlier |= islice(pairs, 1)

    def tell(row: int) -> str:
        there = f"in '{splits[earlier[row]]}' at {site.where(earlier[row])}"
        return f"this row's patient is in '{splits[row]}' here; one with almost the same name is {there}"

    advice = (
        "the names differ only in case, leading zeros, spaces or invisible characters: if they are one person, "
        "use one spelling, or let --fix-splits put them into one split"
    )
    return site.problems(PATIENTS_ALIKE, sorted(earlier), tell, advice)
