"""Score one model on one site under one protocol, and write everything that is said of it.

Images, studies and patients are named by keyed hashes (`core/pseudonyms.py`): of the picture before preprocessing, of
the pictures, and of the site's name for the patient.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_atomically, write_json, write_text
from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import SiteKey, key_for
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.protocols import PROTOCOLS, Protocol, unit_of, units, views_of
from chestfed.evaluation.subgroups import age_bands
from chestfed.evaluation.summary import (
    MAX_FPR,
    METHODS,
    SHARE,
    Method,
    Summary,
    as_json,
    metrics_csv,
    reliability_csv,
    subgroups_csv,
    summarise,
)
from chestfed.experiment.device import Machine
from chestfed.images.cache import fill_cache
from chestfed.scoring.model_outputs import score_images
from chestfed.scoring.scorers import Scorer
from chestfed.sites.table import SiteTable
from chestfed.training.clients import NAMED_BY, image_names, patient_names
from chestfed.training.identity import software_versions
from chestfed.training.study_tables import left_out_views

if TYPE_CHECKING:
    from rich.console import RenderableType


#: Probabilities nearer to 0 or 1 than this are of logits beyond 34.
_SATURATED = 1e-15
#: Numbers whose intervals the printed table has room for, by the beginnings of their names; the files have all.
_WITH_INTERVAL = ("auc", "sensitivity_at", "specificity_at")


@dataclass(frozen=True)
class Evaluation:
    """One model on one site.

    Attributes
    ----------
    predictions
        One row per unit: `image` and `patient` (keyed names), score and label of each disease, and its subgroups, such
        as `group_sex`.
    images, left_out
        Images scored, and unreadable ones that were not.
    notes
        What a reader has to know beside the numbers.
    """

    scorer: Scorer
    site: str
    title: str
    origin: Origin
    split: str
    summary: Summary
    predictions: pd.DataFrame
    images: int
    left_out: int
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Folder of the results: the same model, images and settings have the same."""
        content = pd.util.hash_pandas_object(self.predictions, index=False).to_numpy().tobytes()
        parts = [self.scorer.digest, self.split, self.summary.protocol, self.summary.method]
        digest = hashlib.blake2b(content + "\0".join(parts).encode(), digest_size=6).hexdigest()
        return f"{self.origin.prefix}{self.site}-{self.split}-{self.summary.protocol}-{digest}"


def protocol_named(name: str) -> Protocol:
    """The protocol of this name.

    Raises
    ------
    ConfigError
        If there is none.
    """
    for protocol in PROTOCOLS:
        if protocol == name:
            return protocol
    raise ConfigError(f"protocol '{name}' is none of {', '.join(PROTOCOLS)}")


