"""Paired comparison of finished models on the same test images, from their stored predictions.

A study compares its other K with its smallest (`significance.csv`, `significance.json` in the run folder);
`chestfed compare` compares any runs and evaluations with the first of them. The p values are corrected by Holm's
method over all diseases of all comparisons of a table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import auc_per_disease, mean_auc
from chestfed.evaluation.comparison import Comparison, Run, compare, holm_over_comparisons
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.labelled import numbered

if TYPE_CHECKING:
    from rich.console import RenderableType

PREDICTIONS = "predictions.parquet"
INTERVAL = "95%, patient-clustered bootstrap of the difference, the same resamples for both models, Student's t"
TESTS = {
    "p": "of the same Student's t: below 0.05 exactly where the interval leaves out 0",
    "delong_p": "DeLong's variance, images taken for independent; of the mean by the sums of each image's components",
}

_COLUMNS = (
    *("data", "reference", "model", "protocol", "disease", "auc_reference", "auc_model", "difference", "low", "high"),
    *("p", "p_holm", "delong_p", "delong_p_holm", "n", "positives", "negatives", "missing", "reason"),
    *("seed_sd_reference", "seed_sd_model"),
)


@dataclass(frozen=True)
class Predictions:
    """What one model, trained with one or several seeds, made of the test images.

    Attributes
    ----------
    name
        How tables call it.
    kin
        The same for runs that differ in their seed only.
    frames
        One per seed: `image`, `patient`, and score and label of each disease; the rows of all in the same order.
    protocol
        What was scored, or empty if it is not known.
    origin
        None if it is not known.
    key
        Fingerprint of the key of the images' names, or None: of an earlier version, or not written by chestfed.
    named_by
        What they are the names of (`NAMED_BY`), or None, as `key`.
    """

    name: str
    kin: str
    frames: tuple[pd.DataFrame, ...]
    protocol: str
    origin: Origin | None
    key: str | None = None
    named_by: str | None = None

    @property
    def diseases(self) -> tuple[str, ...]:
        """In the order of the columns."""
        names = self.frames[0].columns
        return tuple(name.removeprefix("score_") for name in names if name.startswith("score_"))

    def run(self, diseases: Sequence[str]) -> Run:
        """Scores, labels and patients as arrays."""
        first = self.frames[0]
        scores = [frame[[f"score_{one}" for one in diseases]].to_numpy(np.float64) for frame in self.frames]
        labels = first[[f"label_{one}" for one in diseases]].to_numpy(np.float64)
        # In the order of the rows: that of the names is another with every key, and would draw other resamples.
        return Run(scores, labels, numbered(first["patient"].to_numpy()))


@dataclass(frozen=True)
class Significance:
    """Models compared with the reference, each on the same images.

    Attributes
    ----------
    seeds, seed_spread
        Of the reference and the others: how many, and the standard deviation of the AUC over them by disease and
        `mean`; None with one seed. It is another thing than the intervals, which are about the test patients.
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


