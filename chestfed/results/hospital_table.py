"""AUCs of several models at every hospital, on its own held-out patients, over training seeds.

Two tables have this form, made from run folders (`hospitals.json`, `kN/hospitals/` and `kN/alternatives/`). Who gains:
every K (or algorithm), the last minus the first. And what a hospital could do instead (`ALTERNATIVES`): its own data
alone, the common model of the largest K, that model fine-tuned, centralized training, each minus own data. Written as

    hospitals.csv, alternatives.csv                    one row per hospital, model and disease (and the mean)
    hospital_gains.csv, alternative_gains.csv          the differences at every hospital, paired
    hospital_table.json, alternative_table.json        both, to be read again
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
from chestfed.core.provenance import Origin
from chestfed.evaluation.comparison import holm_over_comparisons
from chestfed.evaluation.estimates import Estimate, as_csv, mean_of, spread_of, tidy
from chestfed.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.results.batch_norm import Statistics, describe_statistics
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
    ALTERNATIVES,
    CENTRALIZED,
    FINE_TUNED,
    HOSPITALS,
    OWN_DATA,
    RESULT,
    RunFolder,
    expected,
    read_json_file,
    read_row,
)
from chestfed.results.significance import Significance, compare_with_first
from chestfed.results.significance import frame as differences
from chestfed.results.table import Row

#: What a model is called -> the run folder, K and kind (empty: the common model) of each training seed.
Models = Mapping[str, Sequence[tuple[Path, int, str]]]


@dataclass(frozen=True)
class Files:
    """Names of a table's files: estimates, differences, and both to be read again."""

    estimates: str
    gains: str
    table: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.estimates, self.gains, self.table


HOSPITAL_TABLE: Final = Files("hospitals.csv", "hospital_gains.csv", "hospital_table.json")
ALTERNATIVE_TABLE: Final = Files("alternatives.csv", "alternative_gains.csv", "alternative_table.json")
#: Heading of the second table.
ALTERNATIVES_TITLE: Final = "What could each hospital do instead?"
#: Kinds of alternatives -> what tables call them.
ALTERNATIVE_TITLES: Final = {OWN_DATA: "own data alone", FINE_TUNED: "fine-tuned", CENTRALIZED: "centralized"}


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
    gain: Significance | None  #: the last K minus the first, or the alternatives minus own data; None for one model


@dataclass(frozen=True)
class HospitalTable:
    """All hospitals with held-out patients; `untested` are those that take part without. `ks`: the K of each model."""

    origin: Origin
    hospitals: tuple[AtHospital, ...]
    untested: tuple[str, ...]
    ks: dict[str, int]
    seeds: int
    interval: MethodName
    statistics: Statistics | None = None  #: of batch normalization, with which the hospitals were scored

    @property
    def models(self) -> tuple[str, ...]:
        """In their order."""
        return tuple(self.ks)

    def takes_part(self, hospital: AtHospital, model: str) -> bool:
        """Whether the model was trained there too."""
        return self.ks[model] >= hospital.joins


def of_study(run: RunFolder, interval: MethodName | None = None) -> HospitalTable | None:
    """That of one study, for the K it was to run; as `of_models`."""
    return of_models({f"K={k}": [(run.path, k, "")] for k in run.settings.ks}, interval)


def read_alternatives(runs: Sequence[RunFolder], interval: MethodName | None = None) -> HospitalTable | None:
    """What each hospital could do instead of using the model of the largest K, over the training seeds of these runs.

    None if nothing was trained for it. Raises as `of_models`.
    """
    k = runs[0].settings.ks[-1]
    kinds = [kind for kind in ALTERNATIVE_TITLES if all((run.folder(k) / ALTERNATIVES / kind).is_dir() for run in runs)]
    if not kinds:
        return None
    models = {ALTERNATIVE_TITLES[kind]: [(run.path, k, kind) for run in runs] for kind in kinds}
    common = {f"K={k}": [(run.path, k, "") for run in runs]}
    first = {name: models.pop(name) for name in [ALTERNATIVE_TITLES[OWN_DATA]] if name in models}
    return of_models({**first, **common, **models}, interval)


