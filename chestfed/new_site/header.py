"""Which row of a spreadsheet names its columns: titles, dates and empty rows may be above it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from chestfed.new_site.diseases import disease_of
from chestfed.new_site.lexicon import COLUMNS, plain

#: Rows that are looked at.
LOOKED_AT: Final = 60
_NUMBER: Final = re.compile(r"[-+]?[\d\s.,:/-]+%?")


def find_header(rows: Sequence[Sequence[str]]) -> int:
    """The index of the header among the first rows: 0, unless those before another are nearly empty.

    A header fills more than half of what the fullest rows do (one may have cells too many), with texts that differ from
    each other and from what is below. If a row above it has more than one filled cell, one of its names must be known.
    """
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    full = sorted(filled)[-2:][0] if filled else 0
    place = next((at for at, number in enumerate(filled) if 2 * number > full), 0)
    names = [cell.strip() for cell in rows[place] if cell.strip()] if rows else []
    titles_only = all(number <= 1 for number in filled[:place])
    found = _are_names(names, rows[place:]) and (titles_only or any(map(_is_known, names)))
    return place if found else 0


def _are_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    below = {cell.strip() for row in rows[1:] for cell in row}
    unlike = len(set(names)) == len(names) and not below.intersection(names)
    return len(names) > 1 and unlike and not any(map(_NUMBER.fullmatch, names))


def _is_known(name: str) -> bool:
    return any(plain(name) in known for known in COLUMNS.values()) or disease_of(name) is not None
