"""Threshold and probabilities of each held-out site's model: as they were where it was trained, and recalibrated.

The source are the held-out patients of all sites that were trained on, together; see `transfer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import RenderableType

from chestfed.core.checkpoint import write_text
from chestfed.core.console import text_table
from chestfed.core.diseases import format_title
from chestfed.leaves.thresholds.transfer import COLUMNS, judge_transfer
from chestfed.results.evaluation.estimates import as_csv
from chestfed.results.evaluation.labeled import Column
from chestfed.results.evaluation.metrics import SHARE
from chestfed.results.tables.predictions import load_predictions
from chestfed.results.tables.run_folder import HOSPITALS, RunFolder
from chestfed.studies.designs.design import Done, TableSpec

#: Random choices of the images for a recalibration.
DRAWS = 20
_NUMBERS = ("sensitivity", "specificity", "brier", "ece")


def judge_folds(runs: Mapping[str, RunFolder], seen: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """One row per held-out site, disease, way and number of images: the columns of `judge_transfer`.

    `seen` are the sites that each run was trained on. A disease without both classes on either side has no row; the
    frame is empty where scores stayed at a hospital, or no such site has held-out patients.
    """
    parts = [
        judge_transfer(source, target, draws=DRAWS).assign(held_out=site, disease=target.disease)
        for site, run in runs.items()
        if not run.scores_stay and seen[site]
        for source, target in _pair_columns(run, seen[site])
    ]
    return pd.concat(parts, ignore_index=True)[["held_out", "disease", *COLUMNS]] if parts else pd.DataFrame()


def add_table(done: Sequence[Done], folder: Path) -> RenderableType | None:
    """Write `transfer.csv` of the studies of all held-out sites and return its table; None if nothing can be judged."""
    sites = [one.variant.values["site"] for one in done]
    runs = {site: RunFolder(one.result.folder) for site, one in zip(sites, done, strict=True)}
    frame = judge_folds(runs, {site: list(one.result.seen) for site, one in zip(sites, done, strict=True)})
    if frame.empty:
        return None
    write_text(folder / "transfer.csv", as_csv(frame))
    return render_transfer(frame)


TRANSFER = TableSpec("transfer", "held_out", add_table)


def render_transfer(frame: pd.DataFrame) -> RenderableType:
    """Means over the diseases, a line per held-out site and way."""
    means = frame.groupby(["held_out", "images"], sort=False)[[*_NUMBERS]].mean()
    counts = frame.groupby(["held_out", "images"], sort=False)["disease"].agg(list)
    rows = [
        [
            str(site),
            "as transferred" if not images else f"recalibrated on {images}",
            str(len(counts[site, images])),
            *(f"{value:.3f}" for value in values),
        ]
        for (site, images), values in zip(means.index, means.to_numpy(), strict=True)
    ]
    left_out = {format_title(name) for name in frame["disease"]}
    caption = (
        f"Means over the diseases that allow it, of {', '.join(sorted(left_out))}. Threshold: specificity {SHARE} on "
        f"held-out patients of the sites trained on, or on so many images of the held-out site, whose other images "
        f"are judged; {DRAWS} random choices"
    )
    heads = ("sensitivity", "specificity", "Brier score", "calibration error")
    title = "Threshold and probabilities at a new hospital"
    return text_table(title, ("held out", "threshold and probabilities"), ("diseases", *heads), rows, caption)


def _pair_columns(run: RunFolder, seen: Sequence[str]) -> list[tuple[Column, Column]]:
    """Per disease the images of the sites trained on and of the held-out one, where both have both classes."""
    k = run.ks[-1]
    sources = [load_predictions(run.path, k, f"{HOSPITALS}/{site}") for site in seen]
    target = load_predictions(run.path, k)
    pairs = []
    for disease in target.diseases:
        parts = [source.scored([disease])[0].columns()[0] for source in sources]
        patients = [np.char.add(f"{site} ", part.patient.astype(str)) for site, part in zip(seen, parts, strict=True)]
        scores, positive = (np.concatenate([getattr(part, name) for part in parts]) for name in ("score", "positive"))
        source = Column(disease, scores, positive, np.concatenate(patients), sum(part.missing for part in parts))
        judged = target.scored([disease])[0].columns()[0]
        if not source.reason and not judged.reason:
            pairs.append((source, judged))
    return pairs
