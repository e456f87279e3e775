"""Paired comparison of finished models on the same test images, from their stored predictions.

A study compares its other K with its smallest (`significance.csv`, `significance.json` in the run folder);
`chestfed compare` compares any runs and evaluations with the first of them. The p values are corrected by Holm's
method over all diseases of all comparisons of a table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import auc_per_disease, mean_auc
from chestfed.evaluation.comparison import (
    Comparison,
    DiseaseDifference,
    MeanDifference,
    compare,
    holm_over_comparisons,
)
from chestfed.results.grid import (
    Cell,
    Grid,
    Line,
    difference_cell,
    disease_column,
    p_value,
    rich_table,
    signed_pair,
)
from chestfed.results.predictions import Predictions, aligned, digest, read_run
from chestfed.results.run_folder import RunFolder
from chestfed.results.table import as_pair, from_pair, typed

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERVAL = "95%, patient-clustered bootstrap of the difference, the same resamples for both models, Student's t"
TESTS = {
    "p": "of the same Student's t: below 0.05 exactly where the interval leaves out 0",
    "delong_p": "DeLong's variance, images taken for independent; of the mean by the sums of each image's components",
}


@dataclass(frozen=True)
class Significance:
    """Models compared with the reference, each on the same images.

    Attributes
    ----------
    seeds, seed_spread
        Of the reference and the others: how many, and the standard deviation of the AUC over them by disease and
        `mean`; None with one seed. The intervals do not contain it: they are about the test patients.
    """

    reference: str
    others: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    seeds: tuple[int, ...]
    seed_spread: tuple[dict[str, float | None], ...]
    protocol: str
    units: int
    patients: int
    origin: Origin | None

    @property
    def data(self) -> str:
        """`synthetic`, `mixed`, `real` or `unknown`."""
        return "unknown" if self.origin is None else str(self.origin)


def compare_with_first(runs: Sequence[Predictions], resamples: int) -> Significance:
    """Every model minus the first, over the diseases that all have.

    Raises
    ------
    ConfigError
        If the images, their labels or patients differ, or no disease is common.
    """
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two models; with --group-seeds, of different settings")
    reference = runs[0]
    diseases = [one for one in reference.diseases if all(one in run.diseases for run in runs)]
    if not diseases:
        raise ConfigError("the runs have no disease in common: " + "; ".join(", ".join(run.diseases) for run in runs))
    names = _different_names([run.name for run in runs])
    comparisons, spreads = [], [_seed_spread(reference, diseases)]
    for run, name in zip(runs[1:], names[1:], strict=True):
        if run.protocol and reference.protocol and run.protocol != reference.protocol:
            raise ConfigError(f"{names[0]} was scored as {reference.protocol}, {name} as {run.protocol}")
        frames = tuple(aligned(reference, replace(run, frames=(frame,), name=name)) for frame in run.frames)
        b = replace(run, frames=frames)
        spreads.append(_seed_spread(b, diseases))
        try:
            comparisons.append(compare(reference.run(diseases), b.run(diseases), diseases, resamples))
        except ValueError as error:
            raise ConfigError(f"{names[0]} and {name}: {error}. Are labels and their policy the same?") from None
    known = [run.origin for run in runs if run.origin is not None]
    return Significance(
        names[0],
        tuple(names[1:]),
        tuple(holm_over_comparisons(comparisons)),
        tuple(len(run.frames) for run in runs),
        tuple(spreads),
        reference.protocol,
        len(reference.frames[0]),
        reference.frames[0]["patient"].nunique(),
        Origin.together(known) if known else None,
    )


def of_study(folder: Path, ks: Sequence[int], resamples: int) -> Significance | None:
    """Every K of a run folder against its smallest; None if there is one K only."""
    if len(ks) < 2:
        return None
    runs = [replace(read_run(folder, k), name=f"K={k}") for k in ks]
    return compare_with_first(runs, resamples)


def stored(run: RunFolder) -> Significance | None:
    """What `significance.json` of a study holds; None without."""
    plain = run.significance
    return None if plain is None else from_json(plain)


def write(found: Significance, folder: Path, name: str) -> None:
    """Write `name.csv` and `name.json`."""
    write_text(folder / f"{name}.csv", as_csv(found))
    write_json(folder / f"{name}.json", as_json(found))


def as_json(found: Significance) -> dict[str, Any]:
    """The comparisons as plain data."""
    every = (found.reference, *found.others)
    return {
        "data": found.data,
        "synthetic": None if found.origin is None else found.origin.any_synthetic,
        "reference": found.reference,
        "seeds": dict(zip(every, found.seeds, strict=True)),
        "seed_sd": dict(zip(every, found.seed_spread, strict=True)),
        "protocol": found.protocol,
        "n": found.units,
        "patients": found.patients,
        "interval": INTERVAL,
        "tests": TESTS,
        "correction": "Holm, over all diseases of all comparisons here; the means among themselves",
        "comparisons": [
            {
                "model": name,
                "resamples": comparison.resamples,
                "mean": _plain(comparison.mean)
                | {"diseases": sum(one.difference is not None for one in comparison.diseases)},
                "diseases": {one.disease: _plain(one) for one in comparison.diseases},
            }
            for name, comparison in zip(found.others, found.comparisons, strict=True)
        ],
    }


def from_json(plain: dict[str, Any]) -> Significance:
    """The comparisons that `as_json` wrote."""

    def of(part: dict[str, Any]) -> dict[str, Any]:
        return {**part, "interval": from_pair(part["interval"])}

    comparisons = []
    for one in plain["comparisons"]:
        mean = MeanDifference(**{name: value for name, value in of(one["mean"]).items() if name != "diseases"})
        diseases = tuple(DiseaseDifference(**of(part)) for part in one["diseases"].values())
        comparisons.append(Comparison(diseases, mean, one["resamples"]))
    return Significance(
        plain["reference"],
        tuple(one["model"] for one in plain["comparisons"]),
        tuple(comparisons),
        tuple(plain["seeds"].values()),
        tuple(plain["seed_sd"].values()),
        plain["protocol"],
        plain["n"],
        plain["patients"],
        Origin.read(plain),
    )


def frame(found: Significance) -> pd.DataFrame:
    """One row per model and disease, and per model's mean."""
    rows: list[dict[str, Any]] = []
    ours = found.seed_spread[0]
    for name, comparison, its in zip(found.others, found.comparisons, found.seed_spread[1:], strict=True):
        mean = comparison.mean
        parts: list[tuple[str, Any, float | None, float | None, dict[str, Any]]] = [
            (one.disease, one, one.auc_a, one.auc_b, _counts(one)) for one in comparison.diseases
        ]
        nothing = {"n": found.units, "positives": None, "negatives": None, "missing": None}
        for disease, one, a, b, counts in [*parts, ("mean", mean, mean.mean_a, mean.mean_b, nothing)]:
            low, high = as_pair(one.interval) or (None, None)
            rows.append(
                {"data": found.data, "reference": found.reference, "model": name, "protocol": found.protocol}
                | {"disease": disease, "auc_reference": a, "auc_model": b, "difference": one.difference}
                | {"low": low, "high": high, "p": one.p, "p_holm": one.p_holm}
                | {"delong_p": one.delong_p, "delong_p_holm": one.delong_p_holm, **counts, "reason": one.reason}
                | {"seed_sd_reference": ours[disease], "seed_sd_model": its[disease]}
            )
    return typed(pd.DataFrame(rows))