def of_models(models: Models, interval: MethodName | None = None) -> HospitalTable | None:
    """That of several models, each trained once per seed; None if nobody is scored but the target.

    Gains are compared where models differ in K, or in kind. Intervals are the stored ones, unless another method is
    named. A hospital for which no alternative was trained is left out of a table of alternatives.

    Raises `ChestfedError` if a result is missing or damaged.
    """
    run = RunFolder(next(iter(models.values()))[0][0])
    if not run.hospitals:
        return None
    ks, alternatives = {model: runs[0][1] for model, runs in models.items()}, has_alternatives(models)
    how = Intervals(interval or run.row(min(ks.values())).interval, run.settings.resamples)
    rows = [_at_hospital(hospital, models, how) for hospital in run.hospitals["hospitals"]]
    rows = [row for row in rows if len(row.aucs) > 1 or not alternatives]
    corrected = iter(holm_over_comparisons([part for row in rows if row.gain for part in row.gain.comparisons]))
    every = [
        row
        if row.gain is None
        else replace(row, gain=replace(row.gain, comparisons=tuple(next(corrected) for _ in row.gain.comparisons)))
        for row in rows
    ]
    seeds = max(len(runs) for runs in models.values())
    left_out = {hospital["name"] for hospital in run.hospitals["hospitals"]} - {row.name for row in rows}
    untested = (*run.hospitals["untested"], *sorted(left_out))
    return HospitalTable(run.origin, tuple(every), untested, ks, seeds, how.method, run.statistics)


def has_alternatives(models: Models) -> bool:
    """Whether some of the models are not common ones."""
    return any(kind for runs in models.values() for _, _, kind in runs)


def _at_hospital(about: Mapping[str, Any], models: Models, how: Intervals) -> AtHospital:
    """One hospital, with those of the models that were scored there."""
    results = {
        model: [_result(*_place(about, *trained), how) for trained in runs]
        for model, runs in models.items()
        if all(_place_exists(about, *trained) for trained in runs)
    }
    stays = any(row.scores_stay for pairs in results.values() for row, _ in pairs)
    aucs = {model: _over_seeds([row.aucs for row, _ in pairs]) for model, pairs in results.items()}
    sd = {
        model: tuple(spread_of(one.value for one in ones) for ones in zip(*(row.aucs for row, _ in pairs), strict=True))
        for model, pairs in results.items()
    }
    names, gain = list(results), None
    compared = names if has_alternatives(models) else list(dict.fromkeys((names[0], names[-1])))
    if len(compared) > 1 and not stays and (names[0].startswith("K=") or has_alternatives(models)):
        predictions = [
            replace(as_one([scored for _, scored in results[name] if scored]), name=name) for name in compared
        ]
        gain = compare_with_first(predictions, how.resamples, how.method)
    return AtHospital(about["name"], about["images"], about["patients"], about["joins"], aucs, sd, gain)


def _place(about: Mapping[str, Any], folder: Path, k: int, kind: str) -> tuple[Path, int, str]:
    """The run folder, the K, and the folder below it in which a model's result at a hospital lies."""
    if kind == OWN_DATA and about["is_test_set"] and 1 in RunFolder(folder).settings.ks:
        return folder, 1, ""  # the target alone is K=1
    if kind:
        return folder, k, f"{ALTERNATIVES}/{kind}/{about['name']}"
    return folder, k, "" if about["is_test_set"] else f"{HOSPITALS}/{about['name']}"


def _place_exists(about: Mapping[str, Any], folder: Path, k: int, kind: str) -> bool:
    """Whether an alternative was trained for the hospital; the common model always was."""
    path, number, place = _place(about, folder, k, kind)
    return not kind or (RunFolder(path).folder(number) / place / RESULT).is_file()


def _result(folder: Path, k: int, place: str, how: Intervals) -> tuple[Row, Predictions | None]:
    """One model, trained once, at one hospital: its AUCs and, unless its scores stay there, predictions."""
    run = RunFolder(folder)
    part = run.scored_folder(k, place) if place else run.folder(k)
    row = read_row(part)
    found = None if row.scores_stay else read_run(folder, k, place)
    scored = None if found is None else found.scored(found.diseases)[0]
    return row.with_intervals(how, scored, part), found


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
        for model in one.aucs
        for found, sd in zip(one.aucs[model], one.sd[model], strict=True)
    )
    columns = ["hospital", "model", "k", "takes_part", "disease", "auc", "low", "high", "sd", "seeds", "images"]
    counts = ["patients", "positives", "negatives", "missing", "reason", *method]
    return tidy(rows, [*columns, *counts], {"data": str(table.origin)})


def gains_frame(table: HospitalTable) -> pd.DataFrame | None:
    """The last K minus the first at every hospital: columns as in `significance.csv`; None with one K."""
    found = [differences(one.gain).assign(hospital=one.name) for one in table.hospitals if one.gain]
    return pd.concat(found)[["hospital", *found[0].columns[:-1]]] if found else None


