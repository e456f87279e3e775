"""Shared by the readers: the frame of raw rows, views, and findings from columns of 1, 0, -1 or blank."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.sites.findings import INVALID, from_numbers, strongest, translate
from chestfed.sites.label_files.source import Source
from chestfed.sites.vocabulary import RAW_COLUMNS


def raw_rows(columns: Mapping[str, object], findings: Mapping[str, np.ndarray], rows: int) -> pd.DataFrame:
    """A reader's frame; columns not given are missing (`inverted`: false)."""
    defaults = {"sex": None, "age": np.nan, "inverted": False}
    filled = {name: columns[name] if name in columns else defaults[name] for name in RAW_COLUMNS}
    return pd.DataFrame({**filled, **findings}, index=pd.RangeIndex(rows))


def join_rows(parts: Sequence[pd.DataFrame], source: Source) -> pd.DataFrame:
    """The rows of several label files; an empty frame with all columns if there is none."""
    if not parts:
        return raw_rows(dict.fromkeys(RAW_COLUMNS), dict.fromkeys(source.config.diseases, np.zeros(0, np.int8)), 0)
    return pd.concat(parts, ignore_index=True)


def views(source: Source, path: Path, cells: pd.Series, rows: np.ndarray, words: Mapping[str, str]) -> pd.Series:
    """Views of the cells by `words`; blank is `unknown`; any other word is a problem."""
    found = translate(cells, words)
    bad = (found.isna() & cells.notna()).to_numpy()
    advice = f"known views: {', '.join(sorted(words))}"
    source.bad_rows(path, "unknown view", bad, rows, lambda place: f"unknown view '{cells.iat[place]}'", advice)
    return found.fillna("unknown")


def column_findings(
    source: Source, path: Path, frame: pd.DataFrame, *, uncertain: bool = True
) -> dict[str, np.ndarray]:
    """Findings int8 [n] per disease from the columns that the label map names; bad values are problems."""
    by_name: dict[str, np.ndarray] = {}
    advice = f"labels are {'1, 0, -1 or blank' if uncertain else '1 or 0'}; fix the cell"
    rows = frame["row"].to_numpy()
    for name in dict.fromkeys(name for names in source.config.labels.values() for name in names if name in frame):
        cells = frame[name]
        by_name[name] = from_numbers(cells, uncertain=uncertain)
        for place in np.flatnonzero(by_name[name] == INVALID).tolist():
            text = f"'{name}' is '{cells.iat[place]}'"
            source.problem("bad label value", source.name(path), text, int(rows[place]), advice)
    return {
        disease: strongest([by_name[name] for name in source.config.labels[disease] if name in by_name], len(frame))
        for disease in source.config.diseases
    }


def label_names(source: Source, vocabulary: Collection[str]) -> list[str]:
    """The names in the site's label map; those unknown to the format are problems."""
    names = list(dict.fromkeys(name for names in source.config.labels.values() for name in names))
    for name in names:
        if name not in vocabulary:
            close = difflib.get_close_matches(name, vocabulary, n=1, cutoff=0.5)
            hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(vocabulary))}"
            source.problem(
                "unknown label name",
                "labels",
                f"'{name}' is not a label of this format; {hint}",
                advice="fix 'labels' in the site's YAML",
            )
    return [name for name in names if name in vocabulary]


def nearest(name: str, names: Iterable[str]) -> str:
    """A suggestion of the closest name, ignoring case; empty if none is close."""
    by_letters = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), by_letters, n=1, cutoff=0.6)
    return f" (the nearest is '{by_letters[close[0]]}')" if close else ""
