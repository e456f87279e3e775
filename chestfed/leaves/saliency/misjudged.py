"""Saliency of the images of a split that a model misjudges: maps, their check, and what may be written of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import torch
from torch import nn

from chestfed.core.checkpoint import write_text
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.data.images.batches import EvalBatches
from chestfed.data.images.cache import CachedImages
from chestfed.data.sites.table import SiteTable
from chestfed.learning.models import restore_statistics
from chestfed.leaves.saliency.maps import METHODS, compare_maps, randomize
from chestfed.results.evaluation.estimates import as_csv
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.metrics import sensitivity_at_specificity
from chestfed.studies.experiment.device import Machine
from chestfed.studies.scoring.batch_norm import ChosenStatistics
from chestfed.studies.scoring.evaluate import read_images, select_rows
from chestfed.studies.scoring.model_outputs import score_images
from chestfed.studies.scoring.scorer import Scorer
from chestfed.studies.training.data.clients import take_statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: From here on maps are called alike.
ALIKE: Final = 0.5
#: Images that a verdict on a method needs.
LEAST_IMAGES: Final = 10
_KINDS: Final = {True: "missed", False: "false alarm"}
_ABSENT: Final = {"missed": "missed", "false alarm": "a false alarm"}


@dataclass(frozen=True)
class Example:
    """One misjudged image and its maps. It has no name."""

    disease: str
    kind: str  #: missed: a positive below the threshold at a specificity of 90%; false alarm: a negative above it
    image: np.ndarray  #: gray values in [0, 1], float `[h, w]`
    maps: dict[str, np.ndarray]  #: of the model, by the method's name
    random: dict[str, np.ndarray]  #: with random weights

    @cached_property
    def likeness(self) -> dict[str, float | None]:
        """Rank correlation of each map with that of random weights."""
        return {name: compare_maps(self.maps[name], self.random[name]) for name in self.maps}


@dataclass(frozen=True)
class Misjudged:
    """Misjudged images of a split, and what has none."""

    examples: list[Example]
    absent: list[tuple[str, str]]  #: disease, and a sentence on its kind without an image
    unreadable: int  #: images that were left out
    scored: str = ""  #: sentence on the batch-norm statistics of the scores and maps
    notes: tuple[str, ...] = ()  #: on these statistics
    trained: int = 0  #: patients of the split that the model was trained on, as far as is known


@dataclass
class _Rows:
    """Disease, kind and row of each misjudged image, and the kinds without one."""

    wrong: list[tuple[str, str, int]] = field(default_factory=list)
    absent: list[tuple[str, str]] = field(default_factory=list)


def find_misjudged(
    scorer: Scorer,
    table: SiteTable,
    split: str,
    cache: Path,
    machine: Machine,
    shown: int,
    seed: int,
    statistics: ChosenStatistics,
    progress: Callable[[int, int], None] | None = None,
    *,
    skip_unreadable: bool = False,
) -> Misjudged:
    """The worst `shown` positives and negatives of each disease, by frontal images; `progress` counts their maps.

    Scores and maps are with the batch-norm `statistics`, as those of `evaluate_split`.

    Raises `ConfigError` if the model is a program whose gradients are not known; as `evaluate_model`.
    """
    if scorer.network is None:
        text = f"{scorer.name}: a program has no gradients; saliency needs the weights of a network"
        raise ConfigError(text, kind="no gradients")
    every = select_rows(table, scorer.diseases, split, "frontal-image")
    chosen, images = read_images(every, cache, scorer, split, skip_unreadable, None)
    with restore_statistics(scorer.network):
        if statistics.images is not None:
            take_statistics(scorer.network, statistics.images, machine, scorer.input)
        scores = score_images(scorer, images, 64, machine)
        scored = Scored(scores, chosen.labels(), chosen.frame["patient"].to_numpy(dtype=str), scorer.diseases)
        rows = _find_rows(scored, shown)
        examples = _draw_maps(scorer, scorer.network, images, rows.wrong, machine, seed, progress)
    out = len(every.frame) - len(chosen.frame)
    return Misjudged(examples, rows.absent, out, statistics.sentence, statistics.notes)


def _draw_maps(
    scorer: Scorer,
    network: nn.Module,
    images: CachedImages,
    wrong: Sequence[tuple[str, str, int]],
    machine: Machine,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> list[Example]:
    """The maps of misjudged images, each beside that of random weights."""
    drawn, examples = randomize(network, seed), list[Example]()
    for done, (disease, kind, row) in enumerate(wrong, start=1):
        output = scorer.outputs.index(disease)
        batches = EvalBatches(
            images.take(np.array([row])), np.zeros((1, 0), np.float32), 1, form=scorer.input, device=machine.device
        )
        given = next(iter(batches)).images.clone()
        maps = {name: make(network, given, output) for name, make in METHODS.items()}
        random = {name: make(drawn, given, output) for name, make in METHODS.items()}
        examples.append(Example(disease, kind, _show(given), maps, random))
        if progress is not None:
            progress(done, len(wrong))
    return examples


def _find_rows(scored: Scored, shown: int) -> _Rows:
    """The images that are the farthest on the wrong side of the threshold first."""
    listed = _Rows()
    for place, column in enumerate(scored.columns()):
        point = sensitivity_at_specificity(column)
        if point is None:
            text = "no threshold, because the images have no positive or no negative"
            listed.absent.append((column.disease, text))
            continue
        rows = np.flatnonzero(~np.isnan(scored.labels[:, place]))
        for positive, kind in _KINDS.items():
            order = np.argsort(column.score if positive else -column.score, kind="stable")
            wrong = (column.positive == positive) & ((column.score < point.threshold) == positive)
            if not wrong.any():
                listed.absent.append((column.disease, f"no image is {_ABSENT[kind]} at its threshold"))
            listed.wrong += ((column.disease, kind, row) for row in rows[order[wrong[order]]][:shown])
    return listed


def _show(given: torch.Tensor) -> np.ndarray:
    gray = given[0].mean(dim=0).cpu().numpy()
    return (gray - gray.min()) / max(float(np.ptp(gray)), 1e-9)


def tabulate(examples: Sequence[Example]) -> pd.DataFrame:
    """One row per disease, kind and method: images, and the mean and largest likeness with random weights."""
    rows = [
        {"disease": one.disease, "kind": one.kind, "method": name, "likeness": likeness}
        for one in examples
        for name, likeness in one.likeness.items()
    ]
    frame = pd.DataFrame(rows, columns=["disease", "kind", "method", "likeness"]).astype({"likeness": float})
    grouped = frame.groupby(["disease", "kind", "method"], sort=False)["likeness"]
    return grouped.agg(
        images="size", flat=lambda part: int(part.isna().sum()), mean="mean", largest="max"
    ).reset_index()


def judge(examples: Sequence[Example]) -> dict[str, tuple[float | None, str]]:
    """Mean likeness of each method, and in words whether the maps depend on what was learned."""
    verdicts: dict[str, tuple[float | None, str]] = {}
    for name in METHODS:
        known = [likeness for one in examples if (likeness := one.likeness[name]) is not None]
        if not known:
            verdicts[name] = (None, "flat maps: it shows nothing here")
            continue
        mean, alike = float(np.mean(known)), sum(likeness >= ALIKE for likeness in known)
        flat = f", {len(examples) - len(known)} flat" if len(known) < len(examples) else ""
        if len(known) < LEAST_IMAGES:
            verdict = f"too few maps for a verdict, which needs {LEAST_IMAGES} (--images N takes more)"
        elif mean >= ALIKE:
            verdict = "it shows the images, not what was learned"
        elif alike:
            verdict = "these show the image, not what was learned"
        else:
            verdict = "the maps differ from those of random weights, as they should"
        measured = f"mean correlation {mean:+.2f}, {alike} of {len(known)} maps alike ({ALIKE} or more){flat}"
        verdicts[name] = (mean, f"{measured}: {verdict}")
    return verdicts


def write(misjudged: Misjudged, folder: Path, origin: Origin, *, pictures: bool) -> list[str]:
    """Write `saliency.csv`, and with `pictures` a figure per disease; returns the files' names."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = tabulate(misjudged.examples)
    frame = frame.assign(patients_trained_on=misjudged.trained) if misjudged.trained else frame
    write_text(folder / "saliency.csv", as_csv(frame))
    names = ["saliency.csv"]
    diseases = [*(one.disease for one in misjudged.examples), *(disease for disease, _ in misjudged.absent)]
    for disease in dict.fromkeys(diseases) if pictures else ():
        names.append(f"{disease}.png")
        draw_disease(misjudged, disease, origin).savefig(folder / names[-1], dpi=110)
    return names


