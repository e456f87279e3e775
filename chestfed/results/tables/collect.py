"""Results of finished runs: their AUCs and differences as two frames, with what captions and pages say of them.

A run folder stores each AUC once, in the `result.json` of a K, hospital or alternative. Estimates are read from there;
differences are stored in CSV files, because they take time. Several runs (training seeds, algorithms, windows, held-out
sites) have a folder beside theirs, named by them, with the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, cast

import pandas as pd

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.manifest import short_digest
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.estimates import bound_over_runs
from chestfed.results.evaluation.intervals.bootstrap import enough_resamples
from chestfed.results.evaluation.intervals.methods import Intervals, MethodName
from chestfed.results.evaluation.joining.calibrated import compare_calibration
from chestfed.results.evaluation.joining.recognized import count_recognized
from chestfed.results.tables.clients.attendance import Attendance, describe_added, read_attendance, takes_part
from chestfed.results.tables.clients.batch_norm import read_statistics
from chestfed.results.tables.clients.gate import count_choices, count_reasons, read_prices
from chestfed.results.tables.columns import COMMON, COMPARED, GATE, OWN_DATA
from chestfed.results.tables.differences import list_differences
from chestfed.results.tables.files import expected, read_json_file
from chestfed.results.tables.frames import (
    About,
    Bound,
    Results,
    Row,
    list_estimates,
    make_differences,
    make_estimates,
    name_run,
    read_differences,
    read_estimates,
    read_row,
    write_frames,
)
from chestfed.results.tables.made_with import describe_makers
from chestfed.results.tables.predictions import Predictions, load_predictions, merge_seeds
from chestfed.results.tables.run_folder import (
    ALTERNATIVES,
    COMPARISON,
    COUNTERS,
    HOSPITALS,
    MODEL_FILE,
    RESULT,
    RunFolder,
)
from chestfed.results.tables.settings import (
    describe_method,
    describe_network,
    find_paper,
    list_objectives,
    name_networks,
    name_paper,
)
from chestfed.results.tables.titles import ALTERNATIVE_TITLES, Telling, find_telling, name_model

#: AUCs that a run's last round records beside its own: that of either rule of output, see `federated.stage_output`.
OUTPUTS: Final = ("auc_of_last", "auc_of_average")


@dataclass(frozen=True)
class _Model:
    """One trained model of each training seed: run folder, K and kind; `telling` is what names it."""

    k: int
    runs: tuple[RunFolder, ...]
    telling: Telling
    kind: str = COMMON

    @property
    def about(self) -> dict[str, Any]:
        """Columns that identify it."""
        settings = self.runs[0].settings
        return {"method": settings.method, "window": settings.window, "k": self.k, "kind": self.kind}

    @cached_property
    def attendance(self) -> Attendance:
        """Who trained it."""
        return read_attendance(self.runs, self.k)

    @property
    def name(self) -> str:
        """In tables."""
        return name_model(**self.about, telling=self.telling)


def collect(
    runs: Sequence[RunFolder],
    title: str = "",
    *,
    design: str = COMPARED,
    ks: Sequence[int] | None = None,
    interval: MethodName | None = None,
    differences: pd.DataFrame | None = None,
) -> Results:
    """The results of finished runs: of one, or of several that differ in training seed, algorithm or window.

    `differences`: stored ones, which are not computed again. Intervals are the stored ones, unless another method is
    named. `ks`: these K alone, on the test images alone. Of a study that is not finished, the finished K. `design`: the
    value of that column.

    Raises `ChestfedError` if a result is missing or damaged.
    """
    first = runs[0]
    models = _list_models(runs, ks)
    first.folder(models[-1].k if models else None)  # refuses a study without a finished K
    draws = {(run.settings.split, run.settings.seed) for run in runs}
    how = Intervals(interval or first.row(models[0].k).interval, first.settings.resamples)
    estimates = [row for model in models for row in _list_study(model, how, models[-1].k)]
    if len(runs) > 1:
        every = (replace(model, runs=(run,)) for model in models for run in model.runs)
        each = (row for model in every for row in _list_study(model, how, models[-1].k, view="seeds"))
        estimates += [row for row in each if row["disease"] != "mean"]
    compared: list[dict[str, Any]] = []
    of_k = models[0].telling == "k"
    if differences is None and (len(draws) > 1 or (len(runs) == 1 and of_k)):
        compared = _compare(models, how, "study")
    untested: set[str] = set()
    finished = all(set(run.ks) >= set(run.settings.ks) for run in runs)
    at_hospitals = ks is None and first.hospitals and finished
    chosen = (first.configuration.get("alternatives") or {}).get("hospitals")  # None: all
    for view, part in _list_views(runs, models) if at_hospitals else ():
        for hospital in first.hospitals["hospitals"]:
            present = [model for model in part if all(_has_result(hospital, model, run) for run in model.runs)]
            if view == "alternatives" and len(present) < 2:
                untested |= {hospital["name"]} & set(chosen or [hospital["name"]])
                continue
            estimates += (row for model in present for row in _list_at_hospital(view, hospital, model, how))
            if differences is None and of_k:
                ends = list(dict.fromkeys((present[0], present[-1])))
                compared += _compare(present if view == "alternatives" else ends, how, view, hospital)
                if present[-1].kind == GATE:
                    others = (model for model in present[:-1] if model.kind != OWN_DATA)
                    compared += (row for model in others for row in _compare((model, present[-1]), how, GATE, hospital))
    return Results(
        title or first.title,
        Origin.together(run.origin for run in runs),
        {
            **_describe_runs(runs, models, untested),
            **({"origins": _list_origins(first)} if first.origin is Origin.MIXED else {}),
            **(_describe_change(models, how) if of_k else {"recognized": None}),
        },
        make_estimates({**row, "design": design} for row in estimates),
        make_differences({**row, "design": design} for row in compared) if differences is None else differences,
        _list_curves(models) if len(runs) > 1 else pd.DataFrame(),
    )


def _list_origins(run: RunFolder) -> dict[str, list[str]]:
    """Origin -> the hospitals, or test images, that have it."""
    origins: dict[str, list[str]] = {}
    for card in run.sites["sites"]:
        origins.setdefault(card["data"], []).append(card["name"])
    return origins


def load_results(run: RunFolder, interval: MethodName | None = None) -> Results:
    """The results of one study; stored differences are used if they are by this method, else computed."""
    stored = read_differences(run.path)
    known = set(stored["interval_method"]) == {interval or run.row().interval}
    return collect([run], interval=interval, differences=stored if known else None)


def write_results(results: Results, folder: Path) -> None:
    """Write the CSV files of one study into its run folder."""
    write_frames(folder, results.estimates, results.differences, ("study", "hospitals", "alternatives", "gate"))


def write_comparison(results: Results, out: Path, verdict: str = "") -> Path:
    """Write the CSV files of several runs, and `comparison.json`; returns their folder, named by the runs."""
    folder = name_folder([run["folder"] for run in results.about["runs"]], results.origin, out)
    folder.mkdir(parents=True, exist_ok=True)
    write_frames(
        folder, results.estimates, results.differences, ("study", "hospitals", "alternatives", "gate", "seeds")
    )
    write_text(folder / "curves.csv", results.curves.assign(data=str(results.origin)).to_csv(index=False))
    about = {"title": results.title, **results.origin.keys(), "largest_window": find_largest_windows(results)}
    write_json(folder / COMPARISON, about | {"verdict": verdict, "about": results.about})
    return folder


def read_comparison(folder: Path) -> Results:
    """The results that `write_comparison` wrote; raises `ChestfedError` if a file is damaged."""
    plain = read_json_file(folder / COMPARISON)
    with expected(folder / COMPARISON):
        about = plain["title"], Origin(plain["data"]), plain["about"]
        curves = pd.read_csv(folder / "curves.csv")
        curves = curves if "split" in curves or curves.empty else curves.assign(split=0)
        return Results(*about, read_estimates(folder), read_differences(folder), curves)


def list_run_folders(folder: Path, results: Results) -> list[Path]:
    """The run folders of a comparison, which lie beside its own."""
    return [folder.resolve().parent / name for name in dict.fromkeys(run["folder"] for run in results.about["runs"])]


def name_folder(folders: Sequence[str], origin: Origin, out: Path, kind: str = "comparison") -> Path:
    """The folder of several runs together, beside theirs."""
    return out / f"{origin.prefix}{kind}-{short_digest(chr(10).join(sorted(set(folders))))}"


def find_largest_windows(results: Results) -> dict[str, int]:
    """Per algorithm the largest window whose mean AUC is not lower than the smallest window's by the tolerance.

    Windows are tried in increasing order, up to the first that costs AUC. Empty if one window was run.
    """
    published = results.about["published"]
    tolerance = published["tolerance"] if published else 0.005
    means = results.view("study", disease="mean").groupby(["algorithm", "window"], sort=False)["auc"].mean()
    largest = {}
    for algorithm, part in means.groupby(level="algorithm", sort=False):
        curve = part.droplevel("algorithm").sort_index()
        if len(curve) > 1:
            costs = (curve < curve.iloc[0] - tolerance).cummax()
            largest[str(algorithm)] = int(curve.index[~costs][-1])
    return largest


# ---- models and where their results are --------------------------------------------------------------------------


def _list_models(runs: Sequence[RunFolder], ks: Sequence[int] | None) -> list[_Model]:
    """The common model of each method, window and K, with the runs of its training seeds."""
    members: dict[tuple[str, int, int], list[RunFolder]] = {}
    for run in runs:
        for k in ks or (run.ks if len(runs) == 1 else run.settings.ks):
            members.setdefault((run.settings.method, run.settings.window, k), []).append(run)
    return [_Model(key[-1], tuple(parts), find_telling(members)) for key, parts in members.items()]


def _list_views(runs: Sequence[RunFolder], models: Sequence[_Model]) -> Iterator[tuple[str, list[_Model]]]:
    """The views at hospitals, each with its models; a table of alternatives begins with own data alone."""
    yield "hospitals", list(models)
    if models[0].telling != "k" or not runs[0].configuration.get("alternatives"):
        return
    k = models[-1].k
    folders = [run.folder(k) / ALTERNATIVES for run in runs]
    kinds = [kind for kind in ALTERNATIVE_TITLES if all((folder / kind).is_dir() for folder in folders)]
    own_data = runs[0].configuration["alternatives"]["own_data"] and 1 in runs[0].settings.ks
    if kinds and own_data and OWN_DATA not in kinds:
        kinds.insert(0, OWN_DATA)  # of the target alone, which is K=1
    others = [_Model(k, tuple(runs), "k", kind) for kind in kinds]
    if others:
        place = 1 if kinds[0] == OWN_DATA else 0
        yield "alternatives", [*others[:place], models[-1], *others[place:]]


def _find_place(hospital: Mapping[str, Any], model: _Model, run: RunFolder) -> tuple[int, str]:
    """The K, and the folder below it (empty: itself), that hold a model's result at a hospital."""
    if model.kind == OWN_DATA and hospital["is_test_set"] and 1 in run.settings.ks:
        return 1, ""  # the target alone is K=1
    if model.kind != COMMON:
        return model.k, f"{ALTERNATIVES}/{model.kind}/{hospital['name']}"
    return model.k, "" if hospital["is_test_set"] else f"{HOSPITALS}/{hospital['name']}"