def evaluate_model(
    scorer: Scorer,
    table: SiteTable,
    split: str,
    protocol: Protocol,
    cache: Path,
    machine: Machine,
    *,
    method: Method = "bootstrap",
    resamples: int = 2000,
    batch_size: int = 64,
    skip_unreadable: bool = False,
    check: Callable[[Sequence[str], pd.Series, str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    scored: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score a split of a site and summarise it.

    Parameters
    ----------
    check
        Called with the keyed names and views of the images, and the key's fingerprint, before they are scored; may
        refuse them.
    progress, scored
        Called with done and total while images are decoded, and while they are scored.

    Raises
    ------
    ConfigError
        If the split has no image under this protocol, or the model and the site have no disease in common.
    SiteError
        All missing and unreadable images in one report, unless `skip_unreadable`.
    ChestfedError
        If the model fails on the images, or the key of a real site can't be used.
    """
    key = key_for(synthetic=table.synthetic)
    diseases = scorer.diseases
    unknown = [name for name in diseases if name not in table.diseases]
    if len(unknown) == len(diseases):
        raise ConfigError(
            f"the model is about {', '.join(diseases)}, none of which site '{table.name}' labels "
            f"({', '.join(table.diseases)})"
        )
    chosen = table.select(split=split, views=views_of(protocol)).about(diseases)
    found = len(chosen.frame)
    if found == 0:
        there = table.frame["split"].value_counts()
        counts = ", ".join(f"{name} ({count})" for name, count in there.items() if count)
        views = left_out_views(table, split, protocol)
        advice = views or ". Those that the model's own study held out of it: --split held-out"
        raise ConfigError(
            f"site '{table.name}' has no image in the split {split} for {protocol}; images: {counts}{advice}"
        )
    images = fill_cache(chosen, cache, scorer.preprocess, skip_unreadable=skip_unreadable, progress=progress)
    readable = images.records >= 0
    if not readable.any():
        raise ConfigError(f"site '{table.name}': no image of the split {split} can be read")
    if not readable.all():
        chosen = chosen.with_frame(chosen.frame[readable].reset_index(drop=True))
        images = fill_cache(chosen, cache, scorer.preprocess, skip_unreadable=True)

    frame = chosen.frame
    if check is not None:
        check(image_names(images.sources, key), frame["view"], key.fingerprint)
    scores = score_images(scorer, images, batch_size, machine, scored)
    patients = _running_numbers(frame["patient"].to_numpy(dtype=str))
    studies = _running_numbers(frame["study"].to_numpy(dtype=str), patients)
    unit = units(protocol, scores, chosen.labels(), studies)
    first = frame.iloc[unit.first]
    by_image = unit_of(protocol) == "image"
    columns: dict[str, Any] = {"sex": first["sex"], "age": age_bands(first["age"].to_numpy())}
    if by_image:
        columns["view"] = first["view"].cat.remove_unused_categories()
    columns = {name: values for name, values in columns.items() if pd.Series(values).notna().any()}
    summary = summarise(
        unit.scores,
        unit.labels,
        patients[unit.first],
        diseases,
        protocol,
        method=method,
        resamples=resamples,
        columns=columns,
        probabilities=scorer.output != "scores",
    )
    summary = _with_reason(summary, unknown, table.name)
    names = image_names(images.sources, key) if by_image else _study_names(images.sources, unit.of_row, key)
    predictions = pd.DataFrame({"image": names, "patient": patient_names(table.name, first["patient"], key)})
    for j, disease in enumerate(diseases):
        predictions[f"score_{disease}"] = unit.scores[:, j]
        predictions[f"label_{disease}"] = unit.labels[:, j]
    for name, values in columns.items():  # so that the subgroups can be recomputed; bands of age, never an age
        predictions[f"group_{name}"] = pd.Series(np.asarray(values, dtype=object), dtype="str")
    origin = Origin.together([table.origin, scorer.origin or table.origin])
    about = {"protocol": protocol, "split": split, "model": scorer.digest, "key": key.fingerprint, "named_by": NAMED_BY}
    predictions.attrs.update(origin.keys() | about)
    notes = _notes(scorer, table, split, scores, found - len(frame))
    return Evaluation(
        scorer, table.name, table.title, origin, split, summary, predictions, len(frame), found - len(frame), notes
    )


def write(evaluation: Evaluation, folder: Path) -> None:
    """Write `evaluation.json`, three CSV files and `predictions.parquet`."""
    folder.mkdir(parents=True, exist_ok=True)
    summary, scorer = evaluation.summary, evaluation.scorer
    head = {"data": str(evaluation.origin), "site": evaluation.site, "split": evaluation.split}
    for name, content in (
        ("metrics", metrics_csv(summary, head)),
        ("subgroups", subgroups_csv(summary, head)),
        ("reliability", reliability_csv(summary, head)),
    ):
        write_text(folder / f"{name}.csv", content)
    predictions = evaluation.predictions
    path = folder / "predictions.parquet"
    write_atomically(path, lambda temporary: predictions.to_parquet(temporary, index=False))
    value = {
        "title": _title(evaluation),
        **evaluation.origin.keys(),
        "notes": list(evaluation.notes),
        "model": {
            "name": scorer.name,
            "kind": scorer.kind,
            "digest": scorer.digest,
            "outputs": list(scorer.outputs),
            "output": scorer.output,
            "input": scorer.input.model_dump(mode="json"),
            "preprocess": scorer.preprocess.model_dump(mode="json"),
            "trained_on": None if scorer.origin is None else str(scorer.origin),
        },
        "site": evaluation.site,
        "split": evaluation.split,
        "key": predictions.attrs["key"],
        "unit": unit_of(summary.protocol),
        "images": evaluation.images,
        "images_left_out": evaluation.left_out,
        **as_json(summary),
        "versions": software_versions(),
    }
    write_json(folder / "evaluation.json", value)


def render(evaluation: Evaluation) -> RenderableType:
    """The tables for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    summary, protocol = evaluation.summary, evaluation.summary.protocol
    unit = {"image": "images", "study": "studies"}[unit_of(protocol)]
    of_images = f" ({evaluation.images} images)" if unit == "studies" else ""
    caption = (
        f"{protocol}: n = {summary.units} {unit} of {summary.patients} patients{of_images}, {evaluation.split} split. "
        f"In brackets: {METHODS[summary.method]}"
        + (
            ""
            if summary.method == "bootstrap"
            else "; of sens@spec and spec@sens a patient-clustered bootstrap interval"
        )
        + f". sens@spec: sensitivity at a specificity of {SHARE} or more; spec@sens: the reverse. pAUC: up to a "
        f"false-positive rate of {MAX_FPR}, 0.5 without information. ECE: equal-width bins. "
        f"Input: {_input(evaluation)}."
    )
    shown = Table(title=_title(evaluation), caption=caption, title_justify="left", caption_justify="left")
    shown.add_column("disease", overflow="fold")
    for name in ("n+ / n-", "AUC", "AUPRC", "pAUC", f"sens@spec {SHARE}", f"spec@sens {SHARE}", "Brier", "ECE"):
        shown.add_column(name, justify="right")
    for one in summary.diseases:
        counts = f"{one.auc.positives} / {one.auc.negatives}"
        cells = [
            _shown(value, one.interval(name) if name.startswith(_WITH_INTERVAL) else None)
            for name, value in list(one.values().items())[:-1]
        ]
        shown.add_row(TITLES.get(one.disease, one.disease), counts, *cells)
    means = list(summary.means.values())[:-1]
    shown.add_section()
    shown.add_row(
        "mean",
        f"over {means[0].diseases} of {len(summary.diseases)}",
        *(_shown(mean.value, mean.bounds.interval) for mean in means),
        style="bold",
    )
    parts: list[RenderableType] = [shown]
    undefined = [f"{TITLES.get(one.disease, one.disease)}: {one.reason}" for one in summary.diseases if one.reason]
    if undefined:
        parts.append(Text("Not defined, and left out of the mean: " + "; ".join(undefined) + _one_class(summary)))
    if summary.subgroups:
        parts.append(_subgroups(evaluation, unit))
    parts += [Text(note, style="yellow") for note in evaluation.notes]
    return Group(*parts)


def _one_class(summary: Summary) -> str:
    """What the count beside the mean does not say: which numbers are over more diseases than the AUC."""
    auc, brier = summary.means["auc"].diseases, summary.means["brier"].diseases
    if brier in (auc, 0):
        return ""
    return f". Brier and ECE need no second class: their means are over {brier} of {len(summary.diseases)}"


def _subgroups(evaluation: Evaluation, unit: str) -> RenderableType:
    from rich.table import Table

    summary = evaluation.summary
    mark = evaluation.origin.short_mark
    caption = (
        f"{summary.protocol}. AUC within the group, its interval as above, n+ / n-; the mean is over the diseases that "
        "have one."
    )
    shown = Table(title=f"{mark}Subgroups", caption=caption, title_justify="left", caption_justify="left")
    shown.add_column("group")
    shown.add_column(f"n ({unit})", justify="right")
    for one in summary.diseases:
        shown.add_column(TITLES.get(one.disease, one.disease), justify="right")
    shown.add_column("mean", justify="right", style="bold")
    for column, groups in summary.subgroups.items():
        for group in groups:
            cells = [
                f"{_shown(auc.auc, bounds.interval)}\n{auc.positives} / {auc.negatives}"
                for auc, bounds in zip(group.diseases, group.intervals.diseases, strict=True)
            ]
            defined = sum(auc.auc is not None for auc in group.diseases)
            mean = f"{_shown(group.mean, group.intervals.mean.interval)}\nover {defined}"
            shown.add_row(f"{column}: {group.value}", str(group.images), *cells, mean)
        shown.add_section()
    return shown


def _input(evaluation: Evaluation) -> str:
    preprocess = evaluation.scorer.preprocess
    return f"{evaluation.scorer.input}, {preprocess.size} x {preprocess.size} pixels, {preprocess.fit}"


def _title(evaluation: Evaluation) -> str:
    return f"{evaluation.origin.mark}{evaluation.scorer.name} ({evaluation.scorer.kind}) on {evaluation.title}"


def _notes(scorer: Scorer, table: SiteTable, split: str, scores: np.ndarray, left_out: int) -> tuple[str, ...]:
    notes = []
    if split == "train":
        notes.append("These are training images: if the model was trained on them, its figures say nothing of others.")
    if scorer.origin is not None and scorer.origin.any_synthetic and not table.synthetic:
        notes.append(
            f"The model was trained on {scorer.origin.tag} hospitals: its numbers on real images mean nothing clinical."
        )
    if left_out:
        notes.append(f"{left_out} unreadable images were left out.")
    if scorer.output == "scores":
        notes.append("The outputs are taken for an order alone: no Brier score, no ECE, no reliability curve.")
    if scorer.output == "logits" and (scores.min() < _SATURATED or scores.max() > 1 - _SATURATED):
        notes.append(
            "Some outputs are so large that, as logits, they mean probabilities of 0 or 1. Their order, and so the "
            "AUC, is kept. If they are not logits (percentages, margins), say so with --output-type scores."
        )
    # Logits within [0, 1] come out within [0.5, 0.7311].
    if (
        scorer.output == "logits"
        and not scorer.kind.startswith("chestfed")
        and 0.5 <= scores.min() <= scores.max() < 0.7311
    ):
        notes.append(
            "All outputs lie between 0 and 1. If they are probabilities already, use --output-type probabilities: the "
            "AUC stays, calibration and thresholds change."
        )
    return tuple(notes)


def _with_reason(summary: Summary, unknown: Sequence[str], site: str) -> Summary:
    """Say of diseases that the site does not label why they have no number."""
    diseases = tuple(
        replace(one, reason=f"not labelled at site '{site}'") if one.disease in unknown else one
        for one in summary.diseases
    )
    return replace(summary, diseases=diseases)


def _running_numbers(names: np.ndarray, within: np.ndarray | None = None) -> np.ndarray:
    """A number per distinct name, or per pair with `within`."""
    _, numbers = np.unique(names, return_inverse=True)
    if within is not None:
        _, numbers = np.unique(np.stack([within, numbers]), axis=1, return_inverse=True)
    return np.asarray(numbers).reshape(-1)


def _study_names(digests: Sequence[bytes], of_row: np.ndarray, key: SiteKey) -> list[str]:
    """Keyed name per study, by its images in any order."""
    members: list[list[bytes]] = [[] for _ in range(int(of_row.max()) + 1)]
    for digest, number in zip(digests, of_row, strict=True):
        members[number].append(bytes(digest))
    return [key.name("study", *sorted(part)) for part in members]


def _shown(value: float | None, interval: Interval | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f}\n[{interval.low:.2f}, {interval.high:.2f}]"
