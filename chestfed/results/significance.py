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
from chestfed.evaluation.comparison import Difference, compare, holm_over_comparisons
from chestfed.evaluation.estimates import as_csv, auc_per_disease, mean_of, tidy
from chestfed.evaluation.intervals.interval import Interval
from chestfed.results.grid import Cell, Grid, Line, difference_cell, disease_columns, p_value, pair, rich_table, signed
from chestfed.results.predictions import Predictions, aligned, digest, read_run
from chestfed.results.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERVAL = "95%, patient-clustered bootstrap of the difference, the same resamples for both models, Student's t"
TESTS = {
    "p": "of the same Student's t: below 0.05 exactly where the interval leaves out 0",
    "delong_p": "DeLong's variance, images taken for independent; of the mean by the sums of each image's components",
}
_COUNTS = ("positives", "negatives", "missing")
#: What `significance.json` calls the AUCs of a mean.
_OF_MEAN = {"auc_a": "mean_a", "auc_b": "mean_b"}


@dataclass(frozen=True)
class Significance:
    """Models compared with the reference, each on the same images.

    Attributes
    ----------
    comparisons
        Per model: each disease, and at last the mean.
    seeds, seed_spread
        Of the reference and the others: how many, and the standard deviation of the AUC over them by disease and
        `mean`; None with one seed. The intervals do not contain it: they are about the test patients.
    """

    reference: str
    others: tuple[str, ...]
    comparisons: tuple[tuple[Difference, ...], ...]
    resamples: int
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
            comparisons.append(compare(reference.scored(diseases), b.scored(diseases), resamples))
        except ValueError as error:
            raise ConfigError(f"{names[0]} and {name}: {error}. Are labels and their policy the same?") from None
    known = [run.origin for run in runs if run.origin is not None]
    return Significance(
        reference=names[0],
        others=tuple(names[1:]),
        comparisons=tuple(holm_over_comparisons(comparisons)),
        resamples=resamples,
        seeds=tuple(len(run.frames) for run in runs),
        seed_spread=tuple(spreads),
        protocol=reference.protocol,
        units=len(reference.frames[0]),
        patients=reference.frames[0]["patient"].nunique(),
        origin=Origin.together(known) if known else None,
    )


def of_study(folder: Path, ks: Sequence[int], resamples: int) -> Significance | None:
    """Every K of a run folder against its smallest; None if there is one K only."""
    if len(ks) < 2:
        return None
    return compare_with_first([replace(read_run(folder, k), name=f"K={k}") for k in ks], resamples)


def stored(run: RunFolder) -> Significance | None:
    """What `significance.json` of a study holds; None without."""
    plain = run.significance
    return None if plain is None else from_json(plain)


def write(found: Significance, folder: Path, name: str) -> None:
    """Write `name.csv` and `name.json`."""
    write_text(folder / f"{name}.csv", as_csv(frame(found)))
    write_json(folder / f"{name}.json", as_json(found))


def as_json(found: Significance) -> dict[str, Any]:
    """The comparisons as plain data."""
    every, comparisons = (found.reference, *found.others), []
    for name, (*diseases, mean) in zip(found.others, found.comparisons, strict=True):
        of_mean = {_OF_MEAN.get(key, key): value for key, value in vars(mean).items() if key not in _COUNTS}
        over = sum(one.difference is not None for one in diseases)
        by_disease = {one.disease: vars(one) for one in diseases}
        comparisons.append(
            {"model": name, "resamples": found.resamples, "mean": {**of_mean, "diseases": over}, "diseases": by_disease}
        )
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
        "comparisons": comparisons,
    }


def from_json(plain: dict[str, Any]) -> Significance:
    """The comparisons that `as_json` wrote."""

    def read(part: dict[str, Any]) -> Difference:
        interval = None if part["interval"] is None else Interval(*part["interval"])
        return Difference(**{**part, "interval": interval})

    comparisons = []
    for one in plain["comparisons"]:
        mean = {key: value for key, value in one["mean"].items() if key != "diseases"} | {"disease": "mean"}
        mean |= {key: mean.pop(stored) for key, stored in _OF_MEAN.items()}
        comparisons.append(tuple(map(read, (*one["diseases"].values(), mean))))
    return Significance(
        reference=plain["reference"],
        others=tuple(one["model"] for one in plain["comparisons"]),
        comparisons=tuple(comparisons),
        resamples=plain["comparisons"][0]["resamples"],
        seeds=tuple(plain["seeds"].values()),
        seed_spread=tuple(plain["seed_sd"].values()),
        protocol=plain["protocol"],
        units=plain["n"],
        patients=plain["patients"],
        origin=Origin.read(plain),
    )


