"""Score one model on one site under one protocol.

Images, studies and patients are named by keyed hashes (`core/pseudonyms.py`): of the picture before preprocessing, of
the pictures, and of the site's name for the patient.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.core.pseudonyms import SiteKey, key_for
from chestfed.data.images.cache import CachedImages, fill_cache
from chestfed.data.images.database import unpack_keys
from chestfed.data.sites.table import SiteTable
from chestfed.learning.models import restore_statistics
from chestfed.results.evaluation.decisions import Decisions, decide, read_thresholds
from chestfed.results.evaluation.estimates import auc_per_disease, compute_mean
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.protocols import PROTOCOLS, Protocol, list_views, name_unit, units
from chestfed.results.evaluation.summary import Summary, group_columns, summarize
from chestfed.results.tables.predictions import predictions_frame
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.batch_norm import Choice, ChosenStatistics, choose_statistics
from chestfed.studies.scoring.held_out_patients import Check, advise_split, describe_images
from chestfed.studies.scoring.model_outputs import score_images
from chestfed.studies.scoring.scorer import Scorer
from chestfed.studies.scoring.trained_patients import check_tested
from chestfed.studies.training.data.clients import image_names, order_by_names, take_statistics
from chestfed.studies.training.data.sites import left_out_views

#: Batch-norm statistics of a model that is not asked for them.
STORED_STATISTICS: Final = ChosenStatistics()

#: Probabilities nearer to 0 or 1 than this are of logits beyond 34.
_SATURATED = 1e-15


@dataclass(frozen=True, repr=False)
class Evaluation:
    """One model on one site."""

    scorer: Scorer
    site: str
    title: str
    origin: Origin
    split: str
    summary: Summary
    #: One row per unit: `image` and `patient` (keyed names), score and label of each disease, and its subgroups, such
    #: as `group_sex`.
    predictions: pd.DataFrame
    #: images, left_out: images scored, and unreadable ones that were not.
    images: int
    left_out: int
    notes: tuple[str, ...]  #: what a reader has to know beside the numbers
    statistics: ChosenStatistics  #: of batch normalization
    decisions: Decisions | None = None  #: at the thresholds that were asked for
    tested: Origin | None = None  #: origin of the test images alone
    patients_trained_on: int | None = None  #: patients scored that the model was trained on; None: unknown

    @property
    def auc(self) -> dict[str, float | None]:
        """AUC of each disease and their `mean`; None where it is not defined."""
        rows = self.summary.metrics.query("metric == 'auc'")
        values = zip(rows["disease"], rows["value"], strict=True)
        return {disease: None if np.isnan(value) else float(value) for disease, value in values}

    @property
    def name(self) -> str:
        """Folder of the results: the same model, images and settings have the same."""
        content = pd.util.hash_pandas_object(self.predictions, index=False).to_numpy().tobytes()
        how = self.summary.intervals
        parts = [self.scorer.digest, self.scorer.output, self.split, self.summary.protocol, how.method]
        parts += [str(how.resamples), *self.summary.diseases]
        parts += [] if self.decisions is None else [repr(sorted(self.decisions.thresholds.items()))]
        digest = hashlib.blake2b(content + "\0".join(parts).encode(), digest_size=6).hexdigest()
        return f"{self.origin.prefix}{self.site}-{self.split}-{self.summary.protocol}-{digest}"

    @property
    def answer(self) -> str:
        """The mean AUC with its interval, over how many diseases, on what it was measured."""
        names = self.summary.diseases
        row = self.summary.row("mean" if len(names) > 1 else names[0], "auc")
        over = "" if len(names) == 1 or pd.isna(row["over_diseases"]) else f"{row['over_diseases']:.0f}"
        all_ = f"{over} diseases" if over == str(len(names)) else f"{over} of {len(names)} diseases"
        what = f"mean AUC over {all_}" if over else "AUC" if len(names) == 1 else "mean AUC"
        value = "not defined" if pd.isna(row["value"]) else f"{row['value']:.3f}"
        bounds = "" if pd.isna(row["low"]) else f" [{row['low']:.3f}, {row['high']:.3f}]"
        where = f"{self.images:,} images of {self.summary.patients:,} patients of {self.site}, {self.split} split"
        where += f", {self.patients_trained_on:,} OF THEM TRAINED ON" if self.patients_trained_on else ""
        return f"{self.synthetic_part or self.origin.short_mark}{what} {value}{bounds} on {where}"

    @property
    def numbers(self) -> dict[str, Any]:
        """Numbers for programs: counts, and of each disease and their `mean` every metric with its interval."""
        metrics: dict[str, dict[str, dict[str, float | None]]] = {}
        for row in self.summary.metrics.to_dict("records"):
            bounds = {key: None if pd.isna(row[key]) else float(row[key]) for key in ("value", "low", "high")}
            metrics.setdefault(str(row["disease"]), {})[str(row["metric"])] = bounds
        counts = {"images": self.images, "left_out": self.left_out, "patients": self.summary.patients}
        counts |= {"patients_trained_on": self.patients_trained_on} if self.patients_trained_on else {}
        numbers = {"site": self.site, "split": self.split, "data": str(self.origin), **counts, "metrics": metrics}
        return numbers | ({} if self.decisions is None else {"decisions": list_rows(self.decisions.confusion)})

    def __repr__(self) -> str:
        aucs = ", ".join(f"{name} {'-' if auc is None else format(auc, '.3f')}" for name, auc in self.auc.items())
        more = "auc, summary, predictions, notes"
        return f"<Evaluation: {self.scorer.name} on {self.title}\n{self.answer}\nAUC: {aucs}\nit has {more}>"

    @property
    def headline(self) -> str:
        """Model and site, for a title; synthetic data are marked."""
        return f"{self.synthetic_part or self.origin.mark}{self.scorer.name} ({self.scorer.kind}) on {self.title}"

    @property
    def synthetic_part(self) -> str:
        """Begins a title or an answer where either the model's training or the test images are synthetic."""
        trained, tested = self.scorer.origin, self.tested
        if tested is Origin.REAL and trained is not None and trained.any_synthetic:
            return f"model trained on {trained.tag} hospitals, real test images: "
        if tested is Origin.SYNTHETIC and trained is Origin.REAL:
            return f"model trained on real hospitals, {tested.tag} test images: "
        return ""


