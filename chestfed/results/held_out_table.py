"""The result of holding each site out: AUC at sites that trained nothing, and at those that did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.diseases import title_of
from chestfed.core.manifest import name_of_text
from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import as_csv, mean_of, tidy
from chestfed.evaluation.intervals.methods import METHODS
from chestfed.results.batch_norm import Statistics, describe_held_out
from chestfed.results.chance import describe_chance
from chestfed.results.grid import Cell, Grid, Line, auc_cell, number, rich_table, shown
from chestfed.results.table import Row, about_intervals


@dataclass(frozen=True)
class FoldResult:
    """One held-out site: its own result, and those of the sites that were trained on."""

    site: str
    images: int
    folder: str
    row: Row
    seen: dict[str, Row]


@dataclass(frozen=True)
class HeldOutTable:
    """All folds."""

    title: str
    model: str
    protocol: str
    origin: Origin
    folds: tuple[FoldResult, ...]
    statistics: Statistics | None = None  #: of batch normalization, at the sites trained on


def frame(table: HeldOutTable) -> pd.DataFrame:
    """One row per held-out site, site that is scored, and disease (and the mean)."""
    rows = (
        {"held_out": fold.site, "scored_on": scored, "trained_on_it": str(scored != fold.site).lower()}
        | one.record("auc")
        | {"interval_method": row.interval}
        for fold in table.folds
        for scored, row in ((fold.site, fold.row), *fold.seen.items())
        for one in row.aucs
    )
    names = ["held_out", "scored_on", "trained_on_it", "disease", "auc", "low", "high"]
    names += ["positives", "negatives", "missing", "reason", "interval_method"]
    return tidy(rows, names, {"data": str(table.origin)})


def as_json(table: HeldOutTable) -> dict[str, Any]:
    """The table as plain data."""
    return {
        "title": table.title,
        **table.origin.keys(),
        "model": table.model,
        "protocol": table.protocol,
        "batch_norm": table.statistics,
        **about_intervals(table.folds[-1].row),
        "folds": [
            {
                "held_out": fold.site,
                "images": fold.images,
                "trained_on": list(fold.row.clients),
                "run": fold.folder,
                **fold.row.as_json(),
                "sites_trained_on": {site: row.as_json() for site, row in fold.seen.items()},
            }
            for fold in table.folds
        ],
    }


def write(table: HeldOutTable, out: Path) -> Path:
    """Write `held_out.csv` and `held_out.json` into a folder named by the folds' runs; returns it."""
    name = name_of_text("\n".join(fold.folder for fold in table.folds))
    folder = out / f"{table.origin.prefix}held-out-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "held_out.csv", as_csv(frame(table)))
    write_json(folder / "held_out.json", as_json(table))
    return folder


def metrics(table: HeldOutTable) -> dict[str, float | None]:
    """For MLflow: the mean AUC of each held-out site, and of its model on the sites that it was trained on."""
    held = {f"held_out_auc_mean_{fold.site}": fold.row.mean.value for fold in table.folds}
    seen = {f"trained_on_auc_mean_{fold.site}": (_of_seen(fold) or [None])[-1] for fold in table.folds}
    return held | seen


def held_out_grid(table: HeldOutTable, digits: int = 3) -> Grid:
    """Two lines per held-out site: its own, and the mean over the sites that were trained on."""
    lines = []
    for fold in table.folds:
        cells = [auc_cell(one, digits) for one in shown(fold.row.aucs)]
        counts = [(f"{one.positives}+ / {one.negatives}-",) for one in fold.row.diseases] + [()]
        cells = [Cell(cell.text, (*cell.below, *its)) for cell, its in zip(cells, counts, strict=False)]
        lines.append(Line(fold.site, (Cell(f"{fold.images:,}"), *cells)))
        if fold.seen:
            seen = (Cell(number(one)) for one in shown(_of_seen(fold)))
            lines.append(Line("  sites trained on", (Cell(""), *seen), "seen"))
    diseases = (Cell(title_of(one.disease)) for one in shown(table.folds[0].row.aucs))
    return Grid("held-out", "", (Cell("held out"), Cell("images"), *diseases), tuple(lines))


def render(table: HeldOutTable) -> RenderableType:
    """The table for a terminal."""
    fold = table.folds[-1].row
    caption = (
        f"AUC, {table.protocol}, {table.model}. In brackets: {METHODS[fold.interval].about} ({fold.interval}), over "
        f"patients of the held-out site. Below, of the same model: the mean of the AUCs on held-out patients of the "
        f"sites it was trained on. {describe_held_out(table.statistics)}"
    )
    aucs = rich_table(held_out_grid(table, 2), table.origin.mark + table.title, caption, dim=["seen"])
    nothing = "; ".join(f"{fold.site}, {text}" for fold in table.folds for text in fold.row.undefined)
    notes = [Text(f"Not defined (and left out of the mean): {nothing}")] if nothing else []
    seen = [(f"{fold.site} held out, at {site}", row.aucs) for fold in table.folds for site, row in fold.seen.items()]
    if warning := describe_chance(seen):
        notes.append(Text(warning))
    return Group(aucs, *notes)


def _of_seen(fold: FoldResult) -> list[float | None]:
    """The mean AUC over the sites that were trained on, of each disease, and at last the mean of these."""
    every = zip(*(row.diseases for row in fold.seen.values()), strict=True)
    diseases = [mean_of(estimate.value for estimate in estimates) for estimates in every]
    return [*diseases, mean_of(diseases)] if diseases else []
