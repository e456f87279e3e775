"""Paired comparison of finished models on the same test images, from their stored predictions.

A study compares its other K with its smallest (`significance.csv`, `significance.json` in the run folder, and in the
folder of its seeds); `chestfed compare` compares any runs and evaluations with the first of them, by the same function.
The p values are corrected by Holm's method over all diseases of all comparisons of a table.

What a p value is about depends on the models: trained with the same two or more seeds, on test patients and training
seeds; finished models of elsewhere, on test patients. Models of one training seed have intervals and no p value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from rich.console import Group, RenderableType

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.console import plural
from chestfed.core.diseases import title_of
from chestfed.core.errors import ConfigError
from chestfed.core.manifest import name_of_text
from chestfed.core.provenance import Origin
from chestfed.evaluation.comparison import ONE_SEED, Difference, compare, holm_over_comparisons
from chestfed.evaluation.estimates import as_csv, tidy
from chestfed.evaluation.intervals import DEFAULT
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.intervals.methods import METHODS, MethodName
from chestfed.evaluation.training_seeds import ENOUGH_SEEDS, MOST_SEEDS, POWER, REFERENCES
from chestfed.results.grid import (
    Grid,
    Rows,
    difference_cell,
    disease_columns,
    grid_of,
    number,
    p_value,
    pair,
    rich_table,
    shown,
    signed,
)
from chestfed.results.predictions import Predictions, aligned, as_one, read_run
from chestfed.results.run_folder import RunFolder

#: What intervals, and p values if there are any, are about and come from.
OVER_SEEDS = "over test patients and training seeds: variance components of Obuchowski and Rockette, seeds as readers"
TESTS = {"p": "of the same test as the interval: below 0.05 exactly where the interval leaves out 0"}
HOLM = "Holm: p corrected over all diseases and rows, the means among themselves; the interval is not corrected."
_COUNTS = ("positives", "negatives", "missing")
#: What `significance.json` calls the AUCs of a mean.
_OF_MEAN = {"auc_a": "mean_a", "auc_b": "mean_b"}


@dataclass(frozen=True)
class Significance:
    """Models compared with the reference, each on the same images."""

    reference: str
    others: tuple[str, ...]
    comparisons: tuple[tuple[Difference, ...], ...]  #: per model: each disease, and at last the mean
    resamples: int
    seeds: tuple[int, ...]  #: how many, of the reference and the others
    protocol: str
    units: int
    patients: int
    origin: Origin | None
    #: The training seeds of the reference, in the order of every difference's `of_seeds`; empty if they are not known.
    trained: tuple[int, ...] = ()
    interval: MethodName = DEFAULT

    @property
    def references(self) -> tuple[str, ...]:
        """Of the intervals and p values."""
        seeds = any(mean.of_seeds for *_, mean in self.comparisons)
        patients = not all(mean.of_seeds for *_, mean in self.comparisons)
        return (*(REFERENCES if seeds else ()), *(METHODS[self.interval].references if patients else ()))

    @property
    def data(self) -> str:
        """`synthetic`, `mixed`, `real` or `unknown`."""
        return "unknown" if self.origin is None else str(self.origin)

    @property
    def method(self) -> str:
        """What the intervals and p values are about, and what there is no p value for; a sentence for each kind."""
        means = [comparison[-1] for comparison in self.comparisons]
        how = METHODS[self.interval].of_difference
        if all(mean.p is None for mean in means):
            how = how.partition("; p ")[0]  # what is said of p values would be about none
        over_patients = f"over test patients ({self.interval}): {how}"
        kinds = [OVER_SEEDS if mean.of_seeds else over_patients for mean in means]
        untested = [f"no p value: {mean.reason}" for mean in means if mean.difference is not None and mean.p is None]
        return "; ".join(dict.fromkeys([*kinds, *untested]))


def check_choices(interval: str, resamples: int) -> None:
    """Refuse a method of intervals, or a number of resamples, that there is not, with a `ConfigError`."""
    if interval not in get_args(MethodName):
        raise ConfigError(f"interval={interval!r}: choose one of {', '.join(get_args(MethodName))}")
    if not isinstance(resamples, Integral) or isinstance(resamples, bool) or resamples < 0:
        raise ConfigError(f"resamples={resamples!r}: give a whole number from 0 up")


def compare_with_first(runs: Sequence[Predictions], resamples: int, interval: MethodName = DEFAULT) -> Significance:
    """Every model minus the first, over the diseases that all have.

    Raises `ConfigError` if the images, their labels or patients differ, or no disease is common, or a choice is not
    one.
    """
    check_choices(interval, resamples)
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two models; with --group-seeds, of different settings")
    reference = runs[0]
    diseases = [one for one in reference.diseases if all(one in run.diseases for run in runs)]
    if not diseases:
        raise ConfigError("the runs have no disease in common: " + "; ".join(", ".join(run.diseases) for run in runs))
    names = _different_names([run.name for run in runs])
    comparisons = []
    for run, name in zip(runs[1:], names[1:], strict=True):
        if run.protocol and reference.protocol and run.protocol != reference.protocol:
            raise ConfigError(f"{names[0]} was scored as {reference.protocol}, {name} as {run.protocol}")
        frames = tuple(aligned(reference, replace(run, frames=(frame,), name=name)) for frame in run.frames)
        b = replace(run, frames=frames)
        try:
            both = reference.scored(diseases), b.scored(diseases)
            untested = _untested(reference.seeds, b.seeds)
            comparisons.append(compare(*both, resamples, untested=untested, interval=interval))
        except ValueError as error:
            raise ConfigError(f"{names[0]} and {name}: {error}. Are labels and their policy the same?") from None
    known = [run.origin for run in runs if run.origin is not None]
    return Significance(
        reference=names[0],
        others=tuple(names[1:]),
        comparisons=tuple(holm_over_comparisons(comparisons)),
        resamples=resamples,
        seeds=tuple(len(run.frames) for run in runs),
        protocol=reference.protocol,
        units=len(reference.frames[0]),
        patients=reference.frames[0]["patient"].nunique(),
        origin=Origin.together(known) if known else None,
        trained=reference.seeds,
        interval=interval,
    )


def _untested(a: Sequence[int], b: Sequence[int]) -> str:
    """Why models of these training seeds (none: finished models) have no p value; empty if they have one."""
    if not (a or b) or (len(a) < 2 and len(b) < 2 and not (a and b)):
        return ""
    if len(a) == 1 and len(b) == 1:
        return ONE_SEED
    return "" if tuple(a) == tuple(b) else "no test: not the same training seeds; train both with the same"


def of_study(
    folders: Sequence[Path], ks: Sequence[int], resamples: int, interval: MethodName = DEFAULT
) -> Significance | None:
    """Every K against the smallest, over the seeds of these run folders.

    None if there is one K only, or a hospital keeps its scores, from which differences are computed.
    """
    if len(ks) < 2 or any(RunFolder(folder).scores_stay for folder in folders):
        return None
    models = (as_one([read_run(folder, k) for folder in folders]) for k in ks)
    named = [replace(model, name=f"K={k}") for k, model in zip(ks, models, strict=True)]
    return compare_with_first(named, resamples, interval)


def stored(run: RunFolder) -> Significance | None:
    """What `significance.json` of a study holds; None without."""
    return None if run.significance is None else from_json(run.significance)


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
        "protocol": found.protocol,
        "n": found.units,
        "patients": found.patients,
        "interval_method": found.interval,
        "interval": f"95%, {found.method}",
        "interval_references": list(found.references),
        "tests": TESTS,
        "training_seeds": found.trained,
        "correction": "Holm, over all diseases of all comparisons here; the means among themselves",
        "comparisons": comparisons,
    }


def from_json(plain: dict[str, Any]) -> Significance:
    """The comparisons that `as_json` wrote."""

    def read(part: dict[str, Any]) -> Difference:
        interval = None if part["interval"] is None else Interval(*part["interval"])
        return Difference(**{**part, "interval": interval, "of_seeds": tuple(part["of_seeds"])})

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
        protocol=plain["protocol"],
        units=plain["n"],
        patients=plain["patients"],
        origin=Origin.read(plain),
        trained=tuple(plain["training_seeds"]),
        interval=plain["interval_method"],
    )


def frame(found: Significance) -> pd.DataFrame:
    """One row per model and disease, and per model's mean."""
    rows = []
    head = {"data": found.data, "reference": found.reference, "protocol": found.protocol}
    head |= {"interval_method": found.interval, "interval_reference": found.references[0]}
    names = {"auc_reference": "auc_a", "auc_model": "auc_b", "seed_sd_reference": "sd_a", "seed_sd_model": "sd_b"}
    for name, comparison in zip(found.others, found.comparisons, strict=True):
        for one in comparison:
            (low, high), its = one.interval or (None, None), vars(one)
            n = found.units if one.positives is None or one.negatives is None else one.positives + one.negatives
            own = {column: its[field] for column, field in names.items()}
            rows.append({**its, **head, **own, "model": name, "n": n, "low": low, "high": high})
    columns = ("data", "reference", "model", "protocol", "disease", "auc_reference", "auc_model", "difference")
    tests = ("low", "high", "p", "p_holm")
    about = ("seed_sd_reference", "seed_sd_model", "interval_method", "interval_reference")
    return tidy(rows, [*columns, *tests, "n", *_COUNTS, "reason", *about])


