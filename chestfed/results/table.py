"""What a study comes to: AUCs per K and disease, as one frame, CSV, JSON and a printed table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.provenance import Origin
from chestfed.evaluation.auc import DiseaseAuc, mean_auc
from chestfed.evaluation.intervals.auc_intervals import auc_intervals
from chestfed.evaluation.intervals.interval import Interval
from chestfed.results.grid import Cell, Grid, Line, auc_cell, disease_column, rich_table, title_of

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Seed of the intervals: fixed, so that the same scores always get the same interval.
BOOTSTRAP_SEED = 0
INTERVAL = "95%, patient-clustered bootstrap, Student's t on the logit scale"

#: Columns of frames that hold counts and numbers.
_COUNTS = ("n", "positives", "negatives", "missing")
_NUMBERS = (
    *("auc", "low", "high", "paper_auc", "auc_reference", "auc_model", "difference"),
    *("p", "p_holm", "delong_p", "delong_p_holm", "seed_sd_reference", "seed_sd_model"),
)
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

    def entries(self) -> Iterator[tuple[DiseaseAuc, Interval | None]]:
        """Each disease with its interval."""
        return zip(self.diseases, self.intervals, strict=True)

    def records(self) -> list[dict[str, Any]]:
        """One per disease and one for `mean`: AUC, ends of the interval, counts, and why there is no AUC."""
        found = [
            {"disease": one.disease, "auc": one.auc, **_ends(interval)}
            | {"positives": one.positives, "negatives": one.negatives, "missing": one.missing, "reason": one.reason}
            for one, interval in self.entries()
        ]
        nothing = {"positives": None, "negatives": None, "missing": None, "reason": ""}
        return [*found, {"disease": "mean", "auc": self.mean, **_ends(self.mean_interval), **nothing}]


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


def row_to_plain(row: Row) -> dict[str, Any]:
    """What `result.json` holds of a row."""
    return {
        "k": row.k,
        "clients": list(row.clients),
        "diseases": [vars(result) for result in row.diseases],
        "intervals": [as_pair(interval) for interval in row.intervals],
        "mean_interval": as_pair(row.mean_interval),
    }


def row_from_plain(plain: Mapping[str, Any]) -> Row:
    """The row again."""
    return Row(
        plain["k"],
        tuple(plain["clients"]),
        tuple(DiseaseAuc(**result) for result in plain["diseases"]),
        tuple(map(from_pair, plain["intervals"])),
        from_pair(plain["mean_interval"]),
    )


def paper_table(model: str) -> tuple[dict[str, float], ...]:
    """The source paper's Table 4 (DenseNet121) or 5 (DenseNet161): AUC on the real CheXpert validation set."""
    text = resources.files("chestfed.results").joinpath("paper", _PAPER_TABLES[model]).read_text(encoding="utf-8")
    return tuple({name: float(value) for name, value in row.items()} for row in csv.DictReader(io.StringIO(text)))


def paper_row(table: StudyTable, k: int) -> dict[str, float]:
    """The paper's AUCs for this K, by disease and `mean`; empty without."""
    if table.published is not None and k == table.rows[-1].k:
        only = [result.disease for result in table.rows[-1].diseases]
        theirs = table.published.auc
        return theirs | ({only[0]: theirs["mean"]} if len(only) == 1 and "mean" in theirs else {})
    found = next((row for row in table.paper or () if row["sources"] == k), {})
    return {"mean" if name == "average" else name: value for name, value in found.items()}


def paper_source(table: StudyTable) -> str:
    """Where the paper's figures are from; empty without."""
    if table.published is not None:
        return table.published.source
    return "the source paper's Table 4 or 5, on the real CheXpert validation set" if table.paper else ""


def undefined(table: StudyTable) -> list[str]:
    """The diseases without an AUC, each with its reason."""
    return sorted(
        {f"{title_of(one.disease)}: {one.reason}" for row in table.rows for one in row.diseases if one.reason}
    )


def frame(table: StudyTable) -> pd.DataFrame:
    """One row per K and disease (and the mean), full precision: the columns of `table.csv`."""
    found = [
        {"data": str(table.origin), "k": row.k, "added": row.clients[-1]}
        | {name: value for name, value in record.items() if name != "reason"}
        | {"paper_auc": paper_row(table, row.k).get(record["disease"])}
        for row in table.rows
        for record in row.records()
    ]
    return typed(pd.DataFrame(found))


def typed(found: pd.DataFrame) -> pd.DataFrame:
    """Counts as whole numbers also where the mean has none, and missing numbers as NaN."""
    kinds = dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_NUMBERS, "float64")
    return found.astype({name: kind for name, kind in kinds.items() if name in found})


