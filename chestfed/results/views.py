"""What terminals and pages show of results: a table, a caption and sentences for each view."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.diseases import format_title
from chestfed.core.provenance import Origin
from chestfed.evaluation.intervals.methods import METHODS
from chestfed.results.answer import state_gains
from chestfed.results.clients.batch_norm import describe_held_out, describe_statistics
from chestfed.results.clients.gate import state_gate
from chestfed.results.collect import OUTPUTS, Results, find_largest_windows
from chestfed.results.frames import list_records
from chestfed.results.grid import (
    Cell,
    Grid,
    Line,
    Rows,
    drop_single_mean,
    make_auc_cell,
    make_difference_cell,
    make_disease_columns,
    make_grid,
    number,
    rich_table,
    signed,
)
from chestfed.results.methods.settings import make_fairness_grid, make_settings_grid
from chestfed.results.sentences import (
    HOLM,
    Record,
    average_seen,
    describe_test,
    group_rows,
    list_compared,
    list_references,
)

#: Models that have a column each; more have a line each.
_MOST_COLUMNS: Final = 6
#: Headings of the two views at hospitals.
TITLES: Final = {"hospitals": "Who gains?", "alternatives": "What could each hospital do instead?"}
# ---- AUCs on the test images -------------------------------------------------------------------------------------


def make_auc_grid(results: Results, caption: str = "", digits: int = 3) -> Grid:
    """A line per model, below it the paper's where it has one; of runs that are compared also what they cost."""
    models = [drop_single_mean(rows) for rows in group_rows(results.view("study"), "model")]
    of_k, costs = models[0][0]["model"].startswith("K="), _list_costs(results)
    lines = []
    for rows in models:
        added = [Cell(rows[0]["added"])] if of_k else []
        cells = [*added, *(make_auc_cell(row, digits) for row in rows), *costs.get(rows[0]["model"], [])]
        lines.append(Line(rows[0]["model"], tuple(cells)))
        if any(row["paper_auc"] is not None for row in rows):
            printed = (Cell("" if row["paper_auc"] is None else f"{row['paper_auc']:.4f}") for row in rows)
            rest = [Cell("")] * (len(cells) - len(added) - len(rows))
            lines.append(Line(f"paper, {rows[0]['model']}", (*[Cell("")] * len(added), *printed, *rest), "paper"))
    heads = [Cell("K"), Cell("added")] if of_k else [Cell("algorithm")]
    heads += [*make_disease_columns(models[0]), *map(Cell, ("rounds", "sent", "images") if costs else ())]
    return Grid("auc", caption, tuple(heads), tuple(lines))


def _list_costs(results: Results) -> dict[str, list[Cell]]:
    """Rounds, bytes and images of each model of several runs."""
    if results.curves.empty:
        return {}
    costs = {}
    for model, curves in results.curves.groupby("model", sort=False):
        last = curves.groupby("seed").last()
        sums = (f"{last['round'].max():,}", f"{last['bytes'].mean() / 1e6:,.1f} MB", f"{last['images'].mean():,.0f}")
        costs[str(model)] = list(map(Cell, sums))
    return costs


def describe_aucs(results: Results) -> str:
    """The meaning of the numbers of `make_auc_grid`."""
    about = results.about
    images = f"{about['images']:,} images of {about['patients']:,} patients ({about['protocol']})"
    by_k = " by number of clients" if results.view("study")["model"].iloc[0].startswith("K=") else ""
    where = f"AUC {about['where']}{by_k}: {images}, {about['model']}"
    spread = f"In brackets: {_name_interval(results, 'study')}, over the test patients."
    if len(results.seeds) > 1:
        spread = f"Mean over {len(results.seeds)} seeds ± the standard deviation over them."
    sums = "" if results.curves.empty else " Sums over all clients."
    objectives = f" Objectives: {about['objectives']}." if about["objectives"] else ""
    return f"{where}. {spread}{sums}{objectives} {describe_statistics(about['batch_norm'])}".rstrip()