def read_run(path: Path, k: int | None = None) -> Predictions:
    """Predictions of a run folder (its largest finished K, or `k`), a `kN` folder, an evaluation, or a file of them.

    Raises
    ------
    ConfigError
        If there are none.
    """
    folder, file = path, path
    if path.is_dir():
        if (path / "study.json").is_file():
            folder = folder_of_k(path, k)
        file = folder / PREDICTIONS
    else:
        folder = path.parent
    try:
        frame = pd.read_parquet(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no {PREDICTIONS} there; a finished study or an evaluation has one") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    lacking = {"image", "patient"} - set(frame.columns)
    unlabelled = [c for c in frame.columns if c.startswith("score_") and f"label_{c[6:]}" not in frame.columns]
    if lacking or unlabelled or not any(c.startswith("score_") for c in frame.columns):
        raise ConfigError(f"{file}: not predictions of chestfed: image, patient, score_... and label_... are needed")
    _check_numbers(frame, file)
    key, named_by = frame.attrs.get("key"), frame.attrs.get("named_by")
    study, evaluation = folder.parent / "study.json", folder / "evaluation.json"
    if study.is_file():
        about = json.loads(study.read_text(encoding="utf-8"))
        settings, number = about["configuration"], folder.name.removeprefix("k")
        federated = settings["federated"]
        name = f"{federated['algorithm']}, I={federated['window']}, K={number}, seed {settings['seed']}"
        kin = _digest(json.dumps([{**settings, "seed": None, "k": None}, number], sort_keys=True))
        protocol = settings["evaluation"]["protocol"] if settings["sites"] else "test images"
        return Predictions(name, kin, (frame,), protocol, Origin.read(about), key, named_by)
    if evaluation.is_file():
        about = json.loads(evaluation.read_text(encoding="utf-8"))
        name = f"{about['model']['name']} on {about['site']}"
        kin = _digest(str(folder.resolve()))
        return Predictions(name, kin, (frame,), about["protocol"], Origin.read(about), key, named_by)
    protocol = str(frame.attrs.get("protocol", ""))
    return Predictions(
        str(path), _digest(str(path.resolve())), (frame,), protocol, Origin.read(frame.attrs), key, named_by
    )


def folder_of_k(run: Path, k: int | None) -> Path:
    """The folder of K in a study's run folder, the largest finished K by default.

    Raises
    ------
    ConfigError
        If that K is not there or not finished.
    """
    finished = {int(f.parent.name[1:]): f.parent for f in run.glob("k*/result.json") if f.parent.name[1:].isdigit()}
    if not finished:
        raise ConfigError(f"{run}: no K of this study is finished yet; `chestfed study` goes on with it")
    if k is not None and k not in finished:
        there = ", ".join(f"K={one}" for one in sorted(finished))
        raise ConfigError(f"{run}: K={k} is not there or not finished; finished: {there}")
    return finished[max(finished) if k is None else k]


def group_seeds(runs: Sequence[Predictions]) -> list[Predictions]:
    """Runs that differ in their seed only become one model, at the place of the first.

    Raises
    ------
    ConfigError
        If a seed stands there twice, or the test images or their labels differ.
    """
    kin: dict[str, list[Predictions]] = {}
    for run in runs:
        kin.setdefault(run.kin, []).append(run)
    grouped = []
    for members in kin.values():
        first = members[0]
        if len(members) == 1:
            grouped.append(first)
            continue
        twice = [name for name, count in Counter(one.name for one in members).items() if count > 1]
        if twice:
            raise ConfigError(
                f"{twice[0]}: given twice. A seed counts once, else the spread over the seeds is too small"
            )
        frames = [first.frames[0], *(_aligned(first, one) for one in members[1:])]
        labels = [name for name in first.frames[0].columns if name.startswith("label_")]
        for one, frame in zip(members[1:], frames[1:], strict=True):
            ours, its = first.frames[0][labels].to_numpy(float), frame.reindex(columns=labels).to_numpy(float)
            if not np.array_equal(ours, its, equal_nan=True):
                raise ConfigError(
                    f"{first.name} and {one.name}: their labels differ. Are label files and policy the same?"
                )
        name = f"{first.name.rpartition(', seed ')[0] or first.name}, {len(members)} seeds"
        grouped.append(replace(first, name=name, frames=tuple(frames)))
    return grouped


def compare_with_first(runs: Sequence[Predictions], resamples: int) -> Significance:
    """Every model minus the first, over the diseases that all have.

    Raises
    ------
    ConfigError
        If the images, their labels or patients differ, or no disease is common.
    """
    if len(runs) < 2:
        raise ConfigError("a comparison needs two models at least; with --group-seeds, of different settings")
    reference = runs[0]
    diseases = [one for one in reference.diseases if all(one in run.diseases for run in runs)]
    if not diseases:
        raise ConfigError("the runs have no disease in common: " + "; ".join(", ".join(run.diseases) for run in runs))
    names = _different_names([run.name for run in runs])
    comparisons, spreads = [], [_seed_spread(reference, diseases)]
    for run, name in zip(runs[1:], names[1:], strict=True):
        if run.protocol and reference.protocol and run.protocol != reference.protocol:
            raise ConfigError(f"{names[0]} was scored as {reference.protocol}, {name} as {run.protocol}")
        frames = tuple(_aligned(reference, replace(run, frames=(frame,), name=name)) for frame in run.frames)
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


def write(found: Significance, folder: Path, name: str) -> None:
    """Write `name.csv` and `name.json`."""
    write_text(folder / f"{name}.csv", as_csv(found))
    write_json(folder / f"{name}.json", as_json(found))


def as_json(found: Significance) -> dict[str, Any]:
    """The comparisons as plain data."""
    return {
        "data": found.data,
        "synthetic": None if found.origin is None else found.origin.any_synthetic,
        "reference": found.reference,
        "seeds": dict(zip((found.reference, *found.others), found.seeds, strict=True)),
        "seed_sd": dict(zip((found.reference, *found.others), found.seed_spread, strict=True)),
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
                "mean": {
                    **vars(comparison.mean),
                    "interval": _pair(comparison.mean.interval),
                    "diseases": sum(one.difference is not None for one in comparison.diseases),
                },
                "diseases": {
                    one.disease: {**vars(one), "interval": _pair(one.interval)} for one in comparison.diseases
                },
            }
            for name, comparison in zip(found.others, found.comparisons, strict=True)
        ],
    }


