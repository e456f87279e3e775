"""The result of holding each site out: AUC at sites that trained nothing, and at those that did."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.provenance import Origin
from chestfed.results.grid import Cell, Grid, Line, auc_cell, number, rich_table, title_of
from chestfed.results.table import INTERVAL, Row, aucs_as_json, typed

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class FoldResult:
    """One held-out site: its own result, those of the sites that were trained on, and why diseases have none."""

    site: str
    images: int
    folder: str
    row: Row
    seen: dict[str, Row]
    reasons: dict[str, str]


@dataclass(frozen=True)
class HeldOutTable:
    """All folds."""

    title: str
    model: str
    protocol: str
    origin: Origin
    folds: tuple[FoldResult, ...]


def frame(table: HeldOutTable) -> pd.DataFrame:
    """One row per held-out site, site that is scored, and disease (and the mean)."""
    found = []
    for fold in table.folds:
        for scored, row in ((fold.site, fold.row), *fold.seen.items()):
            trained = scored != fold.site
            head = {"data": str(table.origin), "held_out": fold.site, "scored_on": scored}
            head["trained_on_it"] = str(trained).lower()
            for record in row.records():
                if not trained and record["reason"]:
                    record["reason"] = fold.reasons.get(record["disease"], record["reason"])
                found.append(head | record)
    return typed(pd.DataFrame(found))


def as_csv(table: HeldOutTable) -> str:
    """The frame; no AUC is an empty cell."""
    return frame(table).to_csv(index=False, lineterminator="\n")


def as_json(table: HeldOutTable) -> dict[str, Any]:
    """The table as plain data."""
    return {
        "title": table.title,
        **table.origin.keys(),
        "model": table.model,
        "protocol": table.protocol,
        "interval": INTERVAL,
        "folds": [
            {
                "held_out": fold.site,
                "images": fold.images,
                "trained_on": list(fold.row.clients),
                "run": fold.folder,
                **aucs_as_json(fold.row, fold.reasons),
                "sites_trained_on": {site: aucs_as_json(row) for site, row in fold.seen.items()},
            }
            for fold in table.folds
        ],
    }


def write(table: HeldOutTable, out: Path) -> Path:
    """Write `held_out.csv` and `held_out.json` into a folder named by the folds' runs; returns it."""
    names = "\n".join(fold.folder for fold in table.folds)
    digest = hashlib.blake2b(names.encode(), digest_size=6).hexdigest()
    folder = out / f"{table.origin.prefix}held-out-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "held_out.csv", as_csv(table))
    write_json(folder / "held_out.json", as_json(table))
    return folder


def metrics(table: HeldOutTable) -> dict[str, float | None]:
    """For MLflow: the mean AUC of each held-out site, and of its model on the sites that it was trained on."""
    held = {f"held_out_auc_mean_{fold.site}": fold.row.mean for fold in table.folds}
    seen = {
        f"trained_on_auc_mean_{fold.site}": mean_over_sites([r.mean for r in fold.seen.values()])
        for fold in table.folds
    }
    return held | seen


def mean_over_sites(aucs: Sequence[float | None]) -> float | None:
    """Mean of the AUCs that are defined; None if none is."""
    values = [auc for auc in aucs if auc is not None]
    return float(np.mean(values)) if values else None


def held_out_grid(table: HeldOutTable, digits: int = 3) -> Grid:
    """Two lines per held-out site: its own, and the mean over the sites that were trained on."""
    lines = []
    for fold in table.folds:
        cells = []
        for one, interval in fold.row.entries():
            cell = auc_cell(one.auc, interval, digits)
            cells.append(Cell(cell.text, (*cell.below, f"{one.positives}+ / {one.negatives}-")))
        mean = auc_cell(fold.row.mean, fold.row.mean_interval, digits)
        lines.append(Line(fold.site, (Cell(f"{fold.images:,}"), *cells, mean)))
        if fold.seen:
            rows = list(fold.seen.values())
            means = [mean_over_sites([row.diseases[j].auc for row in rows]) for j in range(len(fold.row.diseases))]
            means.append(mean_over_sites([row.mean for row in rows]))
            lines.append(Line("  sites trained on", (Cell(""), *(Cell(number(one)) for one in means)), "seen"))
    diseases = (Cell(title_of(one.disease)) for one in table.folds[0].row.diseases)
    return Grid("held-out", "", (Cell("held out"), Cell("images"), *diseases, Cell("mean")), tuple(lines))


def undefined(table: HeldOutTable) -> Iterator[str]:
    """The AUCs of held-out sites that are not defined, each with its reason."""
    for fold in table.folds:
        for one in fold.row.diseases:
            if one.auc is None:
                yield f"{fold.site}, {title_of(one.disease)}: {fold.reasons.get(one.disease, one.reason)}"


def render(table: HeldOutTable) -> RenderableType:
    """The table for a terminal."""
    from rich.console import Group
    from rich.text import Text

    caption = (
        f"AUC, {table.protocol}, {table.model}. In brackets: 95% patient-clustered bootstrap interval over patients "
        "of the held-out site. Below, of the same model: the mean of the AUCs on held-out patients of the sites it was "
        "trained on."
    )
    shown = rich_table(held_out_grid(table, 2), table.origin.mark + table.title, caption, dim=["seen"])
    nothing = "; ".join(undefined(table))
    note = [Text(f"Not defined (and left out of the mean): {nothing}")] if nothing else []
    return Group(shown, *note)
