"""What a study comes to: AUCs per K and disease, as one frame, CSV, JSON and a printed table."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.diseases import title_of
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.evaluation.estimates import Estimate, auc_estimates, mean_of, tidy
from chestfed.evaluation.intervals import DEFAULT
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.evaluation.labeled import Scored
from chestfed.results.batch_norm import Statistics, describe_statistics
from chestfed.results.grid import Cell, Grid, Line, auc_cell, disease_columns, rich_table, shown

#: Of intervals, unless another number is asked for.
RESAMPLES: Final = 2000
_COUNTS = ("positives", "negatives", "missing")
_PAPER_TABLES = {"densenet121": "table4_chexpert_densenet121.csv", "densenet161": "table5_chexpert_densenet161.csv"}


@dataclass(frozen=True)
class Row:
    """The result for one K, or of one model on one site: the AUC of each disease, and at last their mean.

    `interval` and `resamples` are the method of the intervals.
    `scores_stay`: the scores stayed at a hospital, so that there are no predictions beside the result.
    """

    k: int
    clients: tuple[str, ...]
    aucs: tuple[Estimate, ...]
    interval: MethodName = DEFAULT
    scores_stay: bool = False
    resamples: int = RESAMPLES

    @classmethod
    def of_scores(
        cls, k: int, clients: Sequence[str], found: Scored, resamples: int, interval: MethodName = DEFAULT
    ) -> Row:
        """With 95% intervals, whose seed is fixed: the same scores always get the same."""
        how = Intervals(interval, resamples)
        return cls(k, tuple(clients), auc_estimates(found, how), how.method, resamples=resamples)

    @property
    def diseases(self) -> tuple[Estimate, ...]:
        """All but the mean."""
        return self.aucs[:-1]

    @property
    def mean(self) -> Estimate:
        """Over the diseases that have an AUC."""
        return self.aucs[-1]

    def with_intervals(self, how: Intervals, scored: Scored | None, place: object) -> Row:
        """With intervals of this method; of another than the row has they are computed anew, from the scores."""
        if self.interval == how.method:
            return self
        if scored is None:
            raise ConfigError(
                f"{place}: the scores stayed at the hospital, which computed intervals by {self.interval}; for others "
                "set evaluation.interval in the pipeline and run it again"
            )
        return Row.of_scores(self.k, self.clients, scored, how.resamples, how.method)

    @property
    def undefined(self) -> list[str]:
        """The diseases without an AUC, each with its reason."""
        return [f"{title_of(one.disease)}: {one.reason}" for one in self.diseases if one.value is None]

    @property
    def left_out(self) -> list[str]:
        """How many hospitals do not count in the AUC of each disease, because they have not both classes."""
        counts = [(one, one.left_out + (one.hospitals or 0)) for one in self.diseases if one.left_out]
        return [f"{title_of(one.disease)}: {one.left_out} of {total} hospitals" for one, total in counts]

    def with_reasons(self, reasons: Mapping[str, str]) -> Row:
        """Say of diseases without an AUC why that is."""
        aucs = (
            replace(one, reason=reasons.get(one.disease, one.reason)) if one.value is None else one for one in self.aucs
        )
        return replace(self, aucs=tuple(aucs))

    def to_plain(self) -> dict[str, Any]:
        """What `result.json` holds."""
        return {
            "k": self.k,
            "clients": list(self.clients),
            "diseases": [
                {"disease": one.disease, "auc": one.value, **one.counts, "reason": one.reason, **_hospitals(one)}
                for one in self.diseases
            ],
            "mean_hospitals": _hospitals(self.mean),
            "intervals": [one.interval for one in self.diseases],
            "mean_interval": self.mean.interval,
            "mean_reason": self.mean.reason,
            "interval_method": self.interval,
            "resamples": self.resamples,
        } | ({"scores_stay": True} if self.scores_stay else {})

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Row:
        """The row again."""
        counts = (*_COUNTS, "hospitals", "left_out")
        each = [
            Estimate(
                one["disease"],
                one["auc"],
                None if pair is None else Interval(*pair),
                **{name: one[name] for name in counts if name in one},
                reason=one["reason"],
            )
            for one, pair in zip(plain["diseases"], plain["intervals"], strict=True)
        ]
        mean = mean_of(one.value for one in each)
        pair = plain["mean_interval"]
        interval = None if pair is None else Interval(*pair)
        of_mean = Estimate("mean", mean, interval, **plain["mean_hospitals"], reason=plain["mean_reason"])
        stay = bool(plain.get("scores_stay", False))
        return cls(
            plain["k"], tuple(plain["clients"]), (*each, of_mean), plain["interval_method"], stay, plain["resamples"]
        )

    def as_json(self) -> dict[str, Any]:
        """For readers: the AUCs by disease."""
        diseases = {
            one.disease: {"auc": one.value, "interval": one.interval, **one.counts, **_hospitals(one)}
            | ({"reason": one.reason} if one.reason else {})
            for one in self.diseases
        }
        return {"mean_auc": self.mean.value, "mean_interval": self.mean.interval, "diseases": diseases}


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
    statistics: Statistics | None = None  #: of batch normalization, with which the rows were scored


def about_intervals(row: Row) -> dict[str, Any]:
    """For JSON: how its intervals were made, by which references, and what is wrong with that here."""
    method = METHODS[row.interval]
    about = {"interval": method.about, "interval_references": list(method.references)}
    return {"interval_method": row.interval, **about}


def paper_table(model: str) -> tuple[dict[str, float], ...]:
    """The source paper's Table 4 (DenseNet121) or 5 (DenseNet161): AUC on the real CheXpert validation set."""
    with resources.files("chestfed.results").joinpath("paper", _PAPER_TABLES[model]).open() as file:
        return tuple({name: float(value) for name, value in row.items()} for row in csv.DictReader(file))