def as_csv(found: Significance) -> str:
    """One line per model and disease, and per model's mean."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    ours = found.seed_spread[0]
    for name, comparison, its in zip(found.others, found.comparisons, found.seed_spread[1:], strict=True):
        head = [found.data, found.reference, name, found.protocol]
        for one in comparison.diseases:
            numbers = [one.auc_a, one.auc_b, one.difference, *_ends(one.interval)]
            tests = [one.p, one.p_holm, one.delong_p, one.delong_p_holm]
            counts = [one.positives + one.negatives, one.positives, one.negatives, one.missing]
            writer.writerow(
                [
                    *head,
                    one.disease,
                    *map(_cell, [*numbers, *tests]),
                    *counts,
                    one.reason,
                    *map(_cell, [ours[one.disease], its[one.disease]]),
                ]
            )
        mean = comparison.mean
        numbers = [mean.mean_a, mean.mean_b, mean.difference, *_ends(mean.interval)]
        tests = [mean.p, mean.p_holm, mean.delong_p, mean.delong_p_holm]
        writer.writerow(
            [
                *head,
                "mean",
                *map(_cell, [*numbers, *tests]),
                *[found.units, "", "", ""],
                mean.reason,
                *map(_cell, [ours["mean"], its["mean"]]),
            ]
        )
    return out.getvalue()


def render(found: Significance, title: str = "Paired comparison") -> RenderableType:
    """A small table for a terminal: differences with intervals and corrected p values."""
    from rich.console import Group
    from rich.table import Table

    mark = found.origin.short_mark if found.origin else ""
    protocol = f"{found.protocol}: " if found.protocol else ""
    caption = (
        f"{protocol}n = {found.units}, {found.patients} patients. Difference of AUC, {INTERVAL}. p below: of the same "
        f"t, after Holm's correction over all diseases and rows, the means among themselves. Of these models: not of "
        f"another training."
    )
    shown = Table(
        title=f"{mark}{title}: difference to {found.reference}",
        caption=caption,
        title_justify="left",
        caption_justify="left",
    )
    shown.add_column("model", overflow="fold")
    for one in found.comparisons[0].diseases:
        name = TITLES.get(one.disease, one.disease)
        shown.add_column(f"{name}\n{one.positives}+ / {one.negatives}-", justify="right")
    defined = sum(one.difference is not None for one in found.comparisons[0].diseases)
    shown.add_column(f"mean\nover {defined}", justify="right", style="bold")
    for name, comparison in zip(found.others, found.comparisons, strict=True):
        cells = [_shown(one.difference, one.interval, one.p_holm) for one in comparison.diseases]
        mean = comparison.mean
        shown.add_row(name, *cells, _shown(mean.difference, mean.interval, mean.p_holm))
    every = list(zip((found.reference, *found.others), found.seeds, found.seed_spread, strict=True))
    if all(count == 1 for _, count, _ in every):
        return shown
    spread = Table(
        title="Standard deviation of the AUC over the seeds, which is not in the intervals above",
        title_justify="left",
    )
    spread.add_column("model", overflow="fold")
    for column in shown.columns[1:]:
        spread.add_column(str(column.header).split("\n")[0], justify="right")
    for name, _, values in every:
        spread.add_row(name, *("one seed" if value is None else f"{value:.3f}" for value in values.values()))
    return Group(shown, spread)


def paired_folder(found: Significance, out: Path) -> Path:
    """Where `chestfed compare` writes, named by what it found."""
    digest = _digest(json.dumps(as_json(found), sort_keys=True))
    return out / f"{found.origin.prefix if found.origin else ''}paired-{digest}"


def _seed_spread(run: Predictions, diseases: Sequence[str]) -> dict[str, float | None]:
    """Standard deviation over the seeds of each disease's AUC and of their mean; None with one seed or no AUC."""
    values = run.run(diseases)
    of_seeds = [auc_per_disease(scores, values.labels, diseases) for scores in values.scores]
    columns = {disease: [found[j].auc for found in of_seeds] for j, disease in enumerate(diseases)}
    columns["mean"] = [mean_auc(found) for found in of_seeds]
    return {
        name: None if len(aucs) < 2 or None in aucs else float(np.std(np.array(aucs, float), ddof=1))
        for name, aucs in columns.items()
    }