def frame(found: Significance) -> pd.DataFrame:
    """One row per model and disease, and per model's mean."""
    ours, rows = found.seed_spread[0], []
    head = {"data": found.data, "reference": found.reference, "protocol": found.protocol}
    for name, comparison, its in zip(found.others, found.comparisons, found.seed_spread[1:], strict=True):
        for one in comparison:
            low, high = one.interval or (None, None)
            n = found.units if one.positives is None or one.negatives is None else one.positives + one.negatives
            rows.append(
                {**vars(one), **head, "model": name, "auc_reference": one.auc_a, "auc_model": one.auc_b, "n": n}
                | {"low": low, "high": high, "seed_sd_reference": ours[one.disease], "seed_sd_model": its[one.disease]}
            )
    columns = ("data", "reference", "model", "protocol", "disease", "auc_reference", "auc_model", "difference")
    tests = ("low", "high", "p", "p_holm", "delong_p", "delong_p_holm")
    return tidy(rows, [*columns, *tests, "n", *_COUNTS, "reason", "seed_sd_reference", "seed_sd_model"])


def difference_grid(found: Significance, caption: str = "", digits: int = 3, added: Sequence[str] = ()) -> Grid:
    """A line per model; with `added` a second column, with what each K of a study adds."""
    *first, _ = found.comparisons[0]
    lines = []
    for place, (name, comparison) in enumerate(zip(found.others, found.comparisons, strict=True)):
        cells = [difference_cell(one, digits) for one in comparison]
        lines.append(Line(name, (*map(Cell, added[place : place + 1]), *cells)))
    heads = [Cell("K"), Cell("added")] if added else [Cell("model")]
    over = sum(one.difference is not None for one in first)
    columns = (*heads, *disease_columns(first), Cell("mean", (f"over {over}",)))
    return Grid("differences", caption, columns, tuple(lines))


def render(found: Significance, title: str = "Paired comparison") -> RenderableType:
    """A small table for a terminal: differences with intervals, their p values, and the corrected ones."""
    from rich.console import Group

    mark = found.origin.short_mark if found.origin else ""
    protocol = f"{found.protocol}: " if found.protocol else ""
    caption = (
        f"{protocol}n = {found.units}, {found.patients} patients. Difference of AUC, {INTERVAL}. p: of the same t, for "
        "this difference alone, as is the interval. Holm: p corrected over all diseases and rows, the means among "
        "themselves. Valid for these trained models; another training seed gives others."
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
    mean = compared.comparisons[-1][-1]
    if mean.difference is None:
        return ""
    first, last = compared.reference, compared.others[-1]
    direction = "higher" if mean.difference > 0 else "lower"
    about = [] if mean.interval is None else [f"95% interval {pair(mean.interval, 3, signed)}"]
    about += [] if mean.p is None else [f"p {p_value(mean.p)}"]
    about += [] if mean.p_holm is None else [f"{p_value(mean.p_holm)} after Holm's correction"]
    brackets = f" ({'; '.join(about)})" if about else ""
    every = [(d.difference, d.p_holm) for comparison in compared.comparisons for d in comparison[:-1]]
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
    of_seeds = [auc_per_disease(scored) for scored in run.scored(diseases)]
    of_seeds = [{**aucs, "mean": mean_of(aucs.values())} for aucs in of_seeds]
    columns = {name: [aucs[name] for aucs in of_seeds] for name in (*diseases, "mean")}
    return {
        name: None if len(aucs) < 2 or None in aucs else float(np.std(np.array(aucs, float), ddof=1))
        for name, aucs in columns.items()
    }


def _different_names(names: Sequence[str]) -> list[str]:
    """Names made different by a number where they are the same."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result
