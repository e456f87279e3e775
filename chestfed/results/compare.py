"""Several algorithms on the same data, model, weights and budget, over several seeds: a table and plots.

Every algorithm and seed is a study of its own (`Pipeline.variant`) with the largest K; stage 1 of a seed is shared.
The budget that they have in common is the number of local steps, and so of images and gradients; rounds and bytes
are what they differ in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_atomically, write_json, write_text
from chestfed.core.diseases import TITLES
from chestfed.core.provenance import Origin
from chestfed.experiment.pipeline import Published
from chestfed.training.run import StudyResult

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Columns of the curves that the AUC is drawn against, with their titles.
AXES = {"round": "communication rounds", "bytes": "bytes sent, all clients, up and down", "images": "images seen"}

#: Okabe and Ito's colours, which the colour-blind tell apart, without the yellow, which hardly shows on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@dataclass(frozen=True)
class Run:
    """One finished run of a comparison; `label` is the algorithm, with its window if windows are compared."""

    label: str
    algorithm: str
    window: int
    seed: int
    study: StudyResult


@dataclass(frozen=True)
class Comparison:
    """`results`: one row per run and disease; `curves`: one per run and evaluated round.

    The curves' counters are sums from the start of stage 2 over all clients.
    """

    title: str
    origin: Origin
    results: pd.DataFrame
    curves: pd.DataFrame
    published: Published | None


def label_of(algorithm: str, window: int, windows: Sequence[int]) -> str:
    """How a run is called."""
    return f"{algorithm}, I={window}" if windows else algorithm


def collect(runs: Sequence[Run], title: str, published: Published | None = None) -> Comparison:
    """Put the results of finished runs side by side."""
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for run in runs:
        (row,) = run.study.table.rows
        head = {"run": run.label, "algorithm": run.algorithm, "window": run.window, "seed": run.seed}
        results += [head | {"disease": result.disease, "auc": result.auc} for result in row.diseases]
        lines = (run.study.folder / f"k{row.k}" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        sums = dict.fromkeys(("bytes_up", "bytes_down", "images", "gradients"), 0)
        for entry in map(json.loads, lines):
            for name in sums:
                sums[name] += entry[name]
            if entry.get("mean_auc") is not None:
                bytes_sent = sums["bytes_up"] + sums["bytes_down"]
                plain = {name: entry[name] for name in ("round", "loss", "drift", "gradient_drift", "mean_auc")}
                curves.append(head | plain | sums | {"bytes": bytes_sent})
    origin = Origin.together(run.study.table.origin for run in runs)
    return Comparison(title, origin, pd.DataFrame(results), pd.DataFrame(curves), published)


def write(comparison: Comparison, runs: Sequence[Run], out: Path) -> Path:
    """Write tables and plots; returns their folder, named by the runs that they are of."""
    names = sorted(run.study.folder.name for run in runs)
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=6).hexdigest()
    folder = out / f"{comparison.origin.prefix}comparison-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("results", "curves"):
        frame = getattr(comparison, name).assign(data=str(comparison.origin))
        write_text(folder / f"{name}.csv", frame.to_csv(index=False))
    write_json(
        folder / "comparison.json",
        {
            "title": comparison.title,
            **comparison.origin.keys(),
            "published": None if comparison.published is None else comparison.published.model_dump(),
            "largest_window": largest_windows(comparison),
            "runs": [{"run": r.label, "seed": r.seed, "folder": r.study.folder.name} for r in runs],
        },
    )
    for suffix in ("png", "svg"):
        write_atomically(folder / f"curves.{suffix}", partial(_draw, comparison, suffix))
    return folder


def largest_windows(comparison: Comparison) -> dict[str, int]:
    """Per algorithm the largest window whose mean AUC is not lower than the smallest window's by the tolerance.

    Windows are looked at in increasing order, up to the first that costs AUC. Empty if one window was run.
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


def render(comparison: Comparison) -> RenderableType:
    """Mean and standard deviation over the seeds, per run and disease, for a terminal; the paper's figures below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    seeds = comparison.results["seed"].nunique()
    table = Table(title=f"{comparison.origin.mark}{comparison.title}", title_justify="left", caption_justify="left")
    spread = "± the standard deviation over them" if seeds > 1 else "one seed, so no spread"
    table.caption = f"AUC, mean over {seeds} seeds {spread}. Sums over all clients." if seeds > 1 else f"AUC; {spread}."
    diseases = list(comparison.results["disease"].unique())
    table.add_column("algorithm")
    several = len(diseases) > 1
    mean = ["mean"] if several else []
    for name in (*(TITLES.get(disease, disease) for disease in diseases), *mean, "rounds", "sent", "images"):
        table.add_column(name, justify="right")
    printed = comparison.published.auc if comparison.published else {}
    for label, part in comparison.results.groupby("run", sort=False):
        values = part.pivot(index="seed", columns="disease", values="auc")[diseases].to_numpy(float)
        last = comparison.curves[comparison.curves["run"] == label].groupby("seed").last()
        table.add_row(
            str(label),
            *(_mean_and_spread(values[:, j]) for j in range(len(diseases))),
            *([_mean_and_spread(np.nanmean(values, axis=1))] if several else []),
            f"{last['round'].max():,}",
            f"{last['bytes'].mean() / 1e6:,.1f} MB",
            f"{last['images'].mean():,.0f}",
        )
        if label in printed:
            published = printed[str(label)]
            names = (*diseases, "mean") if several else ("mean",)
            cells = [published.get(name) for name in names]
            table.add_row("  paper", *("" if cell is None else f"{cell:.3f}" for cell in cells), style="dim")
    parts: list[RenderableType] = [table]
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


def _draw(comparison: Comparison, kind: str, path: Path) -> None:
    """Mean AUC against rounds, bytes and images; the band goes from the lowest seed to the highest."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, len(AXES), sharey=True)
    for axis, (column, title) in zip(axes, AXES.items(), strict=True):
        ends = []
        for number, (label, part) in enumerate(comparison.curves.groupby("run", sort=False)):
            colour, dashes = _COLOURS[number % len(_COLOURS)], ("-", "--", ":", "-.")[number // len(_COLOURS) % 4]
            by_round = part.groupby("round")
            x, y = by_round[column].mean(), by_round["mean_auc"]
            if column == "bytes" and x.iloc[-1] == 0:
                continue  # nothing is sent: there is no place for it on this axis
            axis.plot(x, y.mean(), dashes, color=colour, label=label, marker="o", markersize=3)
            axis.fill_between(x, y.min(), y.max(), color=colour, alpha=0.12, linewidth=0)
            ends.append(x.iloc[-1])
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
        if ends and max(ends) > 5 * min(ends):
            axis.set_xscale("log")
    several = comparison.results["disease"].nunique() > 1
    axes[0].set_ylabel("mean AUC over the diseases" if several else "AUC")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    seeds = comparison.results["seed"].nunique()
    which = f"{seeds} seed{'s' if seeds > 1 else ''}, band: lowest to highest"
    figure.suptitle(f"{comparison.origin.short_mark}{comparison.title}; {which}")
    figure.savefig(path, format=kind, dpi=130)
