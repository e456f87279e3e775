"""Outcome of a search: its trials as files, the chosen settings as a pipeline, and a table of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from rich.console import RenderableType

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.config import Document, relative_path
from chestfed.core.console import text_table
from chestfed.results.tables.columns import CENTRALIZED, OWN_DATA
from chestfed.studies.experiment.loading import pipeline_document
from chestfed.studies.experiment.methods import Method, PipelineFile
from chestfed.studies.experiment.quick import TITLE as QUICK_TITLE
from chestfed.studies.experiment.ranges import Grid, Range, Space, parse_space, set_values
from chestfed.studies.training.reporting import Trial
from chestfed.studies.tuning.subjects import Subject

TRIALS, TUNED = "trials.csv", "tuned.yaml"
#: Trials of the search from which its range is widened, and trials are added beside the best.
LEAST_FOR_EDGES = 3


def widen_ranges(declared: Mapping[str, Space], done: Sequence[Trial]) -> dict[str, Space]:
    """The ranges of the next trial: those declared, widened after each trial where the best so far was at an edge."""
    ranges: dict[str, Space] = dict(declared)
    for count in range(LEAST_FOR_EDGES, len(done) + 1):
        best = find_best([trial for trial in done[:count] if trial.purpose == "search"])
        if best is not None:
            ranges = {key: space.widened(best.values[key]) for key, space in ranges.items()}
    return ranges


def find_best(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the highest mean AUC, the first of several; None if all diverged."""
    return next(iter(rank(trials)), None)


def rank(trials: Sequence[Trial]) -> list[Trial]:
    """Those that did not diverge, the highest mean AUC first."""
    return sorted((trial for trial in trials if trial.mean is not None), key=lambda trial: -(trial.mean or 0.0))


def choose(trials: Sequence[Trial]) -> Trial | None:
    """The best over all its seeds of the confirmed trials; without any, the best."""
    confirmed = [trial for trial in trials if trial.confirmed and trial.overall is not None]
    return max(confirmed, key=lambda trial: trial.overall or 0.0) if confirmed else find_best(trials)


def write_trials(folder: Path, searches: Mapping[str, Sequence[Trial]]) -> None:
    """Write `trials.csv`, a row per trial and training seed, and `trials.json`, which has the ranges too."""
    rows: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []
    for trials in searches.values():
        best = choose(trials)
        seeds = max((list(trial.aucs) for trial in trials), key=len)
        for trial in trials:
            about = {"algorithm": trial.algorithm, "trial": trial.number, "purpose": trial.purpose}
            about["best_so_far"] = trial is best
            state = "diverged" if trial.diverged else "finished"
            head = {"data": str(trial.origin), **about, "state": state}
            aucs = dict.fromkeys(seeds) | trial.aucs | dict(trial.confirmed)
            rows += [head | {"seed": seed, "validation_auc": auc} | trial.values for seed, auc in aucs.items()]
            result = {"state": state, "why": trial.diverged, "validation_auc": trial.mean, "aucs": trial.aucs}
            result["confirmed"] = dict(trial.confirmed)
            drawn = {"values": trial.values, "ranges": trial.ranges, "seconds": trial.seconds}
            whole.append({**about, **result, **drawn})
    write_text(folder / TRIALS, pd.DataFrame(rows).to_csv(index=False))
    origin = next(iter(searches.values()))[0].origin
    write_json(folder / "trials.json", {**origin.keys(), "trials": whole})


def write_tuned(
    folder: Path,
    source: Path | Document,
    overrides: Sequence[str],
    pipeline: PipelineFile,
    subjects: Sequence[Subject],
    searches: Mapping[str, Sequence[Trial]],
    seeds: int,
    *,
    every_k: bool = False,
) -> Path:
    """Write `tuned.yaml`: the pipeline with the chosen settings, as a comparison of the methods, or with every K.

    It extends the pipeline's file, unless there is none or `--set` changed other keys than the selection: then it
    holds all keys.
    """
    document = pipeline_document(source, overrides)
    merged, file = document.data, document.path
    sites, _, _ = merged.pop("sites", None), merged.pop("methods"), merged.pop("selected", None)
    same = isinstance(source, Path) and all(text.startswith("selected=") for text in overrides)
    data: dict[str, Any] = {"extends": relative_path(file, folder)} if same else dict(merged)
    data |= {
        "title": f"{pipeline.title.removesuffix(QUICK_TITLE)}, tuned",
        "k": pipeline.k if every_k else pipeline.k[-1:],
        "windows": [],
        "seeds": seeds,
    }
    if sites:
        data["sites"] = [{**entry, "config": relative_path(file.parent / entry["config"], folder)} for entry in sites]
    common = merged.get("federated", {})
    entries = {
        method.name: {key: value for key, value in _list_keys(method).items() if common.get(key, ...) != value}
        for method in pipeline.methods
    }
    data["methods"], alternatives = list_chosen(pipeline, subjects, searches, entries, every_k=every_k)
    if alternatives:
        data["alternatives"] = {**data.get("alternatives", {}), **alternatives}
    best_of = {name: choose(trials) for name, trials in searches.items()}
    lines = [
        f"#   {name}: {best.overall:.4f} (trial {best.number} of {len(searches[name])})"
        for name, best in best_of.items()
        if best is not None
    ]
    first = next(best for best in best_of.values() if best is not None)
    confirmed = f", and {', '.join(map(str, first.confirmed))} for the best" if first.confirmed else ""
    head = [
        "# Settings chosen by `chestfed tune`: the highest validation AUC, the mean over training seeds "
        f"{', '.join(map(str, first.aucs))}{confirmed}.",
        *([f"# {first.origin.sentence}"] if first.origin.any_synthetic else []),
        *lines,
    ]
    path = folder / TUNED
    write_text(path, "\n".join([*head, yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)]))
    return path