def _has_result(hospital: Mapping[str, Any], model: _Model, run: RunFolder) -> bool:
    """Whether an alternative was trained for the hospital; the common model always was."""
    k, place = _find_place(hospital, model, run)
    return model.kind == COMMON or (run.folder(k) / place / RESULT).is_file()


def _load_row(run: RunFolder, k: int, place: str) -> Row:
    return read_row(run.scored_folder(k, place) if place else run.folder(k))


def _read(run: RunFolder, k: int, place: str, how: Intervals) -> Row:
    """A result with intervals of this method."""
    row = _load_row(run, k, place)
    if row.interval == how.method:
        return row
    predictions = None if row.scores_stay else load_predictions(run.path, k, place)
    scored = None if predictions is None else predictions.scored(predictions.diseases)[0]
    return row.with_intervals(how, scored, run.folder(k) / place)


def _list_study(model: _Model, how: Intervals, largest: int, view: str = "study") -> Iterator[dict[str, Any]]:
    run, rows = model.runs[0], [_read(run, model.k, "", how) for run in model.runs]
    seed = {"seed": run.settings.seed, "split": run.settings.split} if len(rows) == 1 else {}
    paper = find_paper(run, rows[0], model.name, is_largest=model.k == largest)
    smaller = max((k for k in run.ks if k < model.k), default=0)
    names = describe_added(read_attendance(model.runs, smaller) if smaller else None, model.attendance)
    scored = {name: run.about["scored"].get(name) for name in ("images", "patients", "scored_with")}
    over = _OverRuns(model)
    for row in list_estimates(rows, over.count, over.bound, **_describe(run, model, view), added=names, **seed):
        yield row | scored | over.describe(row["disease"]) | {"paper_auc": paper.get(row["disease"])}