def as_csv(found: Significance) -> str:
    """The frame; what is not defined is an empty cell."""
    return frame(found).to_csv(index=False, lineterminator="\n")


def difference_grid(found: Significance, caption: str = "", digits: int = 3, added: Sequence[str] = ()) -> Grid:
    """A line per model; with `added` a second column, with what each K of a study adds."""
    first = found.comparisons[0].diseases
    lines = []
    for place, (name, one) in enumerate(zip(found.others, found.comparisons, strict=True)):
        parts: list[DiseaseDifference | MeanDifference] = [*one.diseases, one.mean]
        cells = [difference_cell(part.difference, part.interval, part.p_holm, digits) for part in parts]
        lines.append(Line(name, (*map(Cell, added[place : place + 1]), *cells)))
    heads = [Cell("K"), Cell("added")] if added else [Cell("model")]
    heads += [disease_column(one.disease, one.positives, one.negatives) for one in first]
    over = sum(one.difference is not None for one in first)
    return Grid("differences", caption, (*heads, Cell("mean", (f"over {over}",))), tuple(lines))


def render(found: Significance, title: str = "Paired comparison") -> RenderableType:
    """A small table for a terminal: differences with intervals and corrected p values."""
    from rich.console import Group

    mark = found.origin.short_mark if found.origin else ""
    protocol = f"{found.protocol}: " if found.protocol else ""
    caption = (
        f"{protocol}n = {found.units}, {found.patients} patients. Difference of AUC, {INTERVAL}. p: of the same t, "
        "after Holm's correction over all diseases and rows, the means among themselves. Valid for these trained "
        "models; another training seed gives others."
    )
    shown = rich_table(difference_grid(found, digits=2), f"{mark}{title}: model minus {found.reference}", caption)
    every = list(zip((found.reference, *found.others), found.seeds, found.seed_spread, strict=True))
    if all(count == 1 for _, count, _ in every):
        return shown
    lines = [
        Line(name, tuple(Cell("one seed" if value is None else f"{value:.3f}") for value in values.values()))
        for name, _, values in every
    ]
    columns = (Cell("model"), *(Cell(column.text) for column in difference_grid(found).columns[1:]))
    title = "Standard deviation of the AUC over the seeds, which the intervals above do not contain"
    return Group(shown, rich_table(Grid("spread", "", columns, tuple(lines)), title))


