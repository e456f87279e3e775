"""Columns of the stored tables: each is declared once, here, with its name, its type, and how tables show it.

In memory a table is a frame and a row a dictionary with the same names; on disk a CSV file. Code asks the typed columns
what a row is about (`design`, `method`, `window`, `k`, `kind`, ...). `place`, `reference` and `model` are labels for
people, made by `titles`, which nothing takes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypedDict, Union, get_args, get_origin, get_type_hints

import pandas as pd

from chestfed.results.evaluation.intervals.methods import MethodName

#: Version of the tables in a folder; a folder without `tables.json` is of version 1 (`older`).
VERSION: Final = 2
#: Values of `design`: what the studies of a table differ in.
COMPARED, HELD_OUT, TARGET_IMAGES, SUBSETS = "comparison", "held_out", "target_images", "subsets"
#: Values of `kind`: the model that the clients train together, and what a hospital could use instead.
COMMON, OWN_DATA, FINE_TUNED, CENTRALIZED, GATE = "common", "own_data", "fine_tuned", "centralized", "gate"
OWN_DATA_ALL: Final = "own_data_all"  #: that of own data, trained with the validation patients too


@dataclass(frozen=True)
class Below:
    """The form in which every table shows a number of a row below its AUC."""

    form: str


class EstimateRow(TypedDict):
    """A row of estimates: the AUC of a model at a place, of a disease or the mean."""

    data: str
    design: str
    method: str
    algorithm: str
    network: str  #: with its options and initial weights
    window: int | None
    k: int
    kind: str
    scored_with: str  #: in place of the clients' own models, where images belong to no client; else empty
    target_images: int | None  #: training images of the target, where they are limited
    subset: str  #: the hospitals that train, where sets of them are compared
    site_out: str
    added: str
    hospital: str
    takes_part: bool
    seed: int | None
    seeds: int | None
    split: int | None  #: number of the split of patients, of a row of one seed; 0 in tables that lack the column
    splits: int | None  #: over so many splits of patients; empty: one
    disease: str
    auc: float | None
    low: float | None
    high: float | None
    sd: Annotated[float | None, Below("±{:.3f}")]
    positives: int | None
    negatives: int | None
    missing: int | None
    positive_patients: int | None
    negative_patients: int | None
    in_mean: bool | None  #: whether a disease has the patients that a mean needs
    hospitals: int | None
    left_out: int | None
    few_at: str  #: hospitals that do not count in a mean -> patients with the disease and without it, as JSON
    images: int | None
    patients: int | None
    paper_auc: float | None
    reason: str
    protocol: str
    interval_method: MethodName
    interval_reference: str
    place: str
    model: str


class DifferenceRow(TypedDict):
    """A row of differences: the AUC of a model minus that of the reference."""

    data: str
    design: str
    reference_method: str
    reference_window: int | None
    reference_k: int | None
    reference_kind: str
    method: str
    window: int | None
    k: int | None
    kind: str
    target_images: int | None
    subset: str
    hospital: str
    disease: str
    auc_reference: float | None
    auc_model: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    n: int | None
    images: int
    patients: int
    positives: int | None
    negatives: int | None
    missing: int | None
    seed_sd_reference: float | None
    seed_sd_model: float | None
    seeds_reference: int
    seeds_model: int
    splits: int | None  #: over so many splits of patients; empty: one
    of_seeds: str
    in_mean: bool | None
    turns_without: str  #: of a mean, the diseases without each of which the verdict is another
    detectable: float | None
    seeds_needed: int | None
    times_needed: float | None
    reason: str
    protocol: str
    interval_method: MethodName
    interval_reference: str
    place: str
    reference: str
    model: str


ESTIMATES: Final = tuple(EstimateRow.__annotations__)
DIFFERENCES: Final = tuple(DifferenceRow.__annotations__)


@cache
def list_types(row: type) -> Mapping[str, str]:
    """Column -> the type that pandas keeps it in, also where some or all values are missing."""
    return {name: _find_type(hint) for name, hint in get_type_hints(row).items()}


def _find_type(hint: Any) -> str:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (part for part in kinds if part is not NoneType)
    return {int: "Int64", float: "float64", bool: "boolean"}.get(kind, "str")


def find_below(row: type) -> dict[str, str]:
    """Columns that tables show below an AUC -> their form."""
    hints = get_type_hints(row, include_extras=True)
    return {name: mark.form for name, hint in hints.items() for mark in get_args(hint)[1:] if isinstance(mark, Below)}


SHOWN_BELOW: Final[Mapping[str, str]] = find_below(EstimateRow)


def make_frame(rows: Any, row: type) -> pd.DataFrame:
    """Rows, or a frame of them, as a frame of `view` and the columns of `row`: what a row lacks is empty."""
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    types: Mapping[str, Any] = {"view": "str", **list_types(row)}
    nothing, columns = pd.Series(None, frame.index, object), {}
    for name, kind in types.items():  # pandas takes longer for all columns at once
        values = frame.get(name, nothing)
        columns[name] = (values.astype(object).fillna("") if kind == "str" else values).astype(kind)
    return pd.DataFrame(columns, frame.index)
