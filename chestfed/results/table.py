"""What a study comes to: AUCs per K and disease, as CSV, JSON and a printed table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from chestfed.core.diseases import TITLES
from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import DiseaseAuc, mean_auc
from chestfed.evaluation.intervals.auc_intervals import auc_intervals
from chestfed.evaluation.intervals.interval import Interval

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Seed of the intervals: fixed, so that the same scores always get the same interval.
BOOTSTRAP_SEED = 0

_PAPER_TABLES = {
    "densenet121": "table4_chexpert_densenet121.csv",
    "densenet161": "table5_chexpert_densenet161.csv",
}


@dataclass(frozen=True)
class Row:
    """The result for one K."""

    k: int
    clients: tuple[str, ...]
    diseases: tuple[DiseaseAuc, ...]
    intervals: tuple[Interval | None, ...]
    mean_interval: Interval | None

    @property
    def mean(self) -> float | None:
        """Mean AUC over the diseases that have one."""
        return mean_auc(self.diseases)


@dataclass(frozen=True)
class PublishedRow:
    """What a paper printed for the largest K: disease or `mean` -> AUC."""

    source: str
    auc: dict[str, float]


@dataclass(frozen=True)
class StudyTable:
    """All rows, and what they are over."""

    title: str
    model: str
    protocol: str
    images: int
    patients: int
    origin: Origin
    rows: tuple[Row, ...]
    paper: tuple[dict[str, float], ...] | None
    published: PublishedRow | None = None


def make_row(
    k: int,
    clients: Sequence[str],
    results: Sequence[DiseaseAuc],
    scores: np.ndarray,
    labels: np.ndarray,
    patients: np.ndarray,
    resamples: int,
) -> Row:
    """A row with its 95% patient-clustered bootstrap intervals."""
    found = auc_intervals(results, scores, labels, patients, "bootstrap", resamples, BOOTSTRAP_SEED)
    intervals = tuple(bounds.interval for bounds in found.diseases)
    return Row(k, tuple(clients), tuple(results), intervals, found.mean.interval)


def paper_table(model: str) -> tuple[dict[str, float], ...]:
    """The source paper's Table 4 (DenseNet121) or 5 (DenseNet161): AUC on the real CheXpert validation set."""
    text = resources.files("chestfed.results").joinpath("paper", _PAPER_TABLES[model]).read_text(encoding="utf-8")
    return tuple({name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(text)))


def as_json(table: StudyTable) -> dict[str, Any]:
    """The table as plain data; every AUC with n+, n- and its interval."""
    return {
        "title": table.title,
        **table.origin.keys(),
        "model": table.model,
        "protocol": table.protocol,
        "images": table.images,
        "patients": table.patients,
        "interval": "95%, patient-clustered bootstrap, Student's t on the logit scale",
        "rows": [
            {
                "k": row.k,
                "clients": list(row.clients),
                "mean_auc": row.mean,
                "mean_interval": _pair(row.mean_interval),
                "diseases": {
                    result.disease: {
                        "auc": result.auc,
                        "interval": _pair(interval),
                        "positives": result.positives,
                        "negatives": result.negatives,
                        "missing": result.missing,
                        **({"reason": result.reason} if result.reason else {}),
                    }
                    for result, interval in zip(row.diseases, row.intervals, strict=True)
                },
            }
            for row in table.rows
        ],
        "paper": None if table.paper is None else list(table.paper),
        "published": None if table.published is None else vars(table.published),
    }


def as_csv(table: StudyTable) -> str:
    """One line per K and disease (and the mean), full precision; an undefined AUC is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = [
        "data",
        "k",
        "added",
        "disease",
        "auc",
        "low",
        "high",
        "positives",
        "negatives",
        "missing",
        "paper_auc",
    ]
    writer.writerow(header)
    for row in table.rows:
        start = [str(table.origin), row.k, row.clients[-1]]
        for result, interval in zip(row.diseases, row.intervals, strict=True):
            paper = _paper_value(table, row.k, result.disease)
            counts = [result.positives, result.negatives, result.missing]
            writer.writerow([*start, result.disease, _cell(result.auc), *_cells(interval), *counts, _cell(paper)])
        paper = _paper_value(table, row.k, "average")
        writer.writerow([*start, "mean", _cell(row.mean), *_cells(row.mean_interval), "", "", "", _cell(paper)])
    return out.getvalue()


def render(table: StudyTable) -> RenderableType:
    """The table for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    caption = (
        f"AUC on {table.images} images of {table.patients} patients ({table.protocol}), {table.model}. "
        "In brackets: 95% patient-clustered bootstrap interval over the test patients."
    )
    shown = Table(title=_title(table), caption=caption, caption_justify="left", title_justify="left")
    shown.add_column("K")
    shown.add_column("added", overflow="fold")
    for result in table.rows[0].diseases:
        name = TITLES.get(result.disease, result.disease)
        shown.add_column(f"{name}\n{result.positives}+ / {result.negatives}-", justify="right")
    shown.add_column("mean", justify="right", style="bold")
    for row in table.rows:
        cells = [_shown(r.auc, i) for r, i in zip(row.diseases, row.intervals, strict=True)]
        shown.add_row(str(row.k), row.clients[-1], *cells, _shown(row.mean, row.mean_interval))
        if table.paper is not None or (table.published is not None and row is table.rows[-1]):
            names = [*(result.disease for result in row.diseases), "average"]
            values = [_paper_value(table, row.k, name) for name in names]
            shown.add_row("", "paper", *("" if v is None else f"{v:.4f}" for v in values), style="dim")
    parts: list[RenderableType] = [shown]
    if table.published is not None:
        parts.append(Text(f"paper: {table.published.source}"))
    undefined = {
        f"{TITLES.get(r.disease, r.disease)}: {r.reason}" for row in table.rows for r in row.diseases if r.reason
    }
    if undefined:
        parts.append(Text("Not defined (and left out of the mean): " + "; ".join(sorted(undefined))))
    if table.origin is Origin.SYNTHETIC:
        parts.append(_reference_for_synthetic())
    return Group(*parts)


def _title(table: StudyTable) -> str:
    return table.origin.mark + table.title


def _reference_for_synthetic() -> RenderableType:
    from rich.table import Table

    rows = paper_table("densenet121")
    caption = "For orientation only: another network on real patients. The table above is about phantoms."
    shown = Table(
        title="Published: the source paper's Table 4, DenseNet121 on the real CheXpert validation set",
        caption=caption,
        caption_justify="left",
        title_justify="left",
        style="dim",
    )
    shown.add_column("K")
    for name in rows[0]:
        if name != "sources":
            shown.add_column("mean" if name == "average" else TITLES[name], justify="right")
    for row in rows:
        shown.add_row(str(int(row["sources"])), *(f"{row[name]:.4f}" for name in row if name != "sources"))
    return shown


def _paper_value(table: StudyTable, k: int, column: str) -> float | None:
    if table.published is not None and k == table.rows[-1].k:
        theirs = table.published.auc
        only = len(table.rows[-1].diseases) == 1
        return theirs.get("mean" if only or column == "average" else column)
    for row in table.paper or ():
        if row["sources"] == k:
            return row.get(column)
    return None


def _shown(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f}\n[{interval.low:.2f}, {interval.high:.2f}]"


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)


def _cells(interval: Interval | None) -> list[str]:
    return ["", ""] if interval is None else [repr(interval.low), repr(interval.high)]


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