def evaluate_model(
    scorer: Scorer,
    table: SiteTable,
    split: str,
    protocol: Protocol,
    cache: Path,
    machine: Machine,
    *,
    how: Intervals = Intervals(),
    batch_size: int = 64,
    skip_unreadable: bool = False,
    statistics: ChosenStatistics = STORED_STATISTICS,
    thresholds: Sequence[str] = (),
    check: Check | None = None,
    progress: Callable[[int, int], None] | None = None,
    scored: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score a split of a site and summarize it.

    `check` says which images are scored, and may refuse them; `progress` and `scored` with done and total while they
    are decoded and scored. If `statistics` are from other images than the stored ones, both mean AUCs are noted where
    they differ.

    `thresholds`, such as `0.2` or `edema=0.1`, are those of `decisions`.

    Raises `ConfigError` if a threshold cannot be read or the model has no probabilities, there is no such protocol, the
    split has no image under it, or model and site have no disease in common; `SiteError`: all missing and unreadable
    images in one report, unless `skip_unreadable`;
    `ChestfedError` if the model fails on the images, or the key of a real site can't be used.
    """
    at = _read_thresholds(thresholds, scorer)
    key = key_for(public=table.phantoms)
    every = select_rows(table, scorer.diseases, split, protocol)
    chosen, images = read_images(every, cache, scorer, split, skip_unreadable, progress)
    out = len(every.frame) - len(chosen.frame)
    chosen, images, untested = _leave_out(chosen, images, check, key)
    frame = chosen.frame
    scores, as_stored = _score(scorer, images, statistics, batch_size, machine, scored)
    studies = frame.groupby(["patient", "study"], observed=True, dropna=False).ngroup().to_numpy()
    unit = units(protocol, scores, chosen.labels(), studies)
    by_image = name_unit(protocol) == "image"
    names = image_names(images.sources, key) if by_image else _study_names(images.sources, unit.of_row, key)
    order = order_by_names(key, names, key.name_patients(table.name, frame["patient"].iloc[unit.first]), unit.labels)
    first = frame.iloc[unit.first[order]]
    groups, patients = group_columns(first, by_image=by_image), key.name_patients(table.name, first["patient"])
    of_units = Scored(unit.scores[order], unit.labels[order], first["patient"].to_numpy(dtype=str), scorer.diseases)
    summary = _summarize(of_units, groups, table, scorer, protocol, how)
    decisions = decide(of_units, at, how) if at else None
    means: tuple[str, ...] = ()
    if as_stored is not None:
        stored_scores = units(protocol, as_stored, chosen.labels(), studies).scores[order]
        means = _both_means(summary, replace(of_units, scores=stored_scores))
    predictions = predictions_frame([names[row] for row in order], patients, of_units, groups)
    origin = Origin.together([table.origin, scorer.origin or table.origin])
    scoring = {"protocol": protocol, "split": split, "model": scorer.digest}
    predictions.attrs.update(origin.keys() | scoring | {"key": key.fingerprint})
    notes = (*untested, *means, *_notes(scorer, table, split, protocol, scores, out))
    about = (summary, predictions, len(frame), out, (*scorer.notes, *statistics.notes, *notes), statistics)
    return Evaluation(scorer, table.name, table.title, origin, split, *about, decisions, table.origin)


def _leave_out(
    chosen: SiteTable, images: CachedImages, check: Check | None, key: SiteKey
) -> tuple[SiteTable, CachedImages, tuple[str, ...]]:
    """The rows and images that `check` keeps, and a note of the others."""
    if check is None:
        return chosen, images, ()
    frame = chosen.frame
    named = {"image": image_names(images.sources, key), "patient": key.name_patients(chosen.name, frame["patient"])}
    kept = np.flatnonzero(check(pd.DataFrame(named).assign(view=frame["view"].array), key.fingerprint))
    if lost := len(frame) - len(kept):
        text = f"{plural(lost, 'image')} of patients who are at another site too left out, as in the model's study."
        return chosen.with_frame(frame.iloc[kept].reset_index(drop=True)), images.take(kept), (text,)
    return chosen, images, ()


def evaluate_split(
    model: str | None,
    scorer: Scorer,
    table: SiteTable,
    split: str,
    protocol: Protocol,
    cache: Path,
    machine: Machine,
    *,
    batch_norm: Choice | None = None,
    allow_trained: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Evaluation:
    """As `evaluate_model`, also of the split `held-out`, with the batch-norm statistics of `choose_statistics`.

    `model` is where the scorer is from, None if it is in memory; `table` is all of the site.

    Raises `ConfigError` also if the model was trained on patients to be scored, unless `allow_trained`.
    """
    chosen, of_split, check = describe_images(model, table, split)
    rows = select_rows(chosen, scorer.diseases, of_split, protocol)
    tested = check_tested(model, scorer, table, rows, of_split, allow=allow_trained)
    statistics = choose_statistics(model, scorer, table, cache, batch_norm, progress)
    settings |= {"statistics": statistics, "check": check, "progress": progress}
    done = evaluate_model(scorer, chosen, of_split, protocol, cache, machine, **settings)
    return replace(done, notes=(*tested.notes, *done.notes), patients_trained_on=tested.trained)


def _read_thresholds(texts: Sequence[str], scorer: Scorer) -> dict[str, float]:
    """Threshold of each disease; 0.5 for those that are not named, and none at all without `texts`."""
    if texts and scorer.output == "scores":
        text = "--threshold: the outputs are used as a ranking only; a threshold needs probabilities (--output-type)"
        raise ConfigError(text, kind="no probabilities", option="threshold")
    try:
        given = read_thresholds(texts, scorer.diseases)
    except ValueError as error:
        raise ConfigError(f"--threshold {error}", kind="invalid threshold", option="threshold") from None
    return {disease: given.get(disease, 0.5) for disease in scorer.diseases} if texts else {}


def list_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame; what is not defined is null, an infinite threshold `infinity`."""
    plain = frame.astype(object).where(frame.notna(), None).replace({np.inf: "infinity"})
    return plain.to_dict("records")  # type: ignore[return-value]


def _summarize(
    scored: Scored, groups: pd.DataFrame, table: SiteTable, scorer: Scorer, protocol: Protocol, how: Intervals
) -> Summary:
    """All numbers, with the reason where the site does not label a disease."""
    columns = {str(name): values for name, values in groups.items()}
    summary = summarize(scored, protocol, how, columns, probabilities=scorer.output != "scores")
    metrics = summary.metrics
    unknown = metrics["disease"].isin(set(scorer.diseases) - set(table.diseases)) & metrics["value"].isna()
    metrics.loc[unknown, "reason"] = f"not labeled at site '{table.name}'"
    return summary


def _score(
    scorer: Scorer,
    images: CachedImages,
    statistics: ChosenStatistics,
    batch_size: int,
    machine: Machine,
    scored: Callable[[int, int], None] | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Scores `[n, diseases]`, and those with the stored statistics if they are not these."""
    score = partial(score_images, scorer, images, batch_size, machine, scored)
    if statistics.images is None or scorer.network is None:
        return score(), None
    as_stored = score()
    with restore_statistics(scorer.network):
        take_statistics(scorer.network, statistics.images, machine, scorer.input)
        return score(), as_stored


def _both_means(summary: Summary, as_stored: Scored) -> tuple[str, ...]:
    """A note of the mean AUC with either statistics; none if they are equal."""
    mean, stored = summary.row("mean", "auc")["value"], compute_mean(as_stored, auc_per_disease(as_stored))
    if stored is None or mean == stored:
        return ()
    return (
        f"Mean AUC {mean:.3f} with batch-norm statistics of the site's own training images, {stored:.3f} with those "
        "stored in the model file (--batch-norm stored).",
    )


def select_rows(table: SiteTable, diseases: Sequence[str], split: str, protocol: Protocol) -> SiteTable:
    """The rows to score, with the labels of the model's diseases."""
    if protocol not in PROTOCOLS:
        raise ConfigError(f"protocol '{protocol}' is not one of {', '.join(PROTOCOLS)}")
    if not set(diseases) & set(table.diseases):
        raise ConfigError(
            f"the model scores {', '.join(diseases)}, none of which site '{table.name}' labels "
            f"({', '.join(table.diseases)})"
        )
    chosen = table.select(split=split, views=list_views(protocol)).about(diseases)
    if len(chosen.frame) == 0:
        exist = table.frame["split"].value_counts()
        counts = ", ".join(f"{name} ({count})" for name, count in exist.items() if count)
        views = left_out_views(table, split)
        advice = views or advise_split(table, split, list_views(protocol)) or _HELD_OUT
        raise ConfigError(
            f"site '{table.name}' has no image in the split {split} for {protocol}; images: {counts}{advice}",
            kind="no image to score",
            split=split,
            protocol=protocol,
            views=tuple(table.select(split=split).frame["view"].unique()),
        )
    return chosen


_HELD_OUT: Final = ". chestfed evaluate --split held-out scores the patients that the model's own study held out"


def read_images(
    chosen: SiteTable,
    cache: Path,
    scorer: Scorer,
    split: str,
    skip_unreadable: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[SiteTable, CachedImages]:
    """The rows whose images can be read, and the images."""
    images = fill_cache(chosen, cache, scorer.preprocess, skip_unreadable=skip_unreadable, progress=progress)
    readable = np.flatnonzero(images.records >= 0)
    if not len(readable):
        raise ConfigError(
            f"site '{chosen.name}': no image of split {split} can be read; `chestfed site check` gives the reasons"
        )
    return chosen.with_frame(chosen.frame.iloc[readable].reset_index(drop=True)), images.take(readable)


def _notes(
    scorer: Scorer, table: SiteTable, split: str, protocol: Protocol, scores: np.ndarray, left_out: int
) -> tuple[str, ...]:
    notes = []
    if split == "train":
        notes.append(
            "These are training images: if the model was trained on them, its figures say nothing about other images."
        )
    if scorer.origin is not None and scorer.origin.any_synthetic and not table.synthetic:
        notes.append(
            f"The model was trained on {scorer.origin.tag} hospitals: its numbers on real images mean nothing clinical."
        )
    if unscored := [format_title(disease) for disease in table.diseases if disease not in scorer.diseases]:
        notes.append(f"{table.name} labels {', '.join(unscored)}, not among the diseases that the model scores.")
    if left_out:
        notes.append(f"{left_out} unreadable images were left out.")
    unknown = 0 if list_views(protocol) is None else len(table.select(split, ["unknown"]).frame)
    if unknown:
        notes.append(
            f"{unknown} images of unknown view were not scored; if they are frontal, use --protocol all-image."
        )
    if scorer.output == "scores":
        notes.append("The outputs are used as a ranking only: no Brier score, no ECE, no reliability curve.")
    if scorer.output == "logits" and (scores.min() < _SATURATED or scores.max() > 1 - _SATURATED):
        notes.append(
            "Some outputs are so large that, as logits, they are probabilities of 0 or 1. Their order, and so the "
            "AUC, is kept. If they are not logits (but percentages or margins), use --output-type scores."
        )
    if scorer.output == "probabilities" and scores.shape[1] > 1 and np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        notes.append(
            "The probabilities of every image add up to 1, as after a softmax, though an image may have several "
            "diseases: if the model was trained with a sigmoid, export its logits."
        )
    # Logits within [0, 1] come out within [0.5, 0.7311].
    if (
        scorer.output == "logits"
        and not scorer.kind.startswith("chestfed")
        and 0.5 <= scores.min() <= scores.max() < 0.7311
    ):
        notes.append(
            "All outputs lie between 0 and 1. If they are probabilities, use --output-type probabilities: the AUC "
            "stays the same, calibration and thresholds change."
        )
    return tuple(notes)


def _study_names(digests: np.ndarray, of_row: np.ndarray, key: SiteKey) -> tuple[str, ...]:
    """Keyed name per study, by its images in any order."""
    members: list[list[bytes]] = [[] for _ in range(int(of_row.max()) + 1)]
    for digest, number in zip(unpack_keys(digests), of_row, strict=True):
        members[number].append(digest)
    return tuple(key.name("study", *sorted(part)) for part in members)