def write(table: HospitalTable, folder: Path, files: Files = HOSPITAL_TABLE) -> None:
    """Write the three files; without differences if there is one model."""
    write_text(folder / files.estimates, as_csv(frame(table)))
    if (gains := gains_frame(table)) is not None:
        write_text(folder / files.gains, as_csv(gains))
    write_json(folder / files.table, TypeAdapter(HospitalTable).dump_python(table, mode="json"))


def read(folder: Path, files: Files = HOSPITAL_TABLE) -> HospitalTable | None:
    """The table that `write` wrote; None if there is none.

    Raises `ChestfedError` if the file is damaged.
    """
    plain = read_json_file(folder / files.table, optional=True)
    with expected(folder / files.table):
        return None if plain is None else TypeAdapter(HospitalTable).validate_python(plain, strict=False)


def metrics(table: HospitalTable) -> dict[str, float | None]:
    """For MLflow: at every hospital the mean AUC of the last model, and its gain over the first K."""
    found = {f"auc_at/{one.name}": one.aucs[table.models[-1]][-1].value for one in table.hospitals}
    gains = {f"gain_at/{one.name}": one.gain.comparisons[0][-1].difference for one in table.hospitals if one.gain}
    return found | gains


def alternative_metrics(table: HospitalTable) -> dict[str, float | None]:
    """For MLflow: at every hospital the mean AUC of each model minus that with its own data alone."""
    return {
        f"over_own_data/{one.name}/{model.replace('=', '')}": differences[-1].difference
        for one in table.hospitals
        if one.gain
        for model, differences in zip(one.gain.others, one.gain.comparisons, strict=True)
    }


def grid(table: HospitalTable, caption: str = "", digits: int = 3, name: str = "hospitals") -> Grid:
    """The mean AUC of every model at every hospital, and the differences that were compared."""
    rows, heads = Rows(), _compared_models(table)
    for one in table.hospitals:
        cells = [Cell(f"{one.images:,}", (f"{one.patients:,} patients",))]
        for model in table.models:
            if model not in one.aucs:
                cells.append(Cell("-"))
                continue
            mean, sd = one.aucs[model][-1], one.sd[model][-1]
            cell = auc_cell(mean, digits) if sd is None else Cell(number(mean.value), (f"±{sd:.3f}",))
            inside = table.takes_part(one, model) or mean.value is None
            cells.append(cell if inside else Cell(f"({cell.text})", cell.below))
        gains = dict(zip(one.gain.others, one.gain.comparisons, strict=True)) if one.gain else {}
        for model in heads:
            missing = Cell("-" if model not in one.aucs else "not disclosed")
            cells.append(difference_cell(gains[model][-1], digits) if model in gains else missing)
        rows.append((one.name, cells))
    differences = [f"{model} minus {table.models[0]}" for model in heads]
    return grid_of(name, caption, ("hospital", "test images", *table.models, *differences), rows)


def _compared_models(table: HospitalTable) -> list[str]:
    """The models that are compared with the first at some hospital, in their order."""
    compared = {name for one in table.hospitals if one.gain for name in one.gain.others}
    return [model for model in table.models if model in compared]


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
    statistics = describe_statistics(table.statistics)
    return f"{about}. {numbers}{outside_text}{untested} {statistics}".strip()


def verdict(table: HospitalTable) -> str:
    """Who gains, in a sentence for each compared model; empty without a comparison."""
    return " ".join(filter(None, (_verdict(table, model) for model in _compared_models(table))))


def _verdict(table: HospitalTable, model: str) -> str:
    first, means = table.models[0], []
    for one in table.hospitals:
        if one.gain and model in one.gain.others:
            means.append((one.name, one.gain.comparisons[one.gain.others.index(model)][-1]))
    known = [(name, mean.difference, mean.interval) for name, mean in means if mean.difference is not None]
    if not known:
        return ""
    gained = sum(difference > 0 for _, difference, _ in known)
    above = [name for name, _, interval in known if interval is not None and interval.low > 0]
    below = [name for name, _, interval in known if interval is not None and interval.high < 0]
    where = [", ".join(names) or "none" for names in (above, below)]
    clear = f"the 95% interval is above 0 at {where[0]} and below 0 at {where[1]}"
    return (
        f"On each hospital's own held-out patients, the mean AUC with {model} is higher than with {first} at {gained} "
        f"of {len(known)} hospitals; {clear}."
    )


def render(table: HospitalTable, title: str = "Who gains?") -> RenderableType:
    """The table for a terminal."""
    gains = rich_table(grid(table, digits=2), f"{table.origin.short_mark}{title}", caption_of(table))
    told = verdict(table)
    return Group(gains, *([Text(told)] if told else []))
