"""AUCs and their differences as they are stored: `result.json` of a model, and the two tables of results.

The tables have one row per model, place and disease, and one per mean over the diseases. A `view` is the selection of
rows that answers one question. In memory it is a column; on disk it is a pair of files:

    study          table.csv          significance.csv     every K (or algorithm) on the test images
    hospitals      hospitals.csv      hospital_gains.csv   the same at every hospital, on its own held-out patients
    alternatives   alternatives.csv   alternative_gains.csv   what a hospital could do instead
    gate                              gate_gains.csv       the gate minus every alternative but own data
    seeds          results.csv                             each training seed of several
    held_out       held_out.csv                            every held-out site, and the sites trained on
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict, TypeVar, cast

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.comparison import holm
from chestfed.results.evaluation.estimates import Estimate, as_csv, auc_estimates, compute_spread, mean_of
from chestfed.results.evaluation.intervals import DEFAULT
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.splits import SPLITS_REFERENCE
from chestfed.results.evaluation.training_seeds import REFERENCES
from chestfed.results.tables import older
from chestfed.results.tables.columns import (
    COMPARED,
    SUBSETS,
    TARGET_IMAGES,
    VERSION,
    DifferenceRow,
    EstimateRow,
    list_types,
    make_frame,
)
from chestfed.results.tables.files import RESULT, expected, read_json_file
from chestfed.results.tables.grid import count_images
from chestfed.results.tables.titles import name_place

if TYPE_CHECKING:
    from chestfed.results.evaluation.joining.calibrated import CalibrationChange
    from chestfed.results.evaluation.joining.recognized import RecognizedFindings
    from chestfed.results.tables.clients.attendance import Attendance
    from chestfed.results.tables.clients.batch_norm import Statistics
    from chestfed.results.tables.clients.gate import GatePriceFacts
    from chestfed.results.tables.settings import MethodFacts, PublishedFigures

#: Why a mean AUC over several runs has no interval.
_SCORES_STAY: Final = "scores stay at the hospital: no interval over several runs"
_NO_INTERVAL: Final = "too few patients of a class, or an AUC of 0 or 1: no interval over several runs"

#: View -> its files of estimates and of differences, if it has these.
VIEWS: Final = {
    "study": ("table.csv", "significance.csv"),
    "hospitals": ("hospitals.csv", "hospital_gains.csv"),
    "alternatives": ("alternatives.csv", "alternative_gains.csv"),
    "gate": ("", "gate_gains.csv"),
    "seeds": ("results.csv", ""),
    "held_out": ("held_out.csv", ""),
}
#: The version of the tables in a folder.
ABOUT: Final = "tables.json"
TABLES: Final = (*(name for pair in VIEWS.values() for name in pair if name), ABOUT)
#: Resamples of intervals, unless another number is asked for.
RESAMPLES: Final = 2000


#: Intervals of the mean AUCs of several runs, from these: of each disease, and of the mean.
Bound = Callable[[Sequence[float | None]], list[Interval | None]]
EstimateOrDifference = TypeVar("EstimateOrDifference", EstimateRow, DifferenceRow)


@dataclass(frozen=True)
class Row:
    """The AUC of each disease, and at last their mean, with 95% intervals.

    `interval` and `resamples` are the method of the intervals. `scores_stay`: the scores stayed at a hospital, so that
    there are no predictions beside the result.
    """

    k: int
    clients: tuple[str, ...]
    aucs: tuple[Estimate, ...]
    interval: MethodName = DEFAULT
    scores_stay: bool = False
    resamples: int = RESAMPLES

    @classmethod
    def from_scores(
        cls, k: int, clients: Sequence[str], scored: Scored, resamples: int, interval: MethodName = DEFAULT
    ) -> Row:
        """The result of scores; the same scores always get the same intervals."""
        return cls(k, tuple(clients), auc_estimates(scored, Intervals(interval, resamples)), interval, False, resamples)

    @property
    def diseases(self) -> tuple[Estimate, ...]:
        """All but the mean."""
        return self.aucs[:-1]

    @property
    def mean(self) -> Estimate:
        """Over the diseases that have an AUC."""
        return self.aucs[-1]

    def with_intervals(self, how: Intervals, scored: Scored | None, place: object) -> Row:
        """The row with intervals by this method, computed from the scores if it has others."""
        if self.interval == how.method:
            return self
        if scored is None:
            raise ConfigError(
                f"{place}: the scores stayed at the hospital, which computed intervals by {self.interval}; for others "
                "set evaluation.interval in the pipeline and run it again",
                kind="no scores here",
            )
        return Row.from_scores(self.k, self.clients, scored, how.resamples, how.method)

    def with_reasons(self, reasons: Mapping[str, str]) -> Row:
        """The row with these reasons of diseases without an AUC."""
        aucs = (
            replace(auc, reason=reasons.get(auc.disease, auc.reason)) if auc.value is None else auc for auc in self.aucs
        )
        return replace(self, aucs=tuple(aucs))

    def to_plain(self) -> Any:
        """The content of `result.json`."""
        return _ROW.dump_python(self, mode="json")

    @classmethod
    def from_plain(cls, plain: Any) -> Row:
        """The row that `to_plain` wrote; raises `ValueError` if it is not one."""
        return _ROW.validate_python(plain, strict=False)


_ROW: Final = TypeAdapter(Row)


def read_row(folder: Path) -> Row:
    """The result in a folder of one K, or of one hospital that was scored besides."""
    plain = read_json_file(folder / RESULT)
    with expected(folder / RESULT):
        return Row.from_plain(plain)


def list_estimates(
    rows: Sequence[Row], splits: int = 1, bound: Bound | None = None, /, **head: object
) -> Iterator[dict[str, Any]]:
    """One model's AUCs at one place as estimates: of one run with intervals, of several their mean and spread.

    `rows` are of each split and seed. A disease counts in the mean if it does in every one; `bound` gives intervals of
    the mean AUCs over them.
    """
    rows = _agree_on_mean(rows)
    means = [mean_of(part.value for part in parts) for parts in zip(*(row.aucs for row in rows), strict=True)]
    intervals = [None] * len(means) if bound is None else bound(means)
    for place, parts in enumerate(zip(*(row.aucs for row in rows), strict=True)):
        first, values = parts[0], [part.value for part in parts]
        record = first.record("auc") | {"left_out": first.left_out if first.hospitals is not None else None}
        few_at = {name: patients for part in reversed(parts) for name, *patients in part.few_at}
        record["few_at"] = json.dumps(few_at) if few_at else ""
        if len(parts) > 1:
            low, high = intervals[place] or (None, None)
            record |= {"auc": means[place], "low": low, "high": high}
            if low is None and means[place] is not None:
                record["reason"] = record["reason"] or (_SCORES_STAY if bound is None else _NO_INTERVAL)
        name = rows[0].interval
        method = {"interval_method": name, "interval_reference": METHODS[name].references[0]}
        if bound is not None:
            reference = SPLITS_REFERENCE if splits > 1 else REFERENCES[0]
            method = {"interval_method": DEFAULT, "interval_reference": reference}
        spread = {"sd": compute_spread(values), "seeds": len(parts) // splits, "splits": splits if splits > 1 else None}
        yield {"takes_part": True, "hospital": "", **head, **record, **method} | spread


def _agree_on_mean(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows with means over the diseases that count in all of them, as they are if these are the same."""
    counted = [[auc.in_mean and auc.value is not None for auc in row.diseases] for row in rows]
    every = [all(column) for column in zip(*counted, strict=True)]
    if all(each == every for each in counted):
        return rows
    agreed = []
    for row in rows:
        aucs = [replace(auc, in_mean=auc.in_mean and counts) for auc, counts in zip(row.diseases, every, strict=True)]
        value = mean_of(auc.value for auc, counts in zip(aucs, every, strict=True) if counts)
        agreed.append(replace(row, aucs=(*aucs, replace(row.mean, value=value, interval=None))))
    return agreed