def _list_at_hospital(
    view: str, hospital: Mapping[str, Any], model: _Model, how: Intervals
) -> Iterator[dict[str, Any]]:
    rows = [_read(run, *_find_place(hospital, model, run), how) for run in model.runs]
    about = {"hospital": hospital["name"], "images": hospital["images"], "patients": hospital["patients"]}
    every = [read_attendance(model.runs, k) for k in model.runs[0].settings.ks]
    about["takes_part"] = takes_part(hospital, model.attendance, every)
    # Of folders of earlier releases: which split of each hospital was scored is not known.
    about["protocol"] = hospital.get("protocol", model.runs[0].settings.protocol)
    about["scored_with"] = hospital.get("scored_with") if model.kind == COMMON else ""
    over = _OverRuns(model, hospital)
    for row in list_estimates(rows, over.count, over.bound, **_describe(model.runs[0], model, view) | about):
        yield row | over.describe(row["disease"])


@dataclass(frozen=True)
class _OverRuns:
    """The runs of a model at one place: intervals of their mean AUCs, and counts of the images of several splits."""

    model: _Model
    hospital: Mapping[str, Any] | None = None

    @property
    def count(self) -> int:
        """Number of splits of the patients."""
        return len({run.settings.split for run in self.model.runs})

    @cached_property
    def merged(self) -> Predictions | None:
        """Predictions of several runs; None where scores stay at a hospital."""
        return _merge(self.model, self.hospital) if len(self.model.runs) > 1 else None

    @property
    def bound(self) -> Bound | None:
        if self.merged is None:
            return None
        return partial(bound_over_runs, self.merged.scored(self.merged.diseases))

    def describe(self, disease: str = "mean") -> dict[str, int]:
        """Columns of a row: images, patients, and those of each class."""
        if self.count == 1 or self.merged is None:
            return {}
        counts = dict(zip(("images", "patients"), self.merged.counts, strict=True))
        return counts | (self.merged.count_classes(disease) if disease in self.merged.diseases else {})


