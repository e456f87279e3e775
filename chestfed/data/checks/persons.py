"""Patients who cannot be one person: of two sexes, or with ages that do not fit the dates of their images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import Problem
from chestfed.data.checks.problems import SEVERAL_PERSONS, Inspection

#: Without dates: the longest time in years between two images of a person at one hospital.
_LONGEST: Final = 25.0
#: Ages are whole years, and dates may be shifted a little.
_ROUNDING: Final = 1.5
#: Date minus age is the date of birth or up to a year later: a person's differ by less than this, in years.
_SPREAD: Final = 2.0
#: Ages from here on may stand for all higher ones, as de-identified tables have them.
_HIGHEST: Final = 89.0
_ADVICE: Final = (
    "one number stands for two persons, or a cell is wrong: fix it; where centers number alike, name the center in "
    "table.patient_prefix; if the column has one age per patient, remove columns.age: age must be that at each image"
)


def find_several_persons(site: Inspection) -> Sequence[Problem]:
    """One problem per patient, at the first row, over the images of all views; those of most images first."""
    raw = site.survey.raw
    codes, names = pd.factorize(raw["patient"])
    known, number = codes >= 0, len(names)
    females, males = (_count(codes, known & (raw["sex"] == sex).to_numpy(bool), number) > 0 for sex in ("F", "M"))
    ages = raw["age"].to_numpy(np.float64)
    times = raw["date"].to_numpy(np.float64) if "date" in raw else np.full(len(raw), np.nan)
    years, dates = _measure_spans(codes, ages, number), _measure_spans(codes, times, number)
    births = _measure_spans(codes, np.where(ages < _HIGHEST, times - ages, np.nan), number)
    limits = np.where(np.isnan(dates), _LONGEST, dates + _ROUNDING)
    old = years > limits
    shifted = ~old & (births >= _SPREAD)
    problems = []
    places, images = np.flatnonzero(known), _count(codes, known, number)
    first = np.full(number, len(codes))
    first[codes[places[::-1]]] = places[::-1]
    bad = np.flatnonzero((females & males) | old | shifted)
    bad = bad[np.argsort(-images[bad], kind="stable")]
    columns = (females & males, old, shifted, years, births, limits, dates, images)
    where = (raw[name].iloc[first[bad]].tolist() for name in ("file", "row"))
    cells = (column[bad].tolist() for column in columns)
    for file, row, both, older, other, apart, spread, limit, span, number_of in zip(*where, *cells, strict=True):
        texts = ["is female and male"] if both else []
        if older:
            of = f"{limit:.0f} years at most" if np.isnan(span) else f"{span:.1f} by dates"
            texts.append(f"has ages {apart:.0f} years apart ({of})")
        if other:
            texts.append(f"has ages that do not advance with the dates (born {spread:.1f} years apart by them)")
        text = f"this row's patient {' and '.join(texts)}, in {number_of:,} images"
        problems.append(Problem(SEVERAL_PERSONS, file, text, row, _ADVICE))
    return problems


def _count(codes: np.ndarray, which: np.ndarray, number: int) -> np.ndarray:
    return np.bincount(codes[which], minlength=number)


def _measure_spans(codes: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    """Highest minus lowest value of each patient, float64 `[number]`; NaN without any."""
    known = (codes >= 0) & ~np.isnan(values)
    low, high = np.full(number, np.inf), np.full(number, -np.inf)
    np.minimum.at(low, codes[known], values[known])
    np.maximum.at(high, codes[known], values[known])
    return np.where(high >= low, high - low, np.nan)
