"""What holding each site out comes to: AUC where nothing was trained, and where it was, as CSV, JSON and print."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chestfed.core.checkpoint import write_json, write_text
from chestfed.core.diseases import TITLES
from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import DiseaseAuc
from chestfed.evaluation.intervals.bootstrap import Interval
from chestfed.results.table import Row

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = ("data", "held_out", "scored_on", "trained_on_it", "disease", "auc", "low", "high")
_COUNTS = ("positives", "negatives", "missing", "reason")


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


def as_csv(table: HeldOutTable) -> str:
    """One line per held-out site, site that is scored, and disease (and the mean); no AUC is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_COLUMNS, *_COUNTS])
    for fold in table.folds:
        for scored, row in ((fold.site, fold.row), *fold.seen.items()):
            trained = scored != fold.site
            head = [str(table.origin), fold.site, scored, str(trained).lower()]
            for result, interval in zip(row.diseases, row.intervals, strict=True):
                counts = [result.positives, result.negatives, result.missing, _reason(fold, result, trained=trained)]
                writer.writerow([*head, result.disease, _cell(result.auc), *_cells(interval), *counts])
            writer.writerow([*head, "mean", _cell(row.mean), *_cells(row.mean_interval), "", "", "", ""])
    return out.getvalue()


def as_json(table: HeldOutTable) -> dict[str, Any]:
    """The table as plain data."""
    return {
        "title": table.title,
        **table.origin.keys(),
        "model": table.model,
        "protocol": table.protocol,
        "interval": "95%, patient-clustered bootstrap, Student's t on the logit scale",
        "folds": [
            {
                "held_out": fold.site,
                "images": fold.images,
                "trained_on": list(fold.row.clients),
                "run": fold.folder,
                **_plain(fold, fold.row, trained=False),
                "sites_trained_on": {site: _plain(fold, row, trained=True) for site, row in fold.seen.items()},
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
    """Mean of those that there are; None if there is none."""
    values = [auc for auc in aucs if auc is not None]
    return float(np.mean(values)) if values else None


def render(table: HeldOutTable) -> RenderableType:
    """The table for a terminal: two rows per held-out site, its own and the mean over the sites trained on."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=f"{table.origin.mark}{table.title}", title_justify="left", caption_justify="left")
    shown.caption = (
        f"AUC, {table.protocol}, {table.model}. In brackets: 95% patient-clustered bootstrap interval over patients "
        "of the held-out site. Below, of the same model: the mean of the AUCs on patients of the sites that it was "
        "trained on, who trained nothing."
    )
    shown.add_column("held out", overflow="fold")
    shown.add_column("images", justify="right")
    for result in table.folds[0].row.diseases:
        shown.add_column(TITLES.get(result.disease, result.disease), justify="right")
    shown.add_column("mean", justify="right", style="bold")
    for fold in table.folds:
        cells = [
            _shown(result, interval) for result, interval in zip(fold.row.diseases, fold.row.intervals, strict=True)
        ]
        shown.add_row(fold.site, f"{fold.images:,}", *cells, _number(fold.row.mean, fold.row.mean_interval))
        if fold.seen:
            rows = list(fold.seen.values())
            means = [mean_over_sites([row.diseases[j].auc for row in rows]) for j in range(len(fold.row.diseases))]
            cells = [_number(mean, None) for mean in (*means, mean_over_sites([row.mean for row in rows]))]
            shown.add_row("  sites trained on", "", *cells, style="dim", end_section=True)
    parts: list[RenderableType] = [shown]
    undefined = [
        f"{fold.site}, {TITLES.get(result.disease, result.disease)}: {_reason(fold, result, trained=False)}"
        for fold in table.folds
        for result in fold.row.diseases
        if result.auc is None
    ]
    if undefined:
        parts.append(Text("Not defined (and left out of the mean): " + "; ".join(undefined)))
    return Group(*parts)


def _plain(fold: FoldResult, row: Row, *, trained: bool) -> dict[str, Any]:
    diseases = {
        result.disease: {
            "auc": result.auc,
            "interval": _pair(interval),
            "positives": result.positives,
            "negatives": result.negatives,
            "missing": result.missing,
            **({"reason": _reason(fold, result, trained=trained)} if result.auc is None else {}),
        }
        for result, interval in zip(row.diseases, row.intervals, strict=True)
    }
    return {"mean_auc": row.mean, "mean_interval": _pair(row.mean_interval), "diseases": diseases}


def _reason(fold: FoldResult, result: DiseaseAuc, *, trained: bool) -> str:
    """Why there is no AUC; empty if there is one."""
    if result.auc is not None:
        return ""
    return result.reason if trained else fold.reasons.get(result.disease, result.reason)


def _shown(result: DiseaseAuc, interval: Interval | None) -> str:
    return f"{_number(result.auc, interval)}\n{result.positives}+ / {result.negatives}-"


def _number(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f}\n[{interval.low:.2f}, {interval.high:.2f}]"


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)


def _cells(interval: Interval | None) -> list[str]:
    return ["", ""] if interval is None else [repr(interval.low), repr(interval.high)]


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
