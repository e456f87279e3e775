"""Several algorithms on the same data, model, weights and budget, over several seeds: tables.

Every algorithm and seed is a study of its own (`Pipeline.variant`) with the largest K; stage 1 of a seed is shared.
The budget that they have in common is the number of local steps, and so of images and gradients; rounds and bytes
are what they differ in. `report.figures.comparison_curves` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.provenance import Origin
from chestfed.results.grid import Cell, Grid, Line, rich_table, title_of
from chestfed.results.predictions import digest
from chestfed.results.run_folder import COMPARISON, RunFolder

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chestfed.experiment.pipeline import Published


@dataclass(frozen=True)
class Comparison:
    """Finished runs side by side.

    Attributes
    ----------
    results
        One row per run and disease.
    curves
        One row per run and evaluated round; its counters are sums from the start of stage 2 over all clients.
    runs
        Label, seed and folder of each.
    """

    title: str
    origin: Origin
    results: pd.DataFrame
    curves: pd.DataFrame
    published: Published | None
    runs: tuple[dict[str, Any], ...] = ()


def label_of(algorithm: str, window: int, *, by_window: bool) -> str:
    """How a run is called: by its algorithm, and by its window if windows are compared."""
    return f"{algorithm}, I={window}" if by_window else algorithm


def collect(
    runs: Sequence[RunFolder], title: str, published: Published | None = None, *, by_window: bool = False
) -> Comparison:
    """Put the results of finished runs, each with one K, side by side."""
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    names = []
    for run in runs:
        label = label_of(run.settings.algorithm, run.settings.window, by_window=by_window)
        head = {
            "run": label,
            "algorithm": run.settings.algorithm,
            "window": run.settings.window,
            "seed": run.settings.seed,
        }
        names.append({"run": label, "seed": run.settings.seed, "folder": run.path.name})
        results += [head | {"disease": one.disease, "auc": one.value} for one in run.row().diseases]
        sums = dict.fromkeys(("bytes_up", "bytes_down", "images", "gradients"), 0)
        for entry in run.rounds():
            for name in sums:
                sums[name] += entry[name]
            if entry.get("mean_auc") is not None:
                plain = {name: entry[name] for name in ("round", "loss", "drift", "gradient_drift", "mean_auc")}
                curves.append(head | plain | sums | {"bytes": sums["bytes_up"] + sums["bytes_down"]})
    origin = Origin.together(run.origin for run in runs)
    return Comparison(title, origin, pd.DataFrame(results), pd.DataFrame(curves), published, tuple(names))


def write(comparison: Comparison, out: Path) -> Path:
    """Write `results.csv`, `curves.csv` and `comparison.json`; returns their folder, named by the runs."""
    name = digest("\n".join(sorted(run["folder"] for run in comparison.runs)))
    folder = out / f"{comparison.origin.prefix}comparison-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("results", "curves"):
        frame = getattr(comparison, name).assign(data=str(comparison.origin))
        write_text(folder / f"{name}.csv", frame.to_csv(index=False))
    write_json(
        folder / COMPARISON,
        {
            "title": comparison.title,
            **comparison.origin.keys(),
            "published": None if comparison.published is None else comparison.published.model_dump(),
            "largest_window": largest_windows(comparison),
            "runs": list(comparison.runs),
        },
    )
    return folder


def largest_windows(comparison: Comparison) -> dict[str, int]:
    """Per algorithm the largest window whose mean AUC is not lower than the smallest window's by the tolerance.

    Windows are tried in increasing order, up to the first that costs AUC. Empty if one window was run.
    """
    tolerance = comparison.published.tolerance if comparison.published else 0.005
    means = comparison.results.groupby(["algorithm", "window"])["auc"].mean()
    found = {}
    for algorithm, of_window in means.groupby(level="algorithm", sort=False):
        curve = of_window.droplevel("algorithm").sort_index()
        if len(curve) > 1:
            costs = (curve < curve.iloc[0] - tolerance).cummax()
            found[str(algorithm)] = int(curve.index[~costs][-1])
    return found


def comparison_grid(comparison: Comparison) -> Grid:
    """A line per run with mean and standard deviation over the seeds, below it the paper's where there is one."""
    diseases = list(comparison.results["disease"].unique())
    several = len(diseases) > 1
    printed = comparison.published.auc if comparison.published else {}
    lines = []
    for label, part in comparison.results.groupby("run", sort=False):
        values = part.pivot(index="seed", columns="disease", values="auc")[diseases].to_numpy(float)
        aucs = [*values.T, *([np.nanmean(values, axis=1)] if several else [])]
        last = comparison.curves[comparison.curves["run"] == label].groupby("seed").last()
        sums = (f"{last['round'].max():,}", f"{last['bytes'].mean() / 1e6:,.1f} MB", f"{last['images'].mean():,.0f}")
        lines.append(Line(str(label), tuple(map(Cell, (*map(_mean_and_spread, aucs), *sums)))))
        if theirs := printed.get(str(label)):
            names = (*diseases, "mean") if several else ("mean",)
            shown = ("" if theirs.get(name) is None else f"{theirs[name]:.3f}" for name in names)
            lines.append(Line("  paper", tuple(map(Cell, (*shown, "", "", ""))), "paper"))
    heads = ["algorithm", *map(title_of, diseases), *(["mean"] if several else []), "rounds", "sent", "images"]
    return Grid("comparison", "", tuple(map(Cell, heads)), tuple(lines))


def render(comparison: Comparison) -> RenderableType:
    """The table for a terminal; the paper's source and largest windows below."""
    from rich.console import Group
    from rich.text import Text

    seeds = comparison.results["seed"].nunique()
    caption = "AUC; one seed, so no spread."
    if seeds > 1:
        caption = f"AUC, mean over {seeds} seeds ± the standard deviation over them. Sums over all clients."
    title = f"{comparison.origin.mark}{comparison.title}"
    parts: list[RenderableType] = [rich_table(comparison_grid(comparison), title, caption, dim=["paper"])]
    if comparison.published is not None:
        note = f"; {comparison.published.note}" if comparison.published.note else ""
        parts.append(Text(f"paper: {comparison.published.source}{note}"))
    for algorithm, window in largest_windows(comparison).items():
        theirs = comparison.published.largest_window.get(algorithm) if comparison.published else None
        beside = "" if theirs is None else f"; the paper's: {theirs}"
        parts.append(Text(f"{algorithm}: largest window without loss of AUC: {window}{beside}"))
    return Group(*parts)


def _mean_and_spread(values: np.ndarray) -> str:
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return "n/a"
    return f"{values.mean():.3f}" + (f" ±{values.std(ddof=1):.3f}" if len(values) > 1 else "")