def _name_interval(results: Results, view: str) -> str:
    name = results.view(view)["interval_method"].iloc[0]
    return f"{METHODS[name].about} ({name}): {METHODS[name].references[0]}"


def list_undefined(results: Results, view: str = "study") -> list[str]:
    """The diseases without an AUC, each with its reason."""
    rows = [row for row in list_records(results.view(view)) if row["auc"] is None and row["disease"] != "mean"]
    return list(dict.fromkeys(f"{format_title(row['disease'])}: {row['reason']}" for row in rows))


def list_left_out(results: Results) -> list[str]:
    """How many hospitals do not count in the AUC of each disease, because they have not both classes."""
    rows = [row for row in list_records(results.view("study")) if row["left_out"] and row["disease"] != "mean"]
    counts = ((row, row["left_out"] + (row["hospitals"] or 0)) for row in rows)
    texts = (f"{format_title(row['disease'])}: {row['left_out']} of {total} hospitals" for row, total in counts)
    return sorted(dict.fromkeys(texts))


# ---- differences -------------------------------------------------------------------------------------------------


def make_difference_grid(
    differences: pd.DataFrame, caption: str = "", digits: int = 3, added: Sequence[str] = ()
) -> Grid:
    """A line per model; with `added` a second column, with what each K of a study adds."""
    models = [drop_single_mean(rows) for rows in group_rows(differences, "model")]
    rows: Rows = [
        (part[0]["model"], (*added[place : place + 1], *(make_difference_cell(row, digits) for row in part)))
        for place, part in enumerate(models)
    ]
    heads, columns = ["K", "added"] if added else ["model"], make_disease_columns(models[0])
    over = sum(row["difference"] is not None for row in models[0] if row["disease"] != "mean")
    columns = [replace(column, below=(f"over {over}",)) if column.text == "mean" else column for column in columns]
    return make_grid("differences", caption, (*heads, *columns), rows)


def make_seeds_grid(differences: pd.DataFrame) -> Grid | None:
    """The last model minus the reference, a line per training seed; None without a test over seeds."""
    rows = drop_single_mean(group_rows(differences, "model")[-1])
    if not rows[-1]["of_seeds"]:
        return None
    each = [json.loads(row["of_seeds"]) for row in rows]
    lines = (
        (f"seed {seed}", ["-" if values[seed] is None else signed(values[seed]) for values in each]) for seed in each[0]
    )
    caption = f"{rows[-1]['model']} minus {rows[-1]['reference']}, by training seed"
    return make_grid("by-seed", caption, ("seed", *(format_title(row["disease"]) for row in rows)), lines)


def render_differences(
    differences: pd.DataFrame, title: str = "Paired comparison", *, added_to_tables: bool = False
) -> RenderableType:
    """A table for a terminal: differences with intervals and p values; of several seeds, how they differ.

    `added_to_tables`: below those of a study, which name the method and show how the seeds differ.
    """
    first = list_records(differences)[0]
    mark = "" if first["data"] == "unknown" else Origin(first["data"]).short_mark
    protocol = f"{first['protocol']}: " if first["protocol"] else ""
    source = "" if added_to_tables else f" ({list_references(differences)[0]})"
    how = f" with its 95% interval, {describe_test(differences)}{source}"
    caption = (
        f"{protocol}n = {first['images']}, {first['patients']} patients. Difference of AUC"
        f"{how if differences['low'].notna().any() else ''}.{f' {HOLM}' if differences['p'].notna().any() else ''}"
    )
    grid = make_difference_grid(differences, digits=2)
    parts = [rich_table(grid, f"{mark}{title}: model minus {first['reference']}", caption)]
    if by_seed := make_seeds_grid(differences):
        parts.append(rich_table(by_seed, by_seed.caption))
    if not added_to_tables and max(first["seeds_reference"], differences["seeds_model"].max()) > 1:
        parts.append(rich_table(_make_spread_grid(differences), "Standard deviation of the AUC over the seeds"))
    return Group(*parts)