def _check_numbers(frame: pd.DataFrame, file: Path) -> None:
    """Refuse labels that are none, and labelled images without a score."""
    for name in (column.removeprefix("score_") for column in frame.columns if column.startswith("score_")):
        try:
            score, label = (
                frame[f"{part}_{name}"].to_numpy(np.float64, na_value=np.nan) for part in ("score", "label")
            )
        except (TypeError, ValueError):
            raise ConfigError(f"{file}: score_{name} and label_{name} have to be numbers") from None
        known = ~np.isnan(label)
        if not np.isin(label[known], (0, 1)).all():
            raise ConfigError(f"{file}: label_{name} holds other values than 0, 1 and empty")
        if lacking := int((~np.isfinite(score[known])).sum()):
            raise ConfigError(f"{file}: score_{name} is empty or infinite for {lacking} labelled images")


def _aligned(reference: Predictions, other: Predictions) -> pd.DataFrame:
    """The other's rows in the order of the reference's images."""
    if reference.key and other.key and reference.key != other.key:
        raise ConfigError(
            f"{reference.name} and {other.name} name their images with different keys ({reference.key} and "
            f"{other.key}), so that nothing can be matched. Score one of them again with the other's key: "
            "$CHESTFED_KEY_FILE names a key file, and `chestfed key` shows which key this machine uses"
        )
    ours, (theirs,) = reference.frames[0], other.frames
    mine, its = Counter(ours["image"]), Counter(theirs["image"])
    if mine != its:
        left, right = sum((mine - its).values()), sum((its - mine).values())
        raise ConfigError(
            f"{reference.name} and {other.name} are not about the same images: {left} of {len(ours)} and {right} of "
            f"{len(theirs)} differ. Score both on the same site, split and protocol (`chestfed evaluate`)"
            + _earlier(reference, other)
        )
    if (ours["image"].to_numpy() == theirs["image"].to_numpy()).all():
        return theirs
    labels = [name for name in ours.columns if name.startswith("label_") and name in theirs.columns]
    keys = ["image", "patient", *labels]
    order = theirs.sort_values(keys, kind="stable").index
    place = ours.sort_values(keys, kind="stable").index
    return theirs.loc[order].set_axis(place).sort_index().reset_index(drop=True)


def _earlier(*runs: Predictions) -> str:
    """A hint, if some runs name images as later versions do than others: first with a key, now by the picture."""
    steps = [bool(run.key) + bool(run.named_by) for run in runs]
    old = [run.name for run, step in zip(runs, steps, strict=True) if step < max(steps)]
    if not old:
        return ""
    return f"; {', '.join(old)}: written by an earlier version, which named images otherwise, so score it again"


def _different_names(names: Sequence[str]) -> list[str]:
    """Names made different by a number where they are the same."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _ends(interval: Interval | None) -> list[float | None]:
    return [None, None] if interval is None else [interval.low, interval.high]


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)


def _shown(difference: float | None, interval: Interval | None, p: float | None) -> str:
    if difference is None:
        return "-"
    lines = [f"{difference:+.3f}"]
    if interval is not None:
        lines.append(f"[{interval.low:+.2f}, {interval.high:+.2f}]")
    if p is not None:
        lines.append("p < 0.001" if p < 0.001 else f"p {p:.3f}")
    return "\n".join(lines)
