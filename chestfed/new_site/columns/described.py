"""Which columns hold the view, the split, the sex and the age: by their names and by the words in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ConfigError
from chestfed.new_site import lexicon
from chestfed.new_site.choosing import NONE, Choices, named_column
from chestfed.new_site.columns.found import ENOUGH, SHOWN_FROM, Found, called, count, listed_rows
from chestfed.new_site.lexicon import plain, view_of
from chestfed.sites.reader import ages

#: Share of known words from which a column that is called like the view is taken for it.
_TELLING: Final = 0.25
_MOST_WORDS: Final = 30
#: What an age may be mistyped as, so that it is surely not a name.
_NUMBER: Final = re.compile(r"[-+]?\d{1,3}([.,]\d{1,2})?\s?[a-z]?")
_KNOWN: Final = {"view": lexicon.VIEWS, "split": lexicon.SPLITS, "sex": lexicon.SEXES}


def find_worded(frame: pd.DataFrame, what: str, choices: Choices, found: Found) -> None:
    """The column of views, splits or sexes."""
    said = choices.columns.get(what)
    if said == NONE:
        return
    if said is not None:
        column, how = named_column(said, list(map(str, frame)), f"--{what}-column"), "given on the command line"
    else:
        column, how = _guessed(frame, what, found)
    if not column:
        return
    cells = frame[column].dropna()
    counts = cells.str.strip().str.lower().value_counts()
    if len(counts) > _MOST_WORDS:
        raise ConfigError(f"--{what}-column {column}: {len(counts):,} different cells are not words for a {what}")
    known = _with_own(what, cells)
    told: dict[str, str] = {}
    strange = []
    for word in map(str, counts.index):
        if plain(word) in known:
            told[word] = known[plain(word)]
        elif word in lexicon.MISSING:
            found.missing[word] = what
        else:
            strange.append(word)
    if strange and what == "split":
        text = f"{len(strange)} of {len(counts)} words are not known for a split"
        if said is not None:
            raise ConfigError(f"--split-column {column}: {text}")
        found.unsure.append(f"'{column}' is called like the split, but {text}: not used")
        return
    if strange:
        found.unsure.append(_unknown_words(column, what, strange, cells))
        told |= {word: "unknown" for word in strange if counts[word] >= SHOWN_FROM}
    found.words[what] = told
    spread: Counter[str] = Counter()
    for word, number in zip(map(str, counts.index), counts.tolist(), strict=True):
        spread[told.get(word, "missing")] += number
    shown = ", ".join(f"{number:,} {meaning}" for meaning, number in spread.most_common())
    found.take(what, column, f"{how}: {shown}")


def _guessed(frame: pd.DataFrame, what: str, found: Found) -> tuple[str, str]:
    """The column, empty if there is none, and how it was found; what is left out is noted."""
    free = [str(name) for name in frame if name not in found.columns.values()]
    likely = called(what, free)
    shares = {name: _share_known(frame[name], _with_own(what, frame[name])) for name in likely}
    good = [name for name, share in shares.items() if share >= ENOUGH]
    if what == "view" and not good:  # a lateral that is not recognized would train
        telling = [name for name in likely if shares[name] >= _TELLING and frame[name].nunique() <= _MOST_WORDS]
        good = sorted(telling, key=lambda name: -shares[name])[:1]
    for name in (name for name in likely if name not in good and frame[name].notna().any()):
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


def _unknown_words(column: str, what: str, strange: Sequence[str], cells: pd.Series) -> str:
    """What happens to unknown words; a rare one may be a name that strayed there, and is not written."""
    own = cells.str.strip().str.lower()
    counts = own.value_counts()
    rare = sum(counts[word] < SHOWN_FROM for word in strange)
    often = [word for word in strange if counts[word] >= SHOWN_FROM]
    kept = "; laterals among them would train" if what == "view" else ""
    parts = []
    if often:
        rows = listed_rows(own.index[own.isin(often)])
        parts.append(f"{len(often)} words not known for the {what} count as unknown ({rows}){kept}")
    if rare:
        text = f"{rare} that fewer than {SHOWN_FROM} rows have are not written down: their rows will be named"
        parts.append(text)
    return f"'{column}': {'; '.join(parts)}"


def _share_known(cells: pd.Series, known: Mapping[str, str]) -> float:
    counts = cells.dropna().value_counts()
    good = [plain(str(word)) in known or str(word).strip().lower() in lexicon.MISSING for word in counts.index]
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
        years = ages(cells)
        bad = cells[np.isnan(years)].str.strip().str.lower()
        good = count(len(cells) - len(bad), len(cells))
        if len(bad) > (1 - ENOUGH) * len(cells) or bad.nunique() > _MOST_WORDS:
            if said:
                raise ConfigError(f"--age-column {name}: only {good} are ages")
            found.unsure.append(f"'{name}' is called like the age, but {good} are ages: not used")
            continue
        often = bad.value_counts()
        clear = [word for word in map(str, often.index) if often[word] >= SHOWN_FROM or _NUMBER.fullmatch(word)]
        found.missing |= dict.fromkeys([*clear, *lexicon.MISSING.intersection(often.index)], "age")
        if rest := len(often.index.difference(list(found.missing))):
            text = f"'{name}': {rest} cells are not ages and are not written down: their rows will be named"
            found.unsure.append(text)
        left = f"; {len(bad):,} others count as missing" if len(bad) else ""
        how = "given on the command line" if said else "by name"
        found.take("age", name, f"{how}: {good} are ages, {np.nanmin(years):.0f} to {np.nanmax(years):.0f}{left}")
        return