def difference_grid(found: Significance, caption: str = "", digits: int = 3, added: Sequence[str] = ()) -> Grid:
    """A line per model; with `added` a second column, with what each K of a study adds."""
    rows: Rows = []
    for place, (name, comparison) in enumerate(zip(found.others, found.comparisons, strict=True)):
        rows.append((name, (*added[place : place + 1], *(difference_cell(one, digits) for one in shown(comparison)))))
    heads = ["K", "added"] if added else ["model"]
    over = sum(one.difference is not None for one in found.comparisons[0][:-1])
    columns = disease_columns(shown(found.comparisons[0]))
    columns = [replace(one, below=(f"over {over}",)) if one.text == "mean" else one for one in columns]
    return grid_of("differences", caption, (*heads, *columns), rows)


def seeds_grid(found: Significance) -> Grid | None:
    """The last model minus the reference, a line per training seed; None without a test over seeds."""
    every = shown(found.comparisons[-1])
    if not every[-1].of_seeds:
        return None
    rows = (
        (f"seed {seed}", ("-" if one is None else signed(one) for one in values))
        for seed, values in zip(found.trained, zip(*(one.of_seeds for one in every), strict=True), strict=True)
    )
    caption = f"{found.others[-1]} minus {found.reference}, by training seed"
    return grid_of("by-seed", caption, ("seed", *(title_of(one.disease) for one in every)), rows)