# ---- the two tables ----------------------------------------------------------------------------------------------


def make_estimates(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as estimates, with `view` first."""
    frame = _name_places(make_frame(rows, EstimateRow))
    return frame.assign(split=frame["split"].mask(frame["split"].isna() & frame["seed"].notna(), 0))


def make_differences(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as differences, with `view` first, and with `p_holm`.

    Within a view the p values of single diseases are corrected together, over all models and places, and those of the
    means among themselves. Intervals are not corrected.
    """
    frame = _name_places(make_frame(rows, DifferenceRow))
    for _, part in frame.groupby(["view", frame["disease"] == "mean"]):
        corrected = holm([None if pd.isna(p) else p for p in part["p"]])
        frame.loc[part.index, "p_holm"] = pd.Series(corrected, part.index, "float64")
    return frame


def _name_places(frame: pd.DataFrame) -> pd.DataFrame:
    about = list_records(frame[["hospital", "design", "target_images", "subset"]])
    return frame.assign(place=pd.Series([name_place(row) for row in about], frame.index, "str"))


def select(frame: pd.DataFrame, view: str, **values: object) -> pd.DataFrame:
    """The rows of a view with these values of columns, and the frame's columns without `view`."""
    rows = frame["view"] == view
    for column, value in values.items():
        rows &= frame[column] == value
    return frame[rows].drop(columns="view").reset_index(drop=True)


def list_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries, None where a value is missing."""
    known, names = frame.notna().to_numpy().T.tolist(), [str(name) for name in frame]
    columns = []
    for (_, values), here in zip(frame.items(), known, strict=True):
        plain = (value.item() if isinstance(value, np.generic) else value for value in values.tolist())
        columns.append([value if is_known else None for value, is_known in zip(plain, here, strict=True)])
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def list_estimate_rows(frame: pd.DataFrame) -> list[EstimateRow]:
    """The rows of estimates, None where a value is missing."""
    return cast(list[EstimateRow], list_records(frame))


def list_difference_rows(frame: pd.DataFrame) -> list[DifferenceRow]:
    """The rows of differences, None where a value is missing."""
    return cast(list[DifferenceRow], list_records(frame))


def group_rows(rows: Iterable[EstimateOrDifference], *columns: str) -> list[list[EstimateOrDifference]]:
    """Rows, those with the same values of consecutive columns together."""

    def read(row: EstimateOrDifference) -> list[object]:
        return [cast(Mapping[str, object], row)[name] for name in columns]

    return [list(part) for _, part in groupby(rows, read)]


def read_seeds(row: DifferenceRow) -> dict[str, float | None]:
    """Training seed, and split if there are several -> difference; empty without a test over them."""
    return cast(dict[str, float | None], json.loads(row["of_seeds"] or "{}"))


def name_run(seed: int, split: int | None = None) -> str:
    """One of several runs of a model, as `of_seeds` calls it: its seed, and the split where there are several."""
    return str(seed) if split is None else f"{seed}, split {split}"


def read_few_at(row: EstimateRow) -> dict[str, tuple[int, int]]:
    """Hospitals that do not count in a row's mean -> patients with the disease, and without it."""
    return cast(dict[str, tuple[int, int]], json.loads(row.get("few_at") or "{}"))


def get_interval(row: EstimateRow | DifferenceRow) -> Interval | None:
    """The interval of a row."""
    return None if row["low"] is None or row["high"] is None else Interval(row["low"], row["high"])


class RunEntry(TypedDict):
    """One run of several: its label, training seed, split of patients, folder and identity."""

    run: str
    seed: int
    split: NotRequired[int]
    folder: str
    digest: str


class About(TypedDict, total=False):
    """Facts that captions and pages give of results beside their tables, as plain data."""

    model: str
    protocol: str
    images: int
    patients: int
    where: str
    target: str  #: empty: not one hospital
    quick: bool
    samples_size: str  #: of synthetic hospitals that the pipeline draws
    adds_hospitals: bool
    attendance: list[Attendance]  #: of each K; empty where methods are compared
    held_out: bool
    batch_norm: Statistics | None
    seeds: list[int]
    splits: list[int]  #: of the patients
    untested: dict[str, list[str]]  #: view -> hospitals without patients, or without alternatives
    gate: dict[str, dict[str, int]]
    gate_reasons: dict[str, dict[str, int]]  #: by hospital: why own data are kept without a comparison -> runs
    gate_price: dict[str, GatePriceFacts]  #: by hospital
    published: PublishedFigures | None
    paper: str
    objectives: str
    stage_1: dict[str, float | None]
    methods: list[MethodFacts]  #: that are compared
    machine: dict[str, object]
    versions: dict[str, str]
    runs: list[RunEntry]
    has_patients: bool
    recognized: RecognizedFindings | None
    calibration: list[CalibrationChange]
    origins: dict[str, list[str]]  #: origin -> hospitals, and test images, of a partly synthetic study
    made_unalike: str  #: empty: all K by the same versions and processor


@dataclass(frozen=True)
class Results:
    """AUCs of finished runs and their differences."""

    title: str
    origin: Origin
    about: About
    estimates: pd.DataFrame
    differences: pd.DataFrame
    #: One row per run, seed and evaluated round of runs that are compared; empty of one run.
    curves: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The training seeds, rising."""
        return tuple(self.about["seeds"])

    @property
    def splits(self) -> tuple[int, ...]:
        """The splits of the patients, rising."""
        return tuple(self.about.get("splits", [0]))

    @property
    def draws(self) -> list[str]:
        """Columns that tell the runs of a model apart."""
        return ["seed", "split"] if len(self.splits) > 1 else ["seed"]

    @property
    def repeats(self) -> str:
        """How often each model was trained: `5 seeds`, `5 splits of patients x 2 seeds`; empty: once."""
        counts = {"splits of patients": len(self.splits), "seeds": len(self.seeds)}
        return " x ".join(f"{count:,} {name}" for name, count in counts.items() if count > 1)

    @property
    def design(self) -> str:
        """Difference between the studies: a value of the column `design`."""
        return str(self.estimates["design"].iloc[0]) if len(self.estimates) else COMPARED

    @property
    def in_groups(self) -> bool:
        """Whether models are compared within groups of studies, which differ in target images or sets of hospitals."""
        return self.design in (TARGET_IMAGES, SUBSETS)

    @property
    def by_k(self) -> bool:
        """Whether models are the K of one method, rather than methods."""
        return len(self.view("study")[["method", "window"]].drop_duplicates()) == 1

    @property
    def is_study(self) -> bool:
        """Whether these are the K of one method, over its training seeds, in one group."""
        return self.by_k and not self.in_groups

    @property
    def scored(self) -> str:
        """The images that were scored."""
        about = self.about
        counted = count_images(about["images"], about["patients"], patients_known=about.get("has_patients", True))
        return f"{counted} ({about['protocol']})"

    def view(self, name: str, **values: object) -> pd.DataFrame:
        """Estimates of a view, with these values of columns."""
        return select(self.estimates, name, **values)

    def view_counted(self, name: str) -> pd.DataFrame:
        """Estimates of a view of the diseases that count in the study's mean, which is over the rest of no run."""
        rows, study = self.view(name), self.view("study")
        out = study.loc[~study["in_mean"].fillna(value=True), "disease"]
        return rows[~rows["disease"].isin([*out, "mean"])]

    def gains(self, name: str, **values: object) -> pd.DataFrame:
        """Differences of a view, with these values of columns."""
        return select(self.differences, name, **values)

    def list_estimates(self, name: str, **values: object) -> list[EstimateRow]:
        """The rows of `view`."""
        return list_estimate_rows(self.view(name, **values))

    def list_differences(self, name: str, **values: object) -> list[DifferenceRow]:
        """The rows of `gains`."""
        return list_difference_rows(self.gains(name, **values))


def write_frames(folder: Path, estimates: pd.DataFrame, differences: pd.DataFrame, views: Sequence[str]) -> None:
    """Write the files of these views, without a file for an empty selection."""
    for view in views:
        for name, frame in zip(VIEWS[view], (estimates, differences), strict=True):
            rows = select(frame, view)
            if name and len(rows):
                write_text(folder / name, as_csv(rows))
            elif name:
                (folder / name).unlink(missing_ok=True)
    write_json(folder / ABOUT, {"version": VERSION})


def read_estimates(folder: Path) -> pd.DataFrame:
    """The estimates in the files of a folder, to the last bit; raises `ChestfedError` if one is damaged."""
    return make_estimates(_read(folder, 0, EstimateRow))


def read_differences(folder: Path) -> pd.DataFrame:
    """The differences in the files of a folder, to the last bit; raises `ChestfedError` if one is damaged."""
    return make_differences(_read(folder, 1, DifferenceRow))


def list_stored_gains(folder: Path, view: str) -> list[DifferenceRow]:
    """The differences of one view, without the columns that are made of others; raises as `read_differences`."""
    return cast(list[DifferenceRow], _read(folder, 1, DifferenceRow, (view,)))


def _read(folder: Path, place: int, row: type, views: Iterable[str] = VIEWS) -> list[dict[str, Any]]:
    """Rows of any version of the tables: columns that a file lacks are empty."""
    types, rows = list_types(row), list[dict[str, Any]]()
    about = read_json_file(folder / ABOUT, optional=True) or {"version": 1}
    with expected(folder / ABOUT):
        version = int(about["version"])
    if version > VERSION:
        raise ConfigError(
            f"{folder}: the tables are of version {version}, this chestfed reads up to {VERSION}. Install the version "
            "of chestfed that wrote them, or a later one",
            kind="later version",
            version=version,
        )
    for view in views:
        file = folder / VIEWS[view][place]
        if not VIEWS[view][place] or not file.is_file():
            continue
        with expected(file):
            empty = {name: [""] for name, kind in types.items() if kind != "str"}
            frame = pd.read_csv(file, dtype=types, keep_default_na=False, na_values=empty)
            if "disease" not in frame:
                raise KeyError("disease")
            if version == 1:
                frame = older.complete(frame)
        rows += [{"view": view, **row} for row in list_records(frame)]
    return rows