def _make_spread_grid(differences: pd.DataFrame) -> Grid:
    models = [drop_single_mean(rows) for rows in group_rows(differences, "model")]
    deviations = [(models[0][0]["reference"], [row["seed_sd_reference"] for row in models[0]])]
    deviations += [(rows[0]["model"], [row["seed_sd_model"] for row in rows]) for rows in models]
    lines = ((name, ["one seed" if sd is None else number(sd) for sd in values]) for name, values in deviations)
    return make_grid("spread", "", ("model", *(format_title(row["disease"]) for row in models[0])), lines)


# ---- at every hospital -------------------------------------------------------------------------------------------


def make_hospital_grid(results: Results, view: str, caption: str = "", digits: int = 3) -> Grid:
    """The mean AUC of every model at every hospital, and the differences that were compared."""
    rows, models = Rows(), list(results.view(view)["model"].unique())
    if len(models) > _MOST_COLUMNS:
        return _make_model_lines(results, view, caption, digits)
    compared = list_compared(results, view)
    gains = _index_gains(results, view)
    for means in group_rows(results.view(view, disease="mean"), "hospital"):
        at, first = {row["model"]: row for row in means}, means[0]
        cells = [Cell(f"{first['images']:,}", (f"{first['patients']:,} patients",))]
        for model in models:
            cell = make_auc_cell(at[model], digits) if model in at else Cell("-")
            inside = model not in at or at[model]["takes_part"] or at[model]["auc"] is None
            cells.append(cell if inside else replace(cell, text=f"({cell.text})"))
        for model in compared:
            gain = gains.get((first["hospital"], model))
            missing = Cell("not disclosed" if model in at else "-")
            cells.append(missing if gain is None else make_difference_cell(gain, digits))
        rows.append((first["hospital"], cells))
    heads = ("hospital", "test images", *models, *(f"{model} minus {models[0]}" for model in compared))
    return make_grid(view, caption, heads, rows)


def _make_model_lines(results: Results, view: str, caption: str, digits: int) -> Grid:
    """As `make_hospital_grid`, with a line per model and a column per hospital; differences stand below the AUCs."""
    gains, rows, means = _index_gains(results, view), Rows(), results.view(view, disease="mean")
    by_place = {(row["hospital"], row["model"]): row for row in list_records(means)}
    hospitals = group_rows(means, "hospital")
    for model in means["model"].unique():
        cells = []
        for name in (part[0]["hospital"] for part in hospitals):
            cell = make_auc_cell(by_place[name, model], digits) if (name, model) in by_place else Cell("-")
            if gain := gains.get((name, model)):
                difference = make_difference_cell(gain, digits)
                below = (" ".join((difference.text, *difference.below[:1])), *difference.below[1:])
                cell = replace(cell, below=(*cell.below, *below), strong=difference.strong)
            cells.append(cell)
        rows.append((model, cells))
    heads = [Cell(part[0]["hospital"], (f"{part[0]['images']:,} images",)) for part in hospitals]
    return make_grid(view, caption, ("model", *heads), rows)


def _index_gains(results: Results, view: str) -> dict[tuple[str, str], Record]:
    """The differences of the mean AUC by hospital and model."""
    return {(row["hospital"], row["model"]): row for row in list_records(results.gains(view, disease="mean"))}


def make_disease_grid(results: Results) -> Grid | None:
    """The AUC of the last model per hospital and disease, and below it the difference to the first K.

    None where methods are compared, of which the last is one of many.
    """
    if results.about["methods"]:
        return None
    view = results.view("hospitals")
    last = view["model"].iloc[-1]
    gains = {(row["hospital"], row["disease"]): row["difference"] for row in list_records(results.gains("hospitals"))}
    rows: Rows = []
    hospitals = [drop_single_mean(part) for part in group_rows(view[view["model"] == last], "hospital")]
    for part in hospitals:
        differences = [gains.get((row["hospital"], row["disease"])) for row in part]
        cells = [
            Cell(number(row["auc"]), () if difference is None else (signed(difference),))
            for row, difference in zip(part, differences, strict=True)
        ]
        rows.append((part[0]["hospital"], cells))
    minus = f"; below it minus {view['model'].iloc[0]}" if gains else ""
    heads = ("hospital", *(format_title(row["disease"]) for row in hospitals[0]))
    return make_grid("hospital-diseases", f"AUC per disease with {last}{minus}", heads, rows)