def paper_row(table: StudyTable, k: int) -> dict[str, float]:
    """The paper's AUCs for this K, by disease and `mean`; empty without."""
    if table.published is not None and k == table.rows[-1].k:
        only, theirs = table.rows[-1].diseases, table.published.auc
        return theirs | ({only[0].disease: theirs["mean"]} if len(only) == 1 and "mean" in theirs else {})
    found = next((row for row in table.paper or () if row["sources"] == k), {})
    return {"mean" if name == "average" else name: value for name, value in found.items()}


def paper_source(table: StudyTable) -> str:
    """Where the paper's figures are from; empty without."""
    if table.published is not None:
        return table.published.source
    return "the source paper's Table 4 or 5, on the real CheXpert validation set" if table.paper else ""


def undefined(table: StudyTable) -> list[str]:
    """The diseases without an AUC, each with its reason."""
    return sorted({text for row in table.rows for text in row.undefined})


def left_out(table: StudyTable) -> list[str]:
    """How many hospitals do not count in the AUC of each disease, because they have not both classes."""
    return sorted({text for row in table.rows for text in row.left_out})


def frame(table: StudyTable) -> pd.DataFrame:
    """One row per K and disease (and the mean), full precision: the columns of `table.csv`."""
    rows = (
        {
            "k": row.k,
            "added": row.clients[-1],
            **one.record("auc"),
            "paper_auc": paper_row(table, row.k).get(one.disease),
            "protocol": table.protocol,
            "interval_method": row.interval,
            "interval_reference": METHODS[row.interval].references[0],
        }
        for row in table.rows
        for one in row.aucs
    )
    columns = ["k", "added", "disease", "auc", "low", "high", *_COUNTS, "hospitals", "paper_auc", "protocol"]
    return tidy(rows, [*columns, "interval_method", "interval_reference"], {"data": str(table.origin)})


def as_json(table: StudyTable) -> dict[str, Any]:
    """The table as plain data; every AUC with n+, n- and its interval."""
    return {
        "title": table.title,
        **table.origin.keys(),
        "model": table.model,
        "protocol": table.protocol,
        "images": table.images,
        "patients": table.patients,
        "batch_norm": table.statistics,
        **about_intervals(table.rows[-1]),
        "rows": [{"k": row.k, "clients": list(row.clients), **row.as_json()} for row in table.rows],
        "paper": None if table.paper is None else list(table.paper),
        "published": None if table.published is None else vars(table.published),
    }


def auc_grid(table: StudyTable, caption: str = "", digits: int = 3) -> Grid:
    """A line per K, below it the paper's where it has one; intervals with `digits` decimals."""
    lines = []
    for row in table.rows:
        lines.append(Line(f"K={row.k}", (Cell(row.clients[-1]), *(auc_cell(one, digits) for one in shown(row.aucs)))))
        if theirs := paper_row(table, row.k):
            values = [theirs.get(one.disease) for one in shown(row.aucs)]
            cells = (Cell("" if value is None else f"{value:.4f}") for value in values)
            lines.append(Line(f"paper, K={row.k}", (Cell(""), *cells), "paper"))
    columns = (Cell("K"), Cell("added"), *disease_columns(shown(table.rows[0].aucs)))
    return Grid("auc", caption, columns, tuple(lines))


def orientation_grid() -> Grid:
    """The published table as it was printed, to be read beside a synthetic study."""
    rows = paper_table("densenet121")
    names = [name for name in rows[0] if name != "sources"]
    return Grid(
        "orientation",
        "Published, for orientation only: the source paper's Table 4, DenseNet121 on the real CheXpert validation set. "
        "Another network on real patients; do not compare it with the table above, which is about phantoms. Its gain "
        "of .0023 is within chance: 202 test images show one of that size with a power of 7 to 13%",
        (Cell("K"), *(Cell("mean" if name == "average" else title_of(name)) for name in names)),
        tuple(Line(f"K={row['sources']:.0f}", tuple(Cell(f"{row[name]:.4f}") for name in names)) for row in rows),
    )


def render(table: StudyTable) -> RenderableType:
    """The table for a terminal."""
    last = table.rows[-1]
    caption = (
        f"AUC on {table.images} images of {table.patients} patients ({table.protocol}), {table.model}. "
        f"In brackets: {METHODS[last.interval].about} ({last.interval}), over the test patients: "
        f"{METHODS[last.interval].references[0]}. {describe_statistics(table.statistics)}"
    )
    aucs = rich_table(auc_grid(table, digits=2), table.origin.mark + table.title, caption, dim=["paper"])
    parts: list[RenderableType] = [aucs]
    if source := paper_source(table):
        parts.append(Text(f"paper: {source}"))
    if fewer := left_out(table):
        parts.append(Text("Without images of both classes, and left out of a disease's mean: " + "; ".join(fewer)))
    if nothing := undefined(table):
        parts.append(Text("Not defined (and left out of the mean): " + "; ".join(nothing)))
    if table.origin is Origin.SYNTHETIC:
        grid = orientation_grid()
        published = rich_table(grid, grid.caption)
        published.style = "dim"
        parts.append(published)
    return Group(*parts)


def _hospitals(estimate: Estimate) -> dict[str, int]:
    """How many hospitals it is the mean of, and how many were left out; empty of one AUC over all images."""
    if estimate.hospitals is None:
        return {}
    return {"hospitals": estimate.hospitals, "left_out": estimate.left_out}