def draw_disease(misjudged: Misjudged, disease: str, origin: Origin) -> Figure:
    """Each image of a disease, its maps, and those of random weights beside them; below, the kinds without an image."""
    from matplotlib.figure import Figure

    examples = [one for one in misjudged.examples if one.disease == disease]
    columns = 1 + 2 * len(METHODS)
    figure = Figure(figsize=(2.1 * columns, 2.3 * len(examples) + 0.9), layout="constrained")
    title = f"{format_title(disease)}: misclassified images; in brackets the correlation of two maps"
    figure.suptitle(f"{origin.short_mark}{title}")
    figure.supxlabel("; ".join(text for name, text in misjudged.absent if name == disease), fontsize=10)
    axes = np.atleast_2d(figure.subplots(len(examples), columns)) if examples else ()
    for row, one in zip(axes, examples, strict=True):
        row[0].imshow(one.image, cmap="gray")
        row[0].set_title(one.kind, fontsize=8)
        for place, name in enumerate(METHODS):
            likeness = one.likeness[name]
            about = "flat" if likeness is None else f"{likeness:+.2f}"
            for ax, values, title in (
                (row[1 + 2 * place], one.maps[name], name),
                (row[2 + 2 * place], one.random[name], f"random weights ({about})"),
            ):
                ax.imshow(one.image, cmap="gray")
                ax.imshow(values, cmap="inferno", alpha=0.55)
                ax.set_title(title, fontsize=8)
        for ax in row:
            ax.set_axis_off()
    return figure
