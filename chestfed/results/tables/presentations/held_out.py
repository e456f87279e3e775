"""Held-out sites: each fold's result at its site and at those trained on, and how they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from chestfed.core.console import text_table
from chestfed.core.diseases import format_title
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.estimates import mean_of
from chestfed.results.tables.answer import Answer, describe_few
from chestfed.results.tables.clients.batch_norm import Statistics, describe_statistics
from chestfed.results.tables.collect import name_folder
from chestfed.results.tables.columns import COMMON, HELD_OUT, EstimateRow
from chestfed.results.tables.frames import (
    About,
    Results,
    Row,
    get_interval,
    group_rows,
    list_estimates,
    make_differences,
    make_estimates,
    write_frames,
)
from chestfed.results.tables.grid import Cell, Grid, Rows, make_grid, number, pair, rich_table
from chestfed.results.tables.presentations import Presentation
from chestfed.results.tables.views import drop_single_mean, make_auc_cell, name_interval


@dataclass(frozen=True)
class Fold:
    """One held-out site: its own result, and those of the sites that were trained on."""

    site: str
    images: int
    folder: str
    row: Row
    seen: Mapping[str, Row]


def collect_folds(folds: Sequence[Fold], title: str, origin: Origin, about: About) -> Results:
    """The folds as results of the view `held_out`: a model is named by the site held out."""
    rows: list[dict[str, Any]] = []
    for fold in folds:
        for site, row in ((fold.site, fold.row), *fold.seen.items()):
            head = {"view": "held_out", "data": str(origin), "model": fold.site, "hospital": site, "k": row.k}
            head |= {"design": HELD_OUT, "site_out": fold.site, "kind": COMMON}
            head |= {"takes_part": site != fold.site, "protocol": about["protocol"]}
            rows += list_estimates([row], **head, images=fold.images if site == fold.site else None)
    return Results(title, origin, {"seeds": [], **about}, make_estimates(rows), make_differences([]))


def write_folds(results: Results, folds: Sequence[Fold], out: Path) -> Path:
    """Write `held_out.csv` into a folder named by the folds' runs; returns it."""
    folder = name_folder([fold.folder for fold in folds], results.origin, out, "held-out")
    folder.mkdir(parents=True, exist_ok=True)
    write_frames(folder, results.estimates, results.differences, ("held_out",))
    return folder


def list_fold_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each held-out site, and of its model on the sites that it was trained on."""
    values: dict[str, float | None] = {}
    for rows in group_rows(results.list_estimates("held_out"), "model"):
        held_out_row = next(row for row in rows if not row["takes_part"] and row["disease"] == "mean")
        values[f"held_out_auc_mean_{held_out_row['model']}"] = held_out_row["auc"]
        values[f"trained_on_auc_mean_{held_out_row['model']}"] = (_average_seen(rows) or [None])[-1]
    return values


def _answer(results: Results) -> Answer:
    rows = results.list_estimates("held_out", disease="mean", takes_part=False)
    texts = [f"{row['model']} {number(row['auc'])}" for row in rows]
    question = "How good is a model at a hospital that it was not trained at?"
    return Answer(question, f"Mean AUC at each site when it is held out: {', '.join(texts)}.")


def _make_grid(results: Results) -> Grid:
    """Two lines per held-out site: its own, and the mean over the sites that were trained on."""
    lines, diseases = Rows(), list[str]()
    for rows in group_rows(results.list_estimates("held_out"), "model"):
        held_out_rows = drop_single_mean([row for row in rows if not row["takes_part"]])
        cells: list[str | Cell] = [f"{held_out_rows[0]['images']:,}"]
        for row in held_out_rows:
            counts = () if row["positives"] is None else (f"{row['positives']}+ / {row['negatives']}-",)
            cell = make_auc_cell(row, 2)
            cells.append(replace(cell, below=(*cell.below, *counts)))
        lines.append((rows[0]["model"], cells))
        diseases = [format_title(row["disease"]) for row in held_out_rows]
        if means := _average_seen(rows):
            lines.append(("  sites trained on", ("", *map(number, drop_single_mean(means))), "seen"))
    return make_grid("held-out", "", ("held out", "images", *diseases), lines)


def _render(results: Results) -> RenderableType:
    mark = results.origin.mark + results.title
    return rich_table(_make_grid(results), mark, _describe(results), dim=["seen"])


def _describe(results: Results) -> str:
    about = results.about
    where = f"AUC, {about['protocol']}, {about['model']}"
    return (
        f"{where}. In brackets: {name_interval(results, 'held_out')}, over patients of the held-out site. Below, of "
        "the same model: the mean of the AUCs on held-out patients of the sites it was trained on. "
        f"{_describe_statistics(about['batch_norm'])}"
    )


def _describe_statistics(statistics: Statistics | None) -> str:
    """The sentence on batch-norm statistics of models that have `statistics` at the sites trained on."""
    if statistics != "own":
        return describe_statistics(statistics)
    return f"{describe_statistics('own', whose='their')[:-1]} at sites trained on, averaged ones at the held-out site."


def _summarize(results: Results) -> Table:
    rows = []
    for part in group_rows(results.list_estimates("held_out"), "model"):
        mean = next(row for row in part if row["disease"] == "mean" and not row["takes_part"])
        interval = f" {pair(get_interval(mean))}".rstrip()
        seen = (_average_seen(part) or [None])[-1]
        rows.append([mean["model"], f"{mean['images']:,}", f"{number(mean['auc'])}{interval}", number(seen)])
    heads = ("images", "mean AUC, held out", "at sites trained on")
    return text_table("", ("site",), heads, rows, light=True)


def _list_undefined(results: Results) -> list[str]:
    """The diseases that do not count in the mean of a held-out site, or of one trained on, each with its reason."""
    texts = []
    for row in results.list_estimates("held_out"):
        head = f"{row['model']}, " + (f"at {row['place']}, " if row["takes_part"] else "")
        if row["auc"] is None and not row["takes_part"]:
            texts.append(f"{head}{format_title(row['disease'])}: {row['reason']}")
        elif row["auc"] is not None and row["in_mean"] is False and row["disease"] != "mean":
            texts.append(head + describe_few(row))
    return texts


def _average_seen(rows: Sequence[EstimateRow]) -> list[float | None]:
    """The mean AUC over the sites that were trained on, of each disease, and at last the mean of these.

    As `labeled.divide` has it: over sites where the disease counts; where it does at none, over all and in no mean.
    """
    names = list(dict.fromkeys(row["disease"] for row in rows))[:-1]
    seen = [row for row in rows if row["takes_part"]]
    counted = [
        mean_of(row["auc"] for row in seen if row["disease"] == name and row["in_mean"] is not False) for name in names
    ]
    every = [mean_of(row["auc"] for row in seen if row["disease"] == name) for name in names]
    shown = [auc if mean is None else mean for mean, auc in zip(counted, every, strict=True)]
    return [*shown, mean_of(counted)] if seen else []


PRESENTATION = Presentation("held_out", _answer, _summarize, _render, _list_undefined, model="{} held out,")