def render(found: Significance, title: str = "Paired comparison", *, spread: bool = True) -> RenderableType:
    """A small table for a terminal: differences with intervals and p values; of several seeds, how they differ."""
    mark = found.origin.short_mark if found.origin else ""
    protocol = f"{found.protocol}: " if found.protocol else ""
    holm = any(one.p is not None for comparison in found.comparisons for one in comparison)
    bounded = any(one.interval is not None for comparison in found.comparisons for one in comparison)
    how = f" with its 95% interval, {found.method} ({found.references[0]})" if bounded else ""
    caption = (
        f"{protocol}n = {found.units}, {found.patients} patients. Difference of AUC{how}.{f' {HOLM}' if holm else ''}"
    )
    table = rich_table(difference_grid(found, digits=2), f"{mark}{title}: model minus {found.reference}", caption)
    by_seed, every = seeds_grid(found), [shown(one) for one in found.comparisons]
    parts = [table, *([rich_table(by_seed, by_seed.caption)] if by_seed else [])]
    if not spread or max(found.seeds) == 1:
        return Group(*parts)
    deviations = [(found.reference, [one.sd_a for one in every[0]])]
    deviations += [(name, [one.sd_b for one in its]) for name, its in zip(found.others, every, strict=True)]
    rows = ((name, ("one seed" if one is None else number(one) for one in its)) for name, its in deviations)
    table = rich_table(
        grid_of("spread", "", ("model", *(title_of(one.disease) for one in every[0])), rows),
        "Standard deviation of the AUC over the seeds",
    )
    return Group(*parts, table)


