"""Outcome of a search: its trials as files, the chosen settings as a pipeline, and a table of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from rich.console import RenderableType

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.config import Document
from chestfed.core.console import text_table
from chestfed.studies.experiment.loading import pipeline_document
from chestfed.studies.experiment.methods import Method, PipelineFile
from chestfed.studies.experiment.ranges import Grid, Space, parse_space, set_values
from chestfed.studies.training.reporting import Trial

TRIALS, TUNED = "trials.csv", "tuned.yaml"


def find_best(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the highest mean AUC, the first of several; None if all diverged."""
    scored = [trial for trial in trials if trial.mean is not None]
    return max(scored, key=lambda trial: trial.mean or 0.0) if scored else None


def write_trials(folder: Path, searches: Mapping[str, Sequence[Trial]], seeds: Sequence[int]) -> None:
    """Write `trials.csv`, a row per trial and training seed, and `trials.json`, which has the ranges too."""
    rows: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []
    for trials in searches.values():
        best = find_best(trials)
        for trial in trials:
            about = {"algorithm": trial.algorithm, "trial": trial.number, "best_so_far": trial is best}
            state = "diverged" if trial.diverged else "finished"
            head = {"data": str(trial.origin), **about, "state": state}
            rows += [head | {"seed": seed, "validation_auc": trial.aucs.get(seed)} | trial.values for seed in seeds]
            result = {"state": state, "why": trial.diverged, "validation_auc": trial.mean, "aucs": trial.aucs}
            drawn = {"values": trial.values, "ranges": trial.ranges, "seconds": trial.seconds}
            whole.append({**about, **result, **drawn})
    write_text(folder / TRIALS, pd.DataFrame(rows).to_csv(index=False))
    origin = next(iter(searches.values()))[0].origin
    write_json(folder / "trials.json", {**origin.keys(), "seeds": list(seeds), "trials": whole})


def write_tuned(
    folder: Path,
    source: Path | Document,
    overrides: Sequence[str],
    pipeline: PipelineFile,
    searches: Mapping[str, Sequence[Trial]],
    seeds: int,
) -> Path:
    """Write `tuned.yaml`: the pipeline with the chosen settings, as a comparison of the methods.

    It extends the pipeline's file, unless there is none or `--set` changed other keys than the selection: then it
    holds all keys.
    """
    document = pipeline_document(source, overrides)
    merged, file = document.data, document.path
    sites, _, _ = merged.pop("sites", None), merged.pop("methods"), merged.pop("selected", None)
    same = isinstance(source, Path) and all(text.startswith("selected=") for text in overrides)
    data: dict[str, Any] = {"extends": _relative(file, folder)} if same else dict(merged)
    data |= {"title": f"{pipeline.title}, tuned", "k": pipeline.k[-1:], "windows": [], "seeds": seeds}
    if sites:
        data["sites"] = [{**entry, "config": _relative(file.parent / entry["config"], folder)} for entry in sites]
    common = merged.get("federated", {})
    entries = {
        method.name: {key: value for key, value in _list_keys(method).items() if common.get(key, ...) != value}
        for method in pipeline.methods
    }
    data["methods"] = []
    lines = []
    for name, trials in searches.items():
        best = find_best(trials)
        assert best is not None
        spaces = map(parse_space, trials[-1].ranges.values())
        record = {
            "trials": len(trials),
            "seeds": list(best.aucs),
            "grid": all(isinstance(space, Grid) for space in spaces),
        }
        entry = set_values(entries[name], pipeline.resolve(name).federated, best.values)
        data["methods"].append(entry | {"tuning": record | {"validation_auc": round(float(best.mean or 0), 6)}})
        lines.append(f"#   {name}: {best.mean:.4f} (trial {best.number} of {len(trials)})")
    first = searches[next(iter(searches))][0]
    head = [
        "# Settings chosen by `chestfed tune`: the highest validation AUC, the mean over training seeds "
        f"{', '.join(map(str, first.aucs))}.",
        *([f"# {first.origin.sentence}"] if first.origin.any_synthetic else []),
        *lines,
    ]
    path = folder / TUNED
    write_text(path, "\n".join([*head, yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)]))
    return path


def _list_keys(method: Method) -> dict[str, Any]:
    """The keys of a method that were written, as plain data."""
    return method.model_dump(mode="json", exclude_unset=True)


def render(searches: Mapping[str, Sequence[Trial]], declared: Mapping[str, Mapping[str, Space]]) -> RenderableType:
    """The chosen settings with their validation AUCs; ranges that were widened, and values at an edge, are marked."""
    origin = next(iter(searches.values()))[0].origin
    rows = []
    for name, trials in searches.items():
        best = find_best(trials)
        assert best is not None
        assert best.mean is not None
        diverged = sum(bool(trial.diverged) for trial in trials)
        spread = f"{np.std(list(best.aucs.values()), ddof=1):.3f}" if len(best.aucs) > 1 else ""
        figures = [f"{best.mean:.3f}", spread, str(len(trials)), str(diverged)]
        for key, value in best.values.items():
            last = parse_space(trials[-1].ranges[key])
            notes = [last.description]
            notes += ["widened"] if last.plain() != declared[name][key].plain() else []
            notes += ["best at the edge"] if last.at_edge(value) else []
            rows.append([name if figures[0] else "", key, f"{value:g}", ", ".join(notes), *figures])
            figures = [""] * len(figures)
    words, numbers = ("method", "setting", "value", "range at the end"), ("validation AUC, mean", "seeds, SD")
    title = f"{origin.short_mark}Chosen on validation images"
    return text_table(title, words, (*numbers, "trials", "diverged"), rows)


def _relative(path: Path, folder: Path) -> str:
    """A path as it is written in a file of this folder."""
    try:
        return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()
    except ValueError:  # on another drive
        return path.absolute().as_posix()
