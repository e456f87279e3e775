"""Who gains: the AUC at every hospital on its own held-out patients, for every K (or algorithm), over training seeds.

Made from run folders (`hospitals.json` and `kN/hospitals/`), and written as

    hospitals.csv          one row per hospital, model and disease (and the mean)
    hospital_gains.csv     the last model minus the first at every hospital, paired
    hospital_table.json    both, to be read again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.diseases import title_of
from chestfed.core.errors import ChestfedError
from chestfed.core.provenance import Origin
from chestfed.evaluation.comparison import holm_over_comparisons
from chestfed.evaluation.estimates import Estimate, as_csv, mean_of, spread_of, tidy
from chestfed.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.results.grid import (
    Cell,
    Grid,
    Rows,
    auc_cell,
    difference_cell,
    grid_of,
    number,
    rich_table,
    shown,
    signed,
)
from chestfed.results.predictions import Predictions, as_one, read_run
from chestfed.results.run_folder import (
    HOSPITALS,
    RESULT,
    RunFolder,
    check_files,
    expected,
    finished_row,
    read_json_file,
)
from chestfed.results.significance import Significance, compare_with_first
from chestfed.results.significance import frame as differences
from chestfed.results.table import Row

#: What a model is called -> the run folder and K of each training seed.
Models = Mapping[str, Sequence[tuple[Path, int]]]

_CSV, _GAINS, _TABLE = "hospitals.csv", "hospital_gains.csv", "hospital_table.json"
FILES: Final = (_CSV, _GAINS, _TABLE)


@dataclass(frozen=True)
class AtHospital:
    """One hospital."""

    name: str
    images: int
    patients: int
    joins: int  #: the first K that it takes part in
    #: aucs, sd: per model: each disease, and at last the mean; over several seeds their mean without interval, and the
    #: spread.
    aucs: dict[str, tuple[Estimate, ...]]
    sd: dict[str, tuple[float | None, ...]]
    gain: Significance | None  #: the last model minus the first; None for a single model


@dataclass(frozen=True)
class HospitalTable:
    """All hospitals with held-out patients; `untested` are those that take part without. `ks`: the K of each model."""

    origin: Origin
    hospitals: tuple[AtHospital, ...]
    untested: tuple[str, ...]
    ks: dict[str, int]
    seeds: int
    interval: MethodName
    warning: str

    @property
    def models(self) -> tuple[str, ...]:
        """In their order."""
        return tuple(self.ks)

    def takes_part(self, hospital: AtHospital, model: str) -> bool:
        """Whether the model was trained there too."""
        return self.ks[model] >= hospital.joins


def of_study(run: RunFolder, interval: MethodName | None = None) -> HospitalTable | None:
    """That of one study, for the K it was to run; as `of_models`."""
    return of_models({f"K={k}": [(run.path, k)] for k in run.settings.ks}, interval)


def of_models(models: Models, interval: MethodName | None = None) -> HospitalTable | None:
    """That of several models, each trained once per seed; None if nobody is scored but the target.

    Gains are compared where models differ in K. Intervals are the stored ones, unless another method is named.

    Raises `ChestfedError` if a result is missing or damaged.
    """
    run = RunFolder(next(iter(models.values()))[0][0])
    if not run.hospitals:
        return None
    ks = {model: runs[0][1] for model, runs in models.items()}
    how = Intervals(interval or run.row(min(ks.values())).interval, run.settings.resamples)
    found = [_at_hospital(one, models, how) for one in run.hospitals["hospitals"]]
    gains = [one.gain for one in found if one.gain is not None]
    corrected = iter(holm_over_comparisons([gain.comparisons[0] for gain in gains]))
    every = [
        one if one.gain is None else replace(one, gain=replace(one.gain, comparisons=(next(corrected),)))
        for one in found
    ]
    seeds = max(len(runs) for runs in models.values())
    warning = next((gain.warning for gain in gains if gain.warning), "")
    return HospitalTable(run.origin, tuple(every), tuple(run.hospitals["untested"]), ks, seeds, how.method, warning)


def _at_hospital(about: Mapping[str, Any], models: Models, how: Intervals) -> AtHospital:
    place = "" if about["is_test_set"] else f"{HOSPITALS}/{about['name']}"
    read = {model: [_result(folder, k, place, how) for folder, k in runs] for model, runs in models.items()}
    stays = any(row.scores_stay for its in read.values() for row, _ in its)
    aucs = {model: _over_seeds([row.aucs for row, _ in its]) for model, its in read.items()}
    sd = {
        model: tuple(spread_of(one.value for one in ones) for ones in zip(*(row.aucs for row, _ in its), strict=True))
        for model, its in read.items()
    }
    (start, *_), (*_, end), gain = models, models, None
    if start != end and start.startswith("K=") and not stays:
        both = [replace(as_one([found for _, found in read[model] if found]), name=model) for model in (start, end)]
        gain = compare_with_first(both, how.resamples, how.method)
    return AtHospital(about["name"], about["images"], about["patients"], about["joins"], aucs, sd, gain)


def _result(folder: Path, k: int, place: str, how: Intervals) -> tuple[Row, Predictions | None]:
    """One model, trained once, at one hospital: its AUCs and, unless its scores stay there, predictions."""
    own = RunFolder(folder).folder(k) / place
    if place and (own / RESULT).is_file():
        check_files(own, (RESULT,))
    row = finished_row(own)
    if row is None:
        raise ChestfedError(f"{own}: nothing was scored there yet. Run the same `chestfed study` command again.")
    found = None if row.scores_stay else read_run(folder, k, place)
    scored = None if found is None else found.scored(found.diseases)[0]
    return row.with_intervals(how, scored, own), found


def _over_seeds(every: Sequence[tuple[Estimate, ...]]) -> tuple[Estimate, ...]:
    """One seed's AUCs as they are; the mean of several, without intervals."""
    if len(every) == 1:
        return every[0]
    means = (mean_of(one.value for one in ones) for ones in zip(*every, strict=True))
    return tuple(replace(one, value=mean, interval=None) for one, mean in zip(every[0], means, strict=True))