def list_chosen(
    pipeline: PipelineFile,
    subjects: Sequence[Subject],
    searches: Mapping[str, Sequence[Trial]],
    entries: Mapping[str, dict[str, Any]],
    *,
    every_k: bool,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The entries of `methods` with the chosen settings, and keys of `alternatives`, from the entries by name."""
    methods = list[dict[str, Any]]()
    by_k, own_data = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    alternatives: dict[str, Any] = {"own_data_settings": own_data}
    for subject in subjects:
        trials = searches[subject.name]
        best = choose(trials)
        assert best is not None
        settings = subject.settings(pipeline.resolve(subject.method))
        if subject.kind == OWN_DATA:
            own_data[subject.site] = best.values
        elif subject.kind == CENTRALIZED:
            assert pipeline.alternatives is not None
            centralized = pipeline.alternatives.centralized or {}
            alternatives["centralized"] = set_values(centralized, settings, best.values)
        elif subject.k < pipeline.k[-1]:
            by_k[str(subject.k)] = best.values
        else:
            entry = set_values(entries[subject.method], settings, best.values) | ({"by_k": by_k} if by_k else {})
            methods.append(entry | {"tuning": _record(best, trials, every_k=every_k)})
    return methods, {key: value for key, value in alternatives.items() if value}


def _record(best: Trial, trials: Sequence[Trial], *, every_k: bool) -> dict[str, Any]:
    """How the settings were found, as the keys of a `TuningRecord`."""
    spaces = map(parse_space, trials[0].ranges.values())
    return {
        "trials": len(trials),
        "seeds": list(best.aucs),
        "grid": all(isinstance(space, Grid) for space in spaces),
        "validation_auc": round(float(best.overall or 0), 6),
        "confirmed": list(best.confirmed),
        "every_k": every_k,
    }


def _list_keys(method: Method) -> dict[str, Any]:
    """The keys of a method that were written, as plain data."""
    return method.model_dump(mode="json", exclude_unset=True)


def render(searches: Mapping[str, Sequence[Trial]]) -> RenderableType:
    """The chosen settings with their validation AUCs; ranges that were widened, and values at an edge, are marked."""
    origin = next(iter(searches.values()))[0].origin
    rows = []
    for name, trials in searches.items():
        best = choose(trials)
        assert best is not None
        assert best.overall is not None
        diverged = sum(bool(trial.diverged) for trial in trials)
        aucs = [*best.aucs.values(), *best.confirmed.values()]
        spread = f"{np.std(aucs, ddof=1):.3f}" if len(aucs) > 1 else ""
        figures = [f"{best.overall:.3f}", spread, str(len(trials)), str(diverged)]
        for key, value in best.values.items():
            last, tried = parse_space(trials[-1].ranges[key]), [trial.values[key] for trial in trials]
            notes = [last.description]
            notes += ["widened"] if last.plain() != trials[0].ranges[key] else []
            notes += ["best at the edge"] if last.at_edge(value) and value in (min(tried), max(tried)) else []
            searched = sum(trial.purpose == "search" for trial in trials)
            if searched < LEAST_FOR_EDGES and isinstance(last, Range):
                notes.append(f"edges not checked: fewer than {LEAST_FOR_EDGES} trials")
            rows.append([name if figures[0] else "", key, f"{value:g}", ", ".join(notes), *figures])
            figures = [""] * len(figures)
    words, numbers = ("method", "setting", "value", "range at the end"), ("validation AUC, mean", "seeds, SD")
    title = f"{origin.short_mark}Chosen on validation images"
    return text_table(title, words, (*numbers, "trials", "diverged"), rows)