def verdict(compared: Significance) -> str:
    """The last model against the first in two sentences; empty if no mean is defined."""
    mean = compared.comparisons[-1][-1]
    if mean.difference is None:
        return ""
    first, last = compared.reference, compared.others[-1]
    direction = "higher" if mean.difference > 0 else "lower"
    apart = f"{abs(mean.difference):.3f} {direction} than" if mean.difference else "the same as"
    chances = "test patients and training seeds" if mean.of_seeds else "test patients"
    about = [] if mean.interval is None else [f"95% interval over {chances} {pair(mean.interval, 3, signed)}"]
    about += [] if mean.p is None else [f"p {p_value(mean.p)}"]
    brackets = f" ({', '.join(about)})" if about else ""
    said = f"With {last} the mean AUC is {apart} with {first}{brackets}"
    if mean.of_seeds:
        higher = sum(one is not None and one > 0 for one in mean.of_seeds)
        count = len(mean.of_seeds)
        said = f"Over {count} training seeds: {said[0].lower()}{said[1:]}; it is higher in {higher} of {count} seeds"
    resolution = f" {text}" if (text := describe_resolution(compared)) else ""
    if mean.p is None:
        return f"{said}. {mean.reason[:1].upper()}{mean.reason[1:]}.{resolution}"
    every = [(d.difference, d.p_holm) for comparison in compared.comparisons for d in comparison[:-1]]
    tested = [(difference, p) for difference, p in every if difference is not None and p is not None]
    clear = [difference for difference, p in tested if p < 0.05]
    higher = sum(difference > 0 for difference in clear)
    which = f"{len(clear)} ({higher} higher, {len(clear) - higher} lower)" if clear else "none"
    return (
        f"{said}. Of {plural(len(tested), 'comparison')} of single diseases, {which} "
        f"{'has' if len(clear) <= 1 else 'have'} a corrected p below 0.05.{resolution}"
    )


def describe_resolution(compared: Significance) -> str:
    """The smallest difference that these patients and seeds could show, and with few seeds what this one needs."""
    mean = compared.comparisons[-1][-1]
    if mean.detectable is None or mean.difference is None or mean.auc_a is None:
        return ""
    seeds, power = len(mean.of_seeds), f"with a power of {POWER:.0%}"
    if not 1 < seeds < ENOUGH_SEEDS:
        given = f"{plural(compared.units, 'test image')} of {plural(compared.patients, 'patient')}"
        given += f" and {seeds} training seeds" if seeds else ", for these two models,"
        return f"With {given} a difference of the mean AUC is detected {power} if it is {mean.detectable:.3f} or more."
    few = plural(seeds, "training seed")
    if mean.detectable > max(mean.auc_a, 1 - mean.auc_a):
        text = f"With {few} no difference of the mean AUC, however large, is detected {power}"
    else:
        text = f"With {few} a difference of the mean AUC is detected {power} if it is {mean.detectable:.3f} or more"
    size = f"one of {abs(mean.difference):.3f}, as here, needs"
    if mean.seeds_needed is None:
        return f"{text}; {size} more test patients: not even {MOST_SEEDS:,} seeds would show it."
    return f"{text}; {size} {mean.seeds_needed:,} seeds."


def paired_folder(found: Significance, out: Path) -> Path:
    """Where `chestfed compare` writes, named by what it found."""
    name = name_of_text(json.dumps(as_json(found), sort_keys=True))
    return out / f"{found.origin.prefix if found.origin else ''}paired-{name}"


def _different_names(names: Sequence[str]) -> list[str]:
    """Names made different by a number where they are the same."""
    result: list[str] = []
    for name in names:
        numbered = (name if n == 1 else f"{name} ({n})" for n in count(1))
        result.append(next(one for one in numbered if one not in result))
    return result