def describe_hospitals(results: Results, view: str) -> str:
    """The meaning of the numbers of `make_hospital_grid`."""
    numbers = "In brackets: 95% intervals over the hospital's patients."
    if len(results.seeds) > 1:
        numbers = f"Means over {len(results.seeds)} training seeds ± the standard deviation over them."
    outside = "" if results.view(view)["takes_part"].all() else " In parentheses: before the hospital took part."
    untested = results.about["untested"]
    names = [*untested["hospitals"], *(untested["alternatives"] if view == "alternatives" else ())]
    without = f" Without held-out patients: {', '.join(names)}." if names else ""
    about = "Mean AUC over the diseases at each hospital, on its own held-out patients"
    return f"{about}. {numbers}{outside}{without} {describe_statistics(results.about['batch_norm'])}".strip()


# ---- held-out sites ----------------------------------------------------------------------------------------------


def make_held_out_grid(results: Results, digits: int = 3) -> Grid:
    """Two lines per held-out site: its own, and the mean over the sites that were trained on."""
    lines, heads = [], [Cell("held out"), Cell("images")]
    for rows in group_rows(results.view("held_out"), "model"):
        held_out_rows = drop_single_mean([row for row in rows if not row["takes_part"]])
        cells = [make_auc_cell(row, digits) for row in held_out_rows]
        counts = [
            () if row["positives"] is None else (f"{row['positives']}+ / {row['negatives']}-",) for row in held_out_rows
        ]
        cells = [replace(cell, below=(*cell.below, *below)) for cell, below in zip(cells, counts, strict=True)]
        lines.append(Line(rows[0]["model"], (Cell(f"{held_out_rows[0]['images']:,}"), *cells)))
        heads[2:] = [Cell(format_title(row["disease"])) for row in held_out_rows]
        if means := average_seen(rows):
            seen = (Cell(number(mean)) for mean in drop_single_mean(means))
            lines.append(Line("  sites trained on", (Cell(""), *seen), "seen"))
    return Grid("held-out", "", tuple(heads), tuple(lines))


# ---- a terminal --------------------------------------------------------------------------------------------------


def render_tables(results: Results) -> RenderableType:
    """All views for a terminal, which the answer follows."""
    mark = results.origin.mark + results.title
    if len(results.view("held_out")):
        parts = [rich_table(make_held_out_grid(results, 2), mark, _describe_held_out(results), dim=["seen"])]
        rows = [row for row in list_records(results.view("held_out")) if row["auc"] is None and not row["takes_part"]]
        texts = [f"{row['model']}, {format_title(row['disease'])}: {row['reason']}" for row in rows]
        notes = [f"Not defined (and left out of the mean): {'; '.join(texts)}"] if texts else []
        return Group(*parts, *map(Text, notes))
    parts = [rich_table(make_auc_grid(results, digits=2), mark, describe_aucs(results), dim=["paper"])]
    parts += map(Text, list_notes(results))  # type: ignore[arg-type]
    if len(gains := results.gains("study")):
        parts.append(render_differences(gains, "Differences", added_to_tables=True))  # type: ignore[arg-type]
    if results.about["methods"]:
        settings = make_settings_grid(results.about["methods"])
        parts.append(rich_table(settings, settings.caption))
    for view in ("hospitals", "alternatives"):
        if len(results.view(view)):
            title = f"{results.origin.short_mark}{TITLES[view]}"
            parts.append(
                rich_table(make_hospital_grid(results, view, digits=2), title, describe_hospitals(results, view))
            )
            below = state_gains(results, view), state_gate(results) if view == "alternatives" else ""
            parts += map(Text, filter(None, below))  # type: ignore[arg-type]
    if fairness := make_fairness_grid(results.view("hospitals")):
        parts.append(rich_table(fairness, fairness.caption))
    return Group(*parts)