def as_csv(table: StudyTable) -> str:
    """The frame; an undefined AUC is an empty cell."""
    return frame(table).to_csv(index=False, lineterminator="\n")


def as_json(table: StudyTable) -> dict[str, Any]:
    """The table as plain data; every AUC with n+, n- and its interval."""
    return {
        "title": table.title,
        **table.origin.keys(),
        "model": table.model,
        "protocol": table.protocol,
        "images": table.images,
        "patients": table.patients,
        "interval": INTERVAL,
        "rows": [{"k": row.k, "clients": list(row.clients), **aucs_as_json(row)} for row in table.rows],
        "paper": None if table.paper is None else list(table.paper),
        "published": None if table.published is None else vars(table.published),
    }


def aucs_as_json(row: Row, reasons: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A row's AUCs as plain data; `reasons` stand for those of diseases without an AUC."""
    diseases = {
        one.disease: {
            "auc": one.auc,
            "interval": as_pair(interval),
            "positives": one.positives,
            "negatives": one.negatives,
            "missing": one.missing,
            **({"reason": (reasons or {}).get(one.disease, one.reason)} if one.auc is None else {}),
        }
        for one, interval in row.entries()
    }
    return {"mean_auc": row.mean, "mean_interval": as_pair(row.mean_interval), "diseases": diseases}


def auc_grid(table: StudyTable, caption: str = "", digits: int = 3) -> Grid:
    """A line per K, below it the paper's where it has one; intervals with `digits` decimals."""
    lines = []
    for row in table.rows:
        aucs = [auc_cell(one.auc, interval, digits) for one, interval in row.entries()]
        mean = auc_cell(row.mean, row.mean_interval, digits)
        lines.append(Line(f"K={row.k}", (Cell(row.clients[-1]), *aucs, mean)))
        if theirs := paper_row(table, row.k):
            values = [theirs.get(name) for name in (*(one.disease for one in row.diseases), "mean")]
            cells = (Cell("" if value is None else f"{value:.4f}") for value in values)
            lines.append(Line(f"paper, K={row.k}", (Cell(""), *cells), "paper"))
    return Grid("auc", caption, (Cell("K"), Cell("added"), *disease_columns(table), Cell("mean")), tuple(lines))


def disease_columns(table: StudyTable) -> list[Cell]:
    """The headings of the diseases' columns."""
    return [disease_column(one.disease, one.positives, one.negatives) for one in table.rows[0].diseases]


def orientation_grid() -> Grid:
    """The published table as it was printed, to be read beside a synthetic study."""
    rows = paper_table("densenet121")
    names = [name for name in rows[0] if name != "sources"]
    return Grid(
        "orientation",
        "Published, for orientation only: the source paper's Table 4, DenseNet121 on the real CheXpert validation set. "
        "Another network on real patients; do not compare it with the table above, which is about phantoms",
        (Cell("K"), *(Cell("mean" if name == "average" else title_of(name)) for name in names)),
        tuple(Line(f"K={row['sources']:.0f}", tuple(Cell(f"{row[name]:.4f}") for name in names)) for row in rows),
    )


def render(table: StudyTable) -> RenderableType:
    """The table for a terminal."""
    from rich.console import Group
    from rich.text import Text

    caption = (
        f"AUC on {table.images} images of {table.patients} patients ({table.protocol}), {table.model}. "
        "In brackets: 95% patient-clustered bootstrap interval over the test patients."
    )
    shown = rich_table(auc_grid(table, digits=2), table.origin.mark + table.title, caption, dim=["paper"])
    parts: list[RenderableType] = [shown]
    if source := paper_source(table):
        parts.append(Text(f"paper: {source}"))
    if nothing := undefined(table):
        parts.append(Text("Not defined (and left out of the mean): " + "; ".join(nothing)))
    if table.origin is Origin.SYNTHETIC:
        grid = orientation_grid()
        published = rich_table(grid, grid.caption)
        published.style = "dim"
        parts.append(published)
    return Group(*parts)


def as_pair(interval: Interval | None) -> list[float] | None:
    """The ends of an interval as plain data."""
    return None if interval is None else [interval.low, interval.high]


def from_pair(plain: Sequence[float] | None) -> Interval | None:
    """The interval again."""
    return None if plain is None else Interval(*plain)


def _ends(interval: Interval | None) -> dict[str, float | None]:
    return {"low": None, "high": None} if interval is None else {"low": interval.low, "high": interval.high}