def _merge(model: _Model, hospital: Mapping[str, Any] | None) -> Predictions | None:
    """Predictions of all runs of a model; None where scores stay at a hospital."""
    places = [(run, *(_find_place(hospital, model, run) if hospital else (model.k, ""))) for run in model.runs]
    if any(_load_row(*place).scores_stay for place in places):
        return None
    return merge_seeds([load_predictions(run.path, k, place) for run, k, place in places])


def _describe(run: RunFolder, model: _Model, view: str) -> dict[str, Any]:
    return {
        "view": view,
        "data": str(Origin.together(run.origin for run in model.runs)),
        "model": model.name,
        "algorithm": run.settings.algorithm,
        "network": describe_network(run),
        **model.about,
        "protocol": run.about["scored"]["protocol"],
    }


def _compare(
    models: Sequence[_Model], how: Intervals, view: str, hospital: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The other models minus the first; nothing with one model, or where scores stay at a hospital."""
    predictions = []
    for model in models if len(models) > 1 else ():
        merged = _merge(model, hospital)
        if merged is None:
            return []
        predictions.append(replace(merged, name=model.name, about=model.about))
    if not predictions:
        return []
    return list_differences(
        predictions, how.resamples, how.method, view=view, hospital=hospital["name"] if hospital else ""
    )


def _describe_change(models: Sequence[_Model], how: Intervals) -> About:
    """Findings that the last model recognizes and the first one, and the calibration of both.

    Nothing of one model, of several splits of the patients, or where scores stay at a hospital.
    """
    ends = models[0], models[-1]
    several = len({run.settings.split for run in models[0].runs}) > 1  # other patients in each
    if len(models) < 2 or several or any(run.row(model.k).scores_stay for model in ends for run in model.runs):
        return {"recognized": None, "calibration": []}
    merged = [merge_seeds([load_predictions(run.path, model.k) for run in model.runs]) for model in ends]
    first, last = ([scored.columns() for scored in model.scored(merged[0].diseases)] for model in merged)
    resamples = enough_resamples(min(how.resamples, 500), len(merged[0].frames[0]))
    return {
        "recognized": count_recognized(first, last, resamples),
        "calibration": compare_calibration(first, last, resamples),
    }


# ---- what captions and curves need -------------------------------------------------------------------------------


def _describe_runs(runs: Sequence[RunFolder], models: Sequence[_Model], untested: set[str]) -> About:
    """The `about` of results; `untested` are hospitals without alternatives."""
    first = runs[0]
    compares = models[0].telling != "k"
    return {
        **cast(About, first.about["scored"] | _OverRuns(models[0]).describe()),
        "model": name_networks(runs),
        "has_patients": first.knows_patients,
        "where": first.settings.where,
        "target": first.row(models[0].k).clients[0] if first.settings.tests_first_hospital else "",
        "samples_size": (first.configuration.get("samples") or {}).get("size", "default"),
        "quick": bool(first.configuration.get("quick")),
        "adds_hospitals": first.settings.adds_hospitals,
        "attendance": [] if compares else [model.attendance for model in models],
        "held_out": bool(first.configuration.get("held_out")),
        "batch_norm": read_statistics(first.folder(models[-1].k) / MODEL_FILE, first.configuration),
        "seeds": sorted({run.settings.seed for run in runs}),
        "splits": sorted({run.settings.split for run in runs}),
        "untested": {"hospitals": first.hospitals.get("untested", []), "alternatives": sorted(untested)},
        "gate": count_choices(runs, models[-1].k),
        "gate_reasons": count_reasons(runs, models[-1].k),
        "gate_price": read_prices(runs, models[-1].k),
        "published": first.configuration.get("published"),
        "paper": name_paper(first, first.row(models[0].k)),
        "objectives": list_objectives(runs),
        "stage_1": first.stage_1 if len(runs) == 1 else {},
        "methods": [describe_method(model.name, model.runs, model.k) for model in models] if compares else [],
        "machine": first.about["machine"],
        "versions": first.about["versions"],
        "made_unalike": describe_makers(_list_makers(runs)),
        "runs": [
            {
                "run": model.name,
                "seed": run.settings.seed,
                "split": run.settings.split,
                "folder": run.path.name,
                "digest": run.digest,
            }
            for model in models
            for run in model.runs
        ],
    }


def _list_makers(runs: Sequence[RunFolder]) -> list[tuple[str, Path, Sequence[int]]]:
    """List of each run the text before its K, its folder, and its finished K."""
    several = len({(run.settings.method, run.settings.window) for run in runs}) > 1
    names = [f"{run.settings.method}, I={run.settings.window}, " if several else "" for run in runs]
    names = [
        f"{name}seed {name_run(run.settings.seed, run.settings.split or None)}, " if len(runs) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]
    return [(name, run.path, run.ks) for name, run in zip(names, runs, strict=True)]


def _list_curves(models: Sequence[_Model]) -> pd.DataFrame:
    """The evaluated rounds, with sums of bytes, images and gradients."""
    points = []
    for model, run in ((method, run) for method in models for run in method.runs):
        head = {name: _describe(run, model, "")[name] for name in ("model", "method", "algorithm", "window", "k")}
        sums = dict.fromkeys(COUNTERS, 0)
        for entry in run.rounds(model.k):
            sums = {name: value + entry[name] for name, value in sums.items()}
            if "mean_auc" in entry:
                values = {name: entry.get(name) for name in ("round", "loss", "drift", "gradient_drift", "mean_auc")}
                outputs = {name: entry.get(name) for name in OUTPUTS}
                total = {"bytes": sums["bytes_up"] + sums["bytes_down"]}
                draw = {"seed": run.settings.seed, "split": run.settings.split}
                points.append(head | draw | values | sums | total | outputs)
    return pd.DataFrame(points).astype({"mean_auc": float})
