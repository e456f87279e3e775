"""Dirty rows of a site's label files that its YAML leaves out and counts, instead of refusing the site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.core.config import StrictModel
from chestfed.core.errors import Problem

Policy = Literal["refuse", "drop"]

MISSING_IMAGE: Final = "missing image"
TOTAL_ROW: Final = "total row"
#: Kind of problem -> the key of `rows` that decides about the rows that have it.
KEYS: Final[Mapping[str, str]] = {
    "contradictory labels": "contradictory",
    "contradictory rows": "contradictory",
    "duplicate image": "duplicate",
    "blank name": "unnamed",
    TOTAL_ROW: "total",
    MISSING_IMAGE: "missing_image",
}
#: Columns of a reader's frame, beside the diseases, in which the rows of an image must agree.
DESCRIBING: Final = ("patient", "study", "view", "split", "sex", "age")
#: Rows with these are in no reader's frame: they have no image.
_ALREADY_OUT: Final = ("blank name", TOTAL_ROW, MISSING_IMAGE)


class Rows(StrictModel):
    """What happens to dirty rows: the site is refused, or they are left out, and counted wherever the site is shown."""

    contradictory: Policy = Field(
        "refuse",
        description="rows that call a disease both present and absent, and all rows of an image that differ in "
        "patient, study, view, split, sex, age or diseases",
    )
    duplicate: Policy = Field(
        "refuse",
        description="repeated rows of an image with the same patient, study, view, split, sex, age and diseases "
        "(of rows that differ `contradictory` decides); an annotator (readers) with two rows for an image is refused",
    )
    missing_image: Policy = Field("refuse", description="rows whose image does not exist")
    total: Policy = Field("refuse", description="rows of totals (Total, Summe, 合計) instead of a patient or image")
    unnamed: Policy = Field("refuse", description="rows without an image or a patient")


def choose_left_out(
    rows: Rows, raw: pd.DataFrame, problems: Sequence[Problem], diseases: Sequence[str], absent: np.ndarray
) -> tuple[np.ndarray, list[Problem], dict[str, int]]:
    """Which of a reader's rows are left out, bool `[n]`; the problems that remain; and how many rows, by key of `rows`.

    `absent` are the rows whose images are not there, bool `[n]`. A problem of a row that has another one is left out
    with it.
    """
    dropped = {key for key, policy in rows.model_dump().items() if policy == "drop"}
    pairs = list(zip(raw["file"].tolist(), raw["row"].tolist(), strict=True))
    repeated = find_agreeing(raw, diseases) & raw["image"].duplicated().to_numpy(dtype=bool)
    fresh = {pair for pair, again in zip(pairs, repeated, strict=True) if not again}  # a row may have several images
    gone = {pair: "missing_image" for pair, no_image in zip(pairs, absent, strict=True) if no_image}
    known = set(pairs)
    for problem in problems:
        key, pair = KEYS.get(problem.kind), (problem.file, problem.row)
        if key not in dropped or problem.row is None or (pair not in known and problem.kind not in _ALREADY_OUT):
            continue
        if problem.kind != "duplicate image" or pair not in fresh:
            gone.setdefault((problem.file, problem.row), key)
    remaining = [problem for problem in problems if (problem.file, problem.row) not in gone]
    return np.array([pair in gone for pair in pairs], dtype=bool), remaining, dict(Counter(gone.values()))


def offer_dropping(key: str) -> str:
    """End of an advice: the key of `rows` that leaves out and counts such rows."""
    return f", or set rows.{key}: drop in the YAML to leave out and count such rows"


def find_agreeing(raw: pd.DataFrame, diseases: Sequence[str]) -> np.ndarray:
    """Whether the rows of this row's image say the same, bool `[n]`."""
    groups = raw.groupby("image", dropna=False)[[*DESCRIBING, *diseases]]
    return (groups.transform("nunique", dropna=False) == 1).all(axis=1).to_numpy(dtype=bool)


def describe_left_out(counts: Mapping[str, int], total: int) -> list[str]:
    """One sentence per key of `rows`, or of `images`, for whoever reads the site's figures."""
    why = {
        "unmatched": "match the header of no image",
        "contradictory": "contradict themselves, or another row of their image",
        "duplicate": "repeat an earlier row",
        "missing_image": "name an image that does not exist",
        "total": "are totals",
        "unnamed": "name no image or patient",
    }
    return [
        f"left out: {count:,} of {total:,} rows that {why[key]} "
        f"({'images' if key == 'unmatched' else 'rows'}.{key}: drop)"
        for key, count in counts.items()
        if key in why  # what joining leaves out has a sentence with the file's name
    ]