def frame(table: HospitalTable) -> pd.DataFrame:
    """One row per hospital, model and disease (and the mean): the columns of `hospitals.csv`."""
    method = {"interval_method": table.interval, "interval_reference": METHODS[table.interval].references[0]}
    rows = (
        {"hospital": one.name, "images": one.images, "patients": one.patients, "model": model, "k": table.ks[model]}
        | {"takes_part": str(table.takes_part(one, model)).lower(), "seeds": table.seeds, "sd": sd}
        | {**found.record("auc"), **method}
        for one in table.hospitals
        for model in table.models
        for found, sd in zip(one.aucs[model], one.sd[model], strict=True)
    )
    columns = ["hospital", "model", "k", "takes_part", "disease", "auc", "low", "high", "sd", "seeds", "images"]
    counts = ["patients", "positives", "negatives", "missing", "reason", *method]
    return tidy(rows, [*columns, *counts], {"data": str(table.origin)})


def gains_frame(table: HospitalTable) -> pd.DataFrame | None:
    """The last K minus the first at every hospital: columns as in `significance.csv`; None with one K."""
    found = [differences(one.gain).assign(hospital=one.name) for one in table.hospitals if one.gain]
    return pd.concat(found)[["hospital", *found[0].columns[:-1]]] if found else None


def write(table: HospitalTable, folder: Path) -> None:
    """Write the three files; without differences if there is one K."""
    write_text(folder / _CSV, as_csv(frame(table)))
    if (gains := gains_frame(table)) is not None:
        write_text(folder / _GAINS, as_csv(gains))
    write_json(folder / _TABLE, TypeAdapter(HospitalTable).dump_python(table, mode="json"))


def read(folder: Path) -> HospitalTable | None:
    """What `write` wrote; None if nobody was scored but the target.

    Raises `ChestfedError` if the file is damaged.
    """
    plain = read_json_file(folder / _TABLE, optional=True)
    with expected(folder / _TABLE):
        return None if plain is None else TypeAdapter(HospitalTable).validate_python(plain, strict=False)


