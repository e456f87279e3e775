"""Raw findings, before policy, and the cells that they are read from."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

#: Raw findings, int8. `UNLABELLED`: the image has no label at all, whatever the policy for blanks.
POSITIVE, NEGATIVE, UNCERTAIN, BLANK, UNLABELLED = (np.int8(code) for code in (1, 0, -1, -2, -3))
#: A cell that is not one of the known values.
INVALID: Final = np.int8(-9)

_BY_STRENGTH: Final = np.array([UNLABELLED, BLANK, NEGATIVE, UNCERTAIN, POSITIVE, INVALID], dtype=np.int8)
#: Raw finding -> which of several wins, the higher one.
STRENGTH: Final = {int(code): place for place, code in enumerate(_BY_STRENGTH)}

_NUMBERS: Final = {
    "1": POSITIVE,
    "1.0": POSITIVE,
    "0": NEGATIVE,
    "0.0": NEGATIVE,
    "-1": UNCERTAIN,
    "-1.0": UNCERTAIN,
}
#: Words for the sexes, in lowercase.
SEXES: Final = {"f": "F", "female": "F", "m": "M", "male": "M"}
_OLDEST: Final = 120
#: Units of an age, in lowercase without accents -> how many of them are a year; Y, M, W and D are DICOM's.
_PER_YEAR: Final = {
    word: number
    for number, words in {
        1.0: ("", "y", "yr", "yrs", "year", "years", "yo", "jahr", "jahre", "a", "an", "ans", "ano", "anos"),
        12.0: ("m", "mo", "mos", "mon", "month", "months", "monat", "monate", "mes", "meses", "mois"),
        52.18: ("w", "wk", "wks", "week", "weeks", "woche", "wochen", "semana", "semanas", "semaine", "semaines"),
        365.25: ("d", "day", "days", "tag", "tage", "dia", "dias", "jour", "jours"),
    }.items()
    for word in words
}


def from_numbers(cells: pd.Series, *, uncertain: bool = True) -> np.ndarray:
    """Findings int8 [n] of cells 1, 0, -1 or blank; `INVALID` for anything else (and for -1 if not `uncertain`)."""
    codes, words = pd.factorize(cells)
    table = [_NUMBERS.get(str(word).strip(), INVALID) for word in words]
    if not uncertain:
        table = [INVALID if code == UNCERTAIN else code for code in table]
    return np.array([*table, BLANK], dtype=np.int8)[codes]


def canonical(cell: str) -> str:
    """A cell without outer spaces, in lowercase; 1.0, 1.00 and 1,0 are 1."""
    word = cell.strip().casefold()
    whole = re.fullmatch(r"([+-]?\d+)(?:\.0*|,0+)", word)
    return whole[1] if whole else word


def from_words(cells: pd.Series, words: Mapping[str, np.int8]) -> np.ndarray:
    """Findings int8 [n] of cells by their canonical words, "" being the missing cell; `INVALID` for any other."""
    codes, found = pd.factorize(cells)
    table = [words.get(canonical(str(cell)), INVALID) for cell in found]
    return np.array([*table, words.get("", BLANK)], dtype=np.int8)[codes]


def strongest(findings: list[np.ndarray], rows: int) -> np.ndarray:
    """One finding per image from those of several names: positive wins over uncertain, negative, blank."""
    if not findings:
        return np.full(rows, BLANK, dtype=np.int8)
    ranks = np.vectorize(STRENGTH.__getitem__, otypes=[np.int8])(np.stack(findings)) if len(findings) > 1 else None
    return findings[0] if ranks is None else _BY_STRENGTH[ranks.max(axis=0)]


def sexes(cells: pd.Series) -> pd.Series:
    """`F`, `M` or missing."""
    return translate(cells, SEXES, lower=True)


def ages(cells: pd.Series) -> np.ndarray:
    """Years float32 [n]; above 120 or unreadable is missing.

    `058Y`, `011M` and `002D` are DICOM ages; `58,5` has a decimal comma; `58 Jahre`, `58 años` and `3 mois` have words.
    """
    codes, found = pd.factorize(cells)
    return np.array([*(_years(str(cell)) for cell in found), np.nan], dtype=np.float32)[codes]


def translate(cells: pd.Series, words: Mapping[str, str], *, lower: bool = False) -> pd.Series:
    """Each cell's translation; missing for blanks and for words without one."""
    codes, found = pd.factorize(cells)
    keys = [str(word).strip().lower() if lower else str(word).strip() for word in found]
    table = np.array([*(words.get(key) for key in keys), None], dtype=object)
    return pd.Series(table[codes], index=cells.index, dtype=object)


def _years(cell: str) -> float:
    letters = unicodedata.normalize("NFKD", cell)
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    match = re.fullmatch(r"\s*(\d+(?:\.\d+|,\d{1,2})?)\s*([A-Za-z]*)\.?\s*", bare)
    unit = "" if match is None else "jahr" if match[2] == "J" else match[2].lower()  # a small j may be jours
    if match is None or unit not in _PER_YEAR:
        return np.nan
    years = float(match[1].replace(",", ".")) / _PER_YEAR[unit]
    return np.nan if years > _OLDEST else math.floor(years)
