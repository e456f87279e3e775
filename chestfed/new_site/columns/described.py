"""Which columns hold the view, the split, the sex and the age: by their names and by the words in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site import lexicon
from chestfed.new_site.choosing import MISSING, NONE, Choices, named_column
from chestfed.new_site.columns.found import ENOUGH, SHOWN_FROM, Found, called, count, unknown_words
from chestfed.new_site.lexicon import plain, view_of
from chestfed.sites.reader import ages

#: Share of known words from which a column that is called like the view is taken for it, however many words it has.
_TELLING: Final = 0.25
_FEW_WORDS: Final = 12
_MOST_WORDS: Final = 30
#: What an age may be mistyped as, so that it is surely not a name.
_NUMBER: Final = re.compile(r"[-+]?\d{1,3}([.,]\d{1,2})?\s?[a-z]?")
_KNOWN: Final = {"view": lexicon.VIEWS, "split": lexicon.SPLITS, "sex": lexicon.SEXES}
_MEANINGS: Final = {what: ", ".join(dict.fromkeys(words.values())) for what, words in _KNOWN.items()}


def find_worded(frame: pd.DataFrame, what: str, choices: Choices, found: Found) -> None:
    """The column of views, splits or sexes; a word that is not known is stopped at."""
    said, own = choices.columns.get(what), choices.words.get(what, {})
    if said == NONE:
        return
    if said is not None:
        column, how = named_column(said, list(map(str, frame)), f"--{what}-column"), "given on the command line"
    else:
        column, how = _guessed(frame, what, own, found)
    if not column:
        return
    cells = frame[column].dropna().str.strip().str.lower()
    counts = cells.value_counts()
    if len(counts) > max(_MOST_WORDS, 2 * len(own)):
        raise ConfigError(f"--{what}-column {column}: {len(counts):,} different cells are not words for a {what}")
    known, strange = _with_own(what, cells), list[str]()
    told: dict[str, str | float] = {}
    for word in map(str, counts.index):
        meaning = own.get(word) or known.get(plain(word)) or (MISSING if word in lexicon.MISSING else None)
        if meaning == MISSING:
            found.missing[word] = what
        elif meaning is not None:
            told[word] = meaning
        else:
            strange.append(word)
    if strange:
        found.stops.append(
            f"column '{column}' ({what}): unknown words: {unknown_words(cells, strange)}. Say what each means with "
            f"--word {what}:WORD=MEANING ({_MEANINGS[what]} or {MISSING}), or leave the column out with "
            f"--{what}-column {NONE}"
        )
    found.words[what] = told
    spread: Counter[str] = Counter()
    for word, number in zip(map(str, counts.index), counts.tolist(), strict=True):
        spread[str(told.get(word, "missing"))] += number
    spread["missing"] += int(frame[column].isna().sum())
    shown = ", ".join(f"{number:,} {meaning}" for meaning, number in spread.most_common() if number)
    found.take(what, column, f"{how}: {shown}")
    lost = spread["unknown"] + spread["missing"]
    if what == "view" and lost:
        found.unsure.append(
            f"{count(lost, len(frame), 'rows')} have no known view: they are left out, for they may be laterals (to "
            "keep them, add unknown to views in the YAML)"
        )


def _guessed(frame: pd.DataFrame, what: str, own: Mapping[str, str], found: Found) -> tuple[str, str]:
    """The column, empty if there is none, and how it was found; what is left out is noted.

    A column that is called so is taken if most words are known, or if it has a few different ones: a lateral that is
    not recognized, or a test set, would train.
    """
    free = [str(name) for name in frame if name not in found.columns.values() and frame[name].notna().any()]
    likely = called(what, free)
    shares = {name: _share_known(frame[name], {**_with_own(what, frame[name]), **own}) for name in likely}
    likely.sort(key=lambda name: -shares[name])
    least = 1 if what == "view" else 2
    good = [name for name in likely if shares[name] >= ENOUGH]
    for name in likely if not good else ():
        number = frame[name].nunique()
        if least <= number <= _FEW_WORDS or (shares[name] >= _TELLING and number <= _MOST_WORDS):
            good.append(name)
            break
    for name in (name for name in likely if name not in good):
        found.unsure.append(
            f"'{name}' is called like the {what}, but {shares[name]:.0%} of its cells are known words: not used. If it "
            f"is the {what}, say --{what}-column {name}"
        )
    if good or what != "view":
        return (good[0] if good else ""), "by name and words"
    return next((name for name in free if name not in likely and _only_views(frame[name])), ""), "by its words alone"


def _with_own(what: str, cells: pd.Series) -> Mapping[str, str]:
    """The known words, with those of this column that follow from them.

    Of views those with words beside them; of sexes the initials of hombre, homme, homem and varon: M beside these is
    mujer or mulher.
    """
    known, own = _KNOWN[what], set(cells.dropna().str.strip().str.lower().unique())
    if what == "view":
        return {**known, **{plain(word): view for word in own if (view := view_of(word)) is not None}}
    men = {"h", "v"}.intersection(own)
    if what != "sex" or not men or ("f" in own and "m" in own):
        return known
    return {**known, **dict.fromkeys(men, "M"), **({"m": "F"} if "m" in own else {})}


def _only_views(cells: pd.Series) -> bool:
    """Nothing but views, and several of them."""
    told = [view_of(word) for word in cells.dropna().unique()] if cells.nunique() <= _MOST_WORDS else []
    return None not in told and len(set(told) & {"pa", "ap", "frontal", "lateral"}) > 1


def _share_known(cells: pd.Series, known: Mapping[str, str]) -> float:
    counts = cells.dropna().value_counts()
    words = [str(word).strip().lower() for word in counts.index]
    good = [plain(word) in known or word in known or word in lexicon.MISSING for word in words]
    return float(counts[np.array(good)].sum() / counts.sum()) if len(counts) else 0.0


def find_age(frame: pd.DataFrame, choices: Choices, found: Found) -> None:
    """The column of the age: by its name, and because its cells are ages."""
    said = choices.columns.get("age")
    if said == NONE:
        return
    names = list(map(str, frame))
    free = [name for name in names if name not in found.columns.values()]
    for name in [named_column(said, names, "--age-column")] if said else called("age", free):
        cells = frame[name].dropna()
        if cells.empty:
            if said:
                raise ConfigError(f"--age-column {name}: the column is empty")
            continue
        lower, own = cells.str.strip().str.lower(), choices.words.get("age", {})
        gone = [word for word, meaning in own.items() if meaning == MISSING]
        years = ages(lower.where(~lower.isin(own), lower.map(own)))
        bad = lower[np.isnan(years) & ~lower.isin(gone).to_numpy(dtype=bool)]
        good = count(len(cells) - len(bad), len(cells))
        if len(bad) > (1 - ENOUGH) * len(cells) or bad.nunique() > _MOST_WORDS:
            if said:
                raise ConfigError(f"--age-column {name}: only {good} are ages")
            found.unsure.append(f"'{name}' is called like the age, but {good} are ages: not used")
            continue
        counts = bad.value_counts()
        clear = [word for word in map(str, counts.index) if counts[word] >= SHOWN_FROM or _NUMBER.fullmatch(word)]
        found.missing |= dict.fromkeys([*clear, *gone, *lexicon.MISSING.intersection(counts.index)], "age")
        found.words["age"] = {word: float(years) for word, years in own.items() if word not in gone}
        if rest := counts.index.difference(list(found.missing)).tolist():
            found.stops.append(
                f"column '{name}' (age): not ages: {unknown_words(lower, rest)}. Fix the cells, or say what they mean "
                f"with --word age:WORD=YEARS or --word age:WORD={MISSING}"
            )
        if clear:
            shown = unknown_words(lower, clear)
            found.unsure.append(f"'{name}': {shown} count as missing (--word age:WORD=YEARS if they are ages)")
        how = "given on the command line" if said else "by name"
        found.take("age", name, f"{how}: {good} are ages, {np.nanmin(years):.0f} to {np.nanmax(years):.0f}")
        return