def _describe_held_out(results: Results) -> str:
    about = results.about
    where = f"AUC, {about['protocol']}, {about['model']}"
    return (
        f"{where}. In brackets: {_name_interval(results, 'held_out')}, over patients of the held-out site. Below, of "
        "the same model: the mean of the AUCs on held-out patients of the sites it was trained on. "
        f"{describe_held_out(about['batch_norm'])}"
    )


def describe_stage_1(results: Results) -> str:
    """AUCs after stage 1 alone: what stage 2 adds to them can be read; empty if they are not known."""
    aucs = results.about.get("stage_1") or {}
    named = {format_title(disease): value for disease, value in aucs.items() if disease != "mean" or len(aucs) > 2}
    each = ", ".join(f"{name} {number(value)}" for name, value in named.items())
    return f"After stage 1 alone (cross-entropy at the first client): {each}" if each else ""


def list_notes(results: Results) -> list[str]:
    """What stands below the table of AUCs."""
    notes = [f"paper: {results.about['paper']}"] if results.about["paper"] else []
    if stage_1 := describe_stage_1(results):
        notes.append(stage_1)
    if fewer := list_left_out(results):
        notes.append(f"Without images of both classes, and left out of a disease's mean: {'; '.join(fewer)}")
    if undefined := list_undefined(results):
        notes.append(f"Not defined (and left out of the mean): {'; '.join(undefined)}")
    if not results.curves.empty:
        ends = results.curves.groupby(["model", "seed"], sort=False)[[*OUTPUTS]].last().astype(float)
        both = ends.groupby("model", sort=False).mean().dropna()
        texts = [f"{model} {last:.3f}, {average:.3f}" for model, last, average in both.itertuples()]
        if texts:
            about = "mean AUC of the last point and of the average over the last stage's rounds"
            notes.append(f"{about}: {'; '.join(texts)}")
    published = results.about["published"] or {"largest_window": {}}
    for algorithm, window in find_largest_windows(results).items():
        theirs = published["largest_window"].get(algorithm)
        beside = "" if theirs is None else f"; the paper's: {theirs}"
        notes.append(f"{algorithm}: largest window without loss of AUC: {window}{beside}")
    return notes


def list_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each model, its gain over the first, and both at every hospital."""
    values: dict[str, float | None] = {}
    for row in list_records(results.view("study", disease="mean")):
        name = row["model"].replace("=", "")
        values |= {f"auc/{name}": row["auc"]} | ({f"auc_sd/{name}": row["sd"]} if len(results.seeds) > 1 else {})
    gains = list_records(results.gains("study"))
    for row in (row for row in gains if row["model"] == gains[-1]["model"]):
        if row["disease"] == "mean":
            values |= {f"gain/{name}": row[name] for name in ("low", "high", "p")} | {"gain/mean": row["difference"]}
        else:
            values[f"gain_per_disease/{row['disease']}"] = row["difference"]
    at = list_records(results.view("hospitals", disease="mean"))
    values |= {f"auc_at/{row['hospital']}": row["auc"] for row in at if row["model"] == at[-1]["model"]}
    for row in list_records(results.gains("hospitals", disease="mean")):
        values[f"gain_at/{row['hospital']}"] = row["difference"]
    for row in list_records(results.gains("alternatives", disease="mean")):
        values[f"over_own_data/{row['hospital']}/{row['model'].replace('=', '')}"] = row["difference"]
    return values


def list_held_out_metrics(results: Results) -> dict[str, float | None]:
    """The numbers for MLflow: mean AUC of each held-out site, and of its model on the sites that it was trained on."""
    values: dict[str, float | None] = {}
    for rows in group_rows(results.view("held_out"), "model"):
        held_out_row = next(row for row in rows if not row["takes_part"] and row["disease"] == "mean")
        values[f"held_out_auc_mean_{held_out_row['model']}"] = held_out_row["auc"]
        values[f"trained_on_auc_mean_{held_out_row['model']}"] = (average_seen(rows) or [None])[-1]
    return values
