"""What a reader of one's own is written with. Stable: these names and what they mean change with a major version only.

A reader turns the files of one distribution format into rows: one per image, with raw findings. It knows nothing of
policy: views, uncertain and blank labels, up-sampling and splits are applied after it, from the site's YAML. See
`docs/own_reader.md` for a worked example.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import pandas as pd

from chestfed.core.config import StrictModel
from chestfed.core.errors import ChestfedError, Problem
from chestfed.sites.findings import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    UNCERTAIN,
    UNLABELLED,
    ages,
    from_numbers,
    sexes,
    strongest,
    translate,
)
from chestfed.sites.label_files.source import Source
from chestfed.sites.rows import column_findings, join_rows, label_names, raw_rows, views
from chestfed.sites.table import RAW_COLUMNS
from chestfed.sites.vocabulary import SPLITS, VIEWS

__all__ = [
    "BLANK",
    "NEGATIVE",
    "POSITIVE",
    "RAW_COLUMNS",
    "SPLITS",
    "UNCERTAIN",
    "UNLABELLED",
    "VIEWS",
    "ChestfedError",
    "Problem",
    "SiteReader",
    "Source",
    "StrictModel",
    "ages",
    "column_findings",
    "from_numbers",
    "join_rows",
    "label_names",
    "raw_rows",
    "sexes",
    "strongest",
    "translate",
    "views",
]


class SiteReader(Protocol):
    """A reader: chestfed's own are modules with a function `read`, a package's is a class with a method `read`.

    A class may declare `Options`, a pydantic model (`StrictModel` refuses unknown keys). Then the YAML's `options` are
    checked by it and the class is made with the result, `Reader(options)`; without it the class is made by `Reader()`.
    """

    def read(self, source: Source) -> pd.DataFrame:
        """Rows, one per image: the columns `RAW_COLUMNS`, and int8 findings per disease of `source.config.diseases`.

        `raw_rows` puts them together. What is wrong with the files is noted by `source.problem(...)`, with file and
        row, and reading goes on: a user wants all problems at once. Rows of a site with problems are not used.

        * `image`: path relative to `source.root`; `patient`, `study`: names; `view`, `split`: of `VIEWS`, `SPLITS`
        * `sex`: F, M or missing; `age`: years or missing; `inverted`: bool, stored as MONOCHROME1 unsaid
        * `row`: line of the label file, the first being 1; `file`: that file, as `source.name(path)` calls it
        * findings: `POSITIVE`, `NEGATIVE`, `UNCERTAIN`, `BLANK` (nothing is said of it), `UNLABELLED` (nothing is said
          of the image at all)
        """
        ...


_CODES: Final = (POSITIVE, NEGATIVE, UNCERTAIN, BLANK, UNLABELLED)


def check_rows(raw: Any, reader: str, diseases: list[str], *, cells: bool = True) -> None:
    """Check the form of what a reader returned, which is its author's business, not that of the site's files.

    Without `cells` the columns alone: rows that the reader has noted problems of may hold anything.

    Raises
    ------
    ChestfedError
        Naming the reader and all that is wrong.
    """
    mistakes = [f"read() returned {type(raw).__name__}, not a pandas frame"]
    if isinstance(raw, pd.DataFrame):
        wanted = [*RAW_COLUMNS, *diseases]
        lacking = [column for column in wanted if column not in raw.columns]
        mistakes = [f"no column '{column}'" for column in lacking]
        mistakes += [f"{column}: there twice" for column in wanted if list(raw.columns).count(column) > 1]
        mistakes = mistakes or (_wrong_cells(raw, diseases) if cells else [])
    if mistakes:
        raise ChestfedError(
            f"reader '{reader}' returned rows that are none: {'; '.join(mistakes)}. This is a mistake in the reader; "
            "what it must return is in docs/own_reader.md"
        )


def _wrong_cells(raw: pd.DataFrame, diseases: list[str]) -> list[str]:
    mistakes = []
    for column, words in (("view", VIEWS), ("split", SPLITS), ("sex", ("F", "M"))):
        known = raw[column].isin(words) | (raw[column].isna() if column == "sex" else False)
        if not known.all():
            mistakes.append(f"{column}: {int((~known).sum())} cells are none of {', '.join(words)}")
    if not (pd.api.types.is_integer_dtype(raw["row"]) or raw.empty) or (raw["row"] < 1).any():
        mistakes.append("row: not whole numbers from 1")
    if not (pd.api.types.is_bool_dtype(raw["inverted"]) or raw.empty):
        mistakes.append("inverted: not bool")
    if not (pd.api.types.is_numeric_dtype(raw["age"]) or raw["age"].isna().all()):
        mistakes.append("age: not numbers")
    for column in ("image", "patient", "study", "file"):
        if not raw[column].map(lambda cell: isinstance(cell, str) or pd.isna(cell)).all():
            mistakes.append(f"{column}: not text")
    for disease in diseases:
        if not np.isin(raw[disease].to_numpy(), _CODES).all():
            mistakes.append(f"{disease}: not findings, which are {', '.join(map(str, map(int, _CODES)))}")
    return mistakes