def metrics(table: HospitalTable) -> dict[str, float | None]:
    """For MLflow: at every hospital the mean AUC of the last model, and its gain over the first K."""
    found = {f"auc_at/{one.name}": one.aucs[table.models[-1]][-1].value for one in table.hospitals}
    gains = {f"gain_at/{one.name}": one.gain.comparisons[0][-1].difference for one in table.hospitals if one.gain}
    return found | gains


def grid(table: HospitalTable, caption: str = "", digits: int = 3) -> Grid:
    """The mean AUC of every model at every hospital, and what the last K gains over the first."""
    rows, compared = Rows(), any(one.gain for one in table.hospitals)
    for one in table.hospitals:
        cells = [Cell(f"{one.images:,}", (f"{one.patients:,} patients",))]
        for model in table.models:
            mean, sd = one.aucs[model][-1], one.sd[model][-1]
            cell = auc_cell(mean, digits) if sd is None else Cell(number(mean.value), (f"±{sd:.3f}",))
            inside = table.takes_part(one, model) or mean.value is None
            cells.append(cell if inside else Cell(f"({cell.text})", cell.below))
        if compared:
            cells.append(difference_cell(one.gain.comparisons[0][-1], digits) if one.gain else Cell("not disclosed"))
        rows.append((one.name, cells))
    last = [f"{table.models[-1]} minus {table.models[0]}"] if compared else []
    return grid_of("hospitals", caption, ("hospital", "test images", *table.models, *last), rows)


def disease_grid(table: HospitalTable, caption: str = "") -> Grid:
    """The AUC of the last model per hospital and disease, and below it the difference to the first K."""
    model, rows = table.models[-1], Rows()
    for one in table.hospitals:
        gains = one.gain.comparisons[0] if one.gain else [None] * len(one.aucs[model])
        pairs = zip(shown(one.aucs[model]), shown(gains), strict=True)
        cells = [
            Cell(number(found.value), () if gain is None or gain.difference is None else (signed(gain.difference),))
            for found, gain in pairs
        ]
        rows.append((one.name, cells))
    heads = ("hospital", *(title_of(found.disease) for found in shown(table.hospitals[0].aucs[model])))
    return grid_of("hospital-diseases", caption, heads, rows)


def caption_of(table: HospitalTable) -> str:
    """What the numbers of `grid` are."""
    method = METHODS[table.interval]
    numbers = (
        "In brackets: " + f"{method.about} ({table.interval}), over the hospital's patients: {method.references[0]}."
    )
    if table.seeds > 1:
        numbers = f"Means over {table.seeds} training seeds ± the standard deviation over them."
    outside = any(not table.takes_part(one, model) for one in table.hospitals for model in table.models)
    outside_text = " In parentheses: before the hospital took part." if outside else ""
    untested = f" Without held-out patients: {', '.join(table.untested)}." if table.untested else ""
    about = "Mean AUC over the diseases at each hospital, on its own held-out patients"
    return f"{about}. {numbers}{outside_text}{untested} {table.warning}".strip()


def verdict(table: HospitalTable) -> str:
    """Who gains, in a sentence; empty without a comparison of K."""
    means = [(one.name, one.gain.comparisons[0][-1]) for one in table.hospitals if one.gain]
    known = [(name, mean.difference, mean.interval) for name, mean in means if mean.difference is not None]
    if not known:
        return ""
    gained = sum(difference > 0 for _, difference, _ in known)
    above = [name for name, _, interval in known if interval is not None and interval.low > 0]
    below = [name for name, _, interval in known if interval is not None and interval.high < 0]
    first, last = table.models[0], table.models[-1]
    where = [", ".join(names) or "none" for names in (above, below)]
    clear = f"the 95% interval is above 0 at {where[0]} and below 0 at {where[1]}"
    return (
        f"On each hospital's own held-out patients, the mean AUC with {last} is higher than with {first} at {gained} "
        f"of {len(known)} hospitals; {clear}."
    )


def render(table: HospitalTable) -> RenderableType:
    """The table for a terminal."""
    gains = rich_table(grid(table, digits=2), f"{table.origin.short_mark}Who gains?", caption_of(table))
    told = verdict(table)
    return Group(gains, *([Text(told)] if told else []))