def verdict(compared: Significance) -> str:
    """The last model against the first in two sentences; empty if no mean is defined."""
    mean = compared.comparisons[-1].mean
    if mean.difference is None:
        return ""
    first, last = compared.reference, compared.others[-1]
    direction = "higher" if mean.difference > 0 else "lower"
    about = [] if mean.interval is None else [f"95% interval {signed_pair(mean.interval)}"]
    about += [] if mean.p_holm is None else [f"corrected p {p_value(mean.p_holm)}"]
    brackets = f" ({'; '.join(about)})" if about else ""
    every = [(d.difference, d.p_holm) for found in compared.comparisons for d in found.diseases]
    tested = [(difference, p) for difference, p in every if difference is not None and p is not None]
    clear = [difference for difference, p in tested if p < 0.05]
    higher = sum(difference > 0 for difference in clear)
    which = f"{len(clear)} ({higher} higher, {len(clear) - higher} lower)" if clear else "none"
    return (
        f"With {last} the mean AUC is {abs(mean.difference):.3f} {direction} than with {first}"
        f"{brackets}. Of {len(tested)} comparisons of single diseases, {which} "
        f"{'has' if len(clear) <= 1 else 'have'} a corrected p below 0.05."
    )


def paired_folder(found: Significance, out: Path) -> Path:
    """Where `chestfed compare` writes, named by what it found."""
    name = digest(json.dumps(as_json(found), sort_keys=True))
    return out / f"{found.origin.prefix if found.origin else ''}paired-{name}"


def _seed_spread(run: Predictions, diseases: Sequence[str]) -> dict[str, float | None]:
    """Standard deviation over the seeds of each disease's AUC and of their mean; None with one seed or no AUC."""
    if len(run.frames) < 2:
        return dict.fromkeys((*diseases, "mean"))
    values = run.run(diseases)
    of_seeds = [auc_per_disease(scores, values.labels, diseases) for scores in values.scores]
    columns = {disease: [found[j].auc for found in of_seeds] for j, disease in enumerate(diseases)}
    columns["mean"] = [mean_auc(found) for found in of_seeds]
    return {
        name: None if None in aucs else float(np.std(np.array(aucs, float), ddof=1)) for name, aucs in columns.items()
    }


def _different_names(names: Sequence[str]) -> list[str]:
    """Names made different by a number where they are the same."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def _plain(part: DiseaseDifference | MeanDifference) -> dict[str, Any]:
    return {**vars(part), "interval": as_pair(part.interval)}


def _counts(one: DiseaseDifference) -> dict[str, Any]:
    counts = {"positives": one.positives, "negatives": one.negatives, "missing": one.missing}
    return {"n": one.positives + one.negatives, **counts}
