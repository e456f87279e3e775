"""Views of results in terminals and pages: each a table, a caption and sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar, cast

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.diseases import format_title
from chestfed.core.disk import size_text
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.intervals.methods import METHODS
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.tables.answer import describe_few, has_labels, list_few, list_few_at, state_gains
from chestfed.results.tables.clients.batch_norm import describe_statistics
from chestfed.results.tables.clients.gate import state_gate
from chestfed.results.tables.collect import OUTPUTS, find_largest_windows
from chestfed.results.tables.columns import SHOWN_BELOW, DifferenceRow, EstimateRow
from chestfed.results.tables.frames import Results, get_interval, group_rows, list_difference_rows
from chestfed.results.tables.grid import (
    Cell,
    Grid,
    Rows,
    count_images,
    make_grid,
    number,
    p_value,
    pair,
    rich_table,
    signed,
)
from chestfed.results.tables.presentations import find_presentation
from chestfed.results.tables.sentences import (
    HOLM,
    OVER_SPLITS,
    describe_test,
    list_compared,
    list_references,
    state_common_models,
)
from chestfed.results.tables.settings import make_fairness_grid, make_settings_grid

T = TypeVar("T")

#: Models that have a column each; more have a line each.
_MOST_COLUMNS: Final = 6
#: What a disease with an AUC needs to count.
_NEEDED: Final = (
    f"{LEAST_PATIENTS} test patients with a disease and {LEAST_PATIENTS} without it are needed: "
    "test more patients, unless the hospital has too few"
)
#: Headings of the two views at hospitals.
TITLES: Final = {"hospitals": "AUC at every hospital", "alternatives": "Who gains over its own data?"}


def make_auc_cell(row: EstimateRow, digits: int = 3) -> Cell:
    """An AUC; below it its interval with `digits` decimals, and the columns of `SHOWN_BELOW` that have a value.

    Several seeds have `sd` in place of an interval, several splits of the patients both.
    """
    values = cast(Mapping[str, Any], row)
    below = [form.format(values[name]) for name, form in SHOWN_BELOW.items() if values.get(name) is not None]
    of_seeds = values.get("sd") is not None and values.get("splits") is None
    interval = "" if of_seeds else pair(get_interval(row), digits)
    return Cell(number(row["auc"]), tuple(filter(None, (interval, *below))))


def make_difference_cell(row: DifferenceRow, digits: int = 3) -> Cell:
    """A difference of AUCs; below it its interval and the p value of the same test, then p after Holm's correction.

    Strong where the corrected p is below 0.05.
    """
    if row["difference"] is None:
        return Cell("-")
    tests = [f"{name} {p_value(p)}" for name, p in (("p", row["p"]), ("Holm", row["p_holm"])) if p is not None]
    below = filter(None, (pair(get_interval(row), digits, signed), *tests))
    return Cell(signed(row["difference"]), tuple(below), strong=row["p_holm"] is not None and row["p_holm"] < 0.05)


def make_disease_columns(rows: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """The headings of the diseases' columns, with their numbers of positive and negative images; a mean has none."""
    return [
        Cell(
            format_title(row["disease"]),
            () if row["positives"] is None else (f"n+ {row['positives']:,}", f"n− {row['negatives']:,}"),
        )
        for row in rows
    ]


def drop_single_mean(every: Sequence[T]) -> Sequence[T]:
    """Drop the mean, the last of the rows, where it would repeat the one disease."""
    return every[:-1] if len(every) == 2 else every


# ---- AUCs on the test images -------------------------------------------------------------------------------------


def make_auc_grid(results: Results, caption: str = "", digits: int = 3) -> Grid:
    """A line per model, below it the paper's where it has one; of runs that are compared also what they cost."""
    models = [drop_single_mean(rows) for rows in group_rows(results.list_estimates("study"), "model")]
    of_k, costs = results.by_k, _list_costs(results)
    lines: Rows = []
    for rows in models:
        name, added = rows[0]["model"], [rows[0]["added"]] if of_k else []
        sums = costs.get(name, ())
        cells: list[str | Cell] = [*added]
        lines.append((name, [*cells, *(make_auc_cell(row, digits) for row in rows), *sums]))
        if any(row["paper_auc"] is not None for row in rows):
            printed = ["" if row["paper_auc"] is None else f"{row['paper_auc']:.4f}" for row in rows]
            lines.append((f"paper, {name}", (*("" for _ in added), *printed, *("" for _ in sums)), "paper"))
    heads = ("K", "added") if of_k else ("algorithm",)
    heads_of_costs = ("rounds", "sent", "images") if costs else ()
    return make_grid("auc", caption, (*heads, *make_disease_columns(models[0]), *heads_of_costs), lines)


def _list_costs(results: Results) -> dict[str, tuple[str, str, str]]:
    """Rounds, bytes and images of each model of several runs."""
    costs = {}
    for model, curves in results.curves.groupby("model", sort=False) if len(results.curves) else ():
        last = curves.groupby(results.draws).last()
        sent, images = size_text(round(last["bytes"].mean())), f"{last['images'].mean():,.0f}"
        costs[str(model)] = (f"{last['round'].max():,}", sent, images)
    return costs


def describe_aucs(results: Results) -> str:
    """The meaning of the numbers of `make_auc_grid`."""
    about = results.about
    by_k, several = " by number of clients" if results.by_k else "", len(results.splits) > 1
    where = f"AUC {about['where']}{by_k}: {results.scored}, {about['model']}"
    spread = f"In brackets: {name_interval(results, 'study')}, over the test patients."
    if results.repeats:
        spread = f"Mean over {results.repeats} ± the standard deviation over {'the runs' if several else 'them'}."
        spread += f" In brackets: 95% intervals, {OVER_SPLITS}." * several
    sums = "" if results.curves.empty else " Sums over all clients."
    objectives = f" Objectives: {about['objectives']}." if about["objectives"] else ""
    models = f" {text}" if (text := state_common_models(results, "study")) else ""
    return f"{where}. {spread}{sums}{objectives}{models} {describe_statistics(about['batch_norm'])}".rstrip()


def name_interval(results: Results, view: str) -> str:
    name = results.view(view)["interval_method"].iloc[0]
    return f"{METHODS[name].about} ({name}): {METHODS[name].references[0]}"


class LeftOut(NamedTuple):
    """What a mean lacks, with the reason."""

    text: str
    has_few: bool = False  #: whether there are too few patients


def join_left_out(entries: Iterable[LeftOut]) -> str:
    """Join all in one text; what few patients lack is said once, at the end."""
    entries = list(entries)
    needed = f". {_NEEDED}" if any(entry.has_few for entry in entries) else ""
    return "; ".join(entry.text for entry in entries) + needed


def list_out_of_mean(results: Results) -> list[LeftOut]:
    """The diseases that do not count in the mean on the test images, each with its reason, and where some do not."""
    rows = [row for row in results.list_estimates("study") if row["auc"] is None and row["disease"] != "mean"]
    undefined = dict.fromkeys(f"{format_title(row['disease'])}: {row['reason']}" for row in rows)
    few = [LeftOut(text, has_few=True) for text in list_few(results)]
    at_hospitals = {place: ", ".join(texts) for place, texts in list_few_at(results).items()}
    few += [LeftOut(f"{place}, {text}", "patient" in text) for place, text in at_hospitals.items()]
    return [*map(LeftOut, undefined), *few]


def list_without_mean(results: Results, view: str) -> dict[str, LeftOut]:
    """The hospitals without a mean AUC: the disease that comes nearest to counting, or why there is no AUC at all."""
    texts = {}
    for rows in group_rows(results.list_estimates(view), "place"):
        *diseases, mean = [row for row in rows if row["model"] == rows[0]["model"]]
        if mean["auc"] is None:
            known = [row for row in diseases if row["auc"] is not None]
            nearest = max(known, key=_count_rarer, default=None)
            reasons = dict.fromkeys(f"{format_title(row['disease'])}: {row['reason']}" for row in diseases)
            text = f"at best {describe_few(nearest)}" if nearest else ", ".join(reasons)
            texts[mean["place"]] = LeftOut(f"{mean['place']}, {text}", nearest is not None)
    return texts


def list_out_of_hospitals(results: Results) -> dict[str, LeftOut]:
    """The diseases that do not count in a hospital's mean, with what it has too few of, by hospital."""
    texts = {}
    for rows in group_rows(results.list_estimates("hospitals"), "place"):
        *diseases, mean = [row for row in rows if row["model"] == rows[0]["model"]]
        few = [row for row in diseases if row["in_mean"] is False]
        if few and mean["auc"] is not None:
            text = f"{mean['place']}, {', '.join(map(describe_few, few))}"
            texts[mean["place"]] = LeftOut(text, has_few=any(map(has_labels, few)))
    return texts


def _count_rarer(row: EstimateRow) -> int:
    """Patients of the rarer class."""
    return min(row["positive_patients"] or 0, row["negative_patients"] or 0)


# ---- differences -------------------------------------------------------------------------------------------------


def make_difference_grid(
    differences: pd.DataFrame, caption: str = "", digits: int = 3, added: Sequence[str] = ()
) -> Grid:
    """A line per model; with `added` a second column, with what each K of a study adds."""
    models = _group_models(differences)
    rows: Rows = []
    for place, part in enumerate(models):
        cells: list[str | Cell] = [*added[place : place + 1]]
        rows.append((part[0]["model"], cells + [make_difference_cell(row, digits) for row in part]))
    heads, columns = ["K", "added"] if added else ["model"], make_disease_columns(models[0])
    over = sum(
        row["in_mean"] is not False and row["difference"] is not None for row in models[0] if row["disease"] != "mean"
    )
    columns = [replace(column, below=(f"over {over}",)) if column.text == "mean" else column for column in columns]
    return make_grid("differences", caption, (*heads, *columns), rows)


def _group_models(differences: pd.DataFrame) -> list[Sequence[DifferenceRow]]:
    return [drop_single_mean(rows) for rows in group_rows(list_difference_rows(differences), "model")]


def make_seeds_grid(differences: pd.DataFrame) -> Grid | None:
    """Each model minus the reference, a line per training seed; None without a test over seeds."""
    models = [rows for rows in _group_models(differences) if rows[-1]["of_seeds"]]
    if not models:
        return None
    lines: Rows = []
    for rows in models:
        each: list[dict[str, float | None]] = [json.loads(row["of_seeds"]) for row in rows]
        name = f"{rows[0]['model']}, " if len(models) > 1 else ""
        for seed in each[0]:
            values = (of_seeds[seed] for of_seeds in each)
            lines.append((f"{name}seed {seed}", ["-" if value is None else signed(value) for value in values]))
    first = models[0][0]
    split = " and split of the patients" if first["splits"] else ""
    what = (
        f"AUC minus that of {first['reference']}" if len(models) > 1 else f"{first['model']} minus {first['reference']}"
    )
    heads = ("seed", *(format_title(row["disease"]) for row in models[0]))
    return make_grid("by-seed", f"{what}, by training seed{split}", heads, lines)


def render_differences(
    differences: pd.DataFrame,
    title: str = "Paired comparison",
    *,
    added_to_tables: bool = False,
    patients_known: bool = True,
) -> RenderableType:
    """A table for a terminal: differences with intervals and p values; of several seeds, how they differ.

    `added_to_tables`: below those of a study, which name the method and show how the seeds differ.
    """
    first = list_difference_rows(differences)[0]
    mark = "" if first["data"] == "unknown" else Origin(first["data"]).short_mark
    protocol = f"{first['protocol']}: " if first["protocol"] else ""
    source = "" if added_to_tables else f" ({list_references(differences)[0]})"
    how = f" with its 95% interval, {describe_test(differences)}{source}"
    counted = count_images(first["images"], first["patients"], patients_known=patients_known)
    caption = (
        f"{protocol}{counted}. Difference of AUC"
        f"{how if differences['low'].notna().any() else ''}.{f' {HOLM}' if differences['p'].notna().any() else ''}"
    )
    grid = make_difference_grid(differences, digits=2)
    parts = [rich_table(grid, f"{mark}{title}: model minus {first['reference']}", caption)]
    if by_seed := make_seeds_grid(differences):
        parts.append(rich_table(by_seed, by_seed.caption))
    if not added_to_tables and max(first["seeds_reference"], differences["seeds_model"].max()) > 1:
        parts.append(rich_table(_make_spread_grid(differences), "Standard deviation of the AUC over the seeds"))
    return Group(*parts)


def _knows_patients(results: Results) -> bool:
    return results.about.get("has_patients", True)  # a folder of an earlier release does not say


def _make_spread_grid(differences: pd.DataFrame) -> Grid:
    models = _group_models(differences)
    deviations = [(models[0][0]["reference"], [row["seed_sd_reference"] for row in models[0]])]
    deviations += [(rows[0]["model"], [row["seed_sd_model"] for row in rows]) for rows in models]
    lines = ((name, ["one seed" if sd is None else number(sd) for sd in values]) for name, values in deviations)
    return make_grid("spread", "", ("model", *(format_title(row["disease"]) for row in models[0])), lines)


# ---- at every hospital -------------------------------------------------------------------------------------------


def make_hospital_grid(results: Results, view: str, caption: str = "", digits: int = 3) -> Grid:
    """The mean AUC of every model at every hospital, and the differences that were compared."""
    rows, models = Rows(), list(results.view(view)["model"].unique())
    patients_known = _knows_patients(results)
    if len(models) > _MOST_COLUMNS:
        return _make_model_lines(results, view, caption, digits)
    compared = list_compared(results, view)
    gains = _index_gains(results, view)
    for means in group_rows(results.list_estimates(view, disease="mean"), "place"):
        at, first = {row["model"]: row for row in means}, means[0]
        patients = (f"{first['patients']:,} patients",) if patients_known else ()
        cells: list[str | Cell] = [Cell(f"{first['images']:,}", patients)]
        for model in models:
            cell = make_auc_cell(at[model], digits) if model in at else Cell("-")
            inside = model not in at or at[model]["takes_part"] or at[model]["auc"] is None
            cells.append(cell if inside else replace(cell, text=f"({cell.text})"))
        for model in compared:
            gain = gains.get((first["place"], model))
            missing = "not disclosed" if model in at else "-"
            cells.append(missing if gain is None else make_difference_cell(gain, digits))
        rows.append((first["place"], cells))
    heads = ("hospital", "test images", *models, *(f"{model} minus {models[0]}" for model in compared))
    return make_grid(view, caption, heads, rows)


def _make_model_lines(results: Results, view: str, caption: str, digits: int) -> Grid:
    """As `make_hospital_grid`, with a line per model and a column per hospital; differences stand below the AUCs."""
    gains, rows, means = _index_gains(results, view), Rows(), results.list_estimates(view, disease="mean")
    by_place = {(row["place"], row["model"]): row for row in means}
    hospitals = group_rows(means, "place")
    for model in dict.fromkeys(row["model"] for row in means):
        cells = []
        for name in (part[0]["place"] for part in hospitals):
            cell = make_auc_cell(by_place[name, model], digits) if (name, model) in by_place else Cell("-")
            if gain := gains.get((name, model)):
                difference = make_difference_cell(gain, digits)
                below = (" ".join((difference.text, *difference.below[:1])), *difference.below[1:])
                cell = replace(cell, below=(*cell.below, *below), strong=difference.strong)
            cells.append(cell)
        rows.append((model, cells))
    heads = [Cell(part[0]["place"], (f"{part[0]['images']:,} images",)) for part in hospitals]
    return make_grid(view, caption, ("model", *heads), rows)


def _index_gains(results: Results, view: str) -> dict[tuple[str, str], DifferenceRow]:
    """The differences of the mean AUC by hospital and model."""
    return {(row["place"], row["model"]): row for row in results.list_differences(view, disease="mean")}


def make_disease_grid(results: Results) -> Grid | None:
    """The AUC of the last model per hospital and disease, and below it the difference to the first K.

    None where methods are compared, of which the last is one of many.
    """
    if results.about["methods"]:
        return None
    view = results.view("hospitals")
    last = view["model"].iloc[-1]
    gains = {(row["place"], row["disease"]): row["difference"] for row in results.list_differences("hospitals")}
    rows: Rows = []
    of_last = results.list_estimates("hospitals", model=last)
    hospitals = [drop_single_mean(part) for part in group_rows(of_last, "place")]
    for part in hospitals:
        differences = [gains.get((row["place"], row["disease"])) for row in part]
        cells = [
            Cell(number(row["auc"]), () if difference is None else (signed(difference),))
            if row["auc"] is not None or row["disease"] == "mean"
            else Cell("-", (row["reason"],))
            for row, difference in zip(part, differences, strict=True)
        ]
        rows.append((part[0]["place"], cells))
    minus = f"; below it minus {view['model'].iloc[0]}" if gains else ""
    heads = ("hospital", *(format_title(row["disease"]) for row in hospitals[0]))
    return make_grid("hospital-diseases", f"AUC per disease with {last}{minus}", heads, rows)


def describe_hospitals(results: Results, view: str) -> str:
    """The meaning of the numbers of `make_hospital_grid`."""
    numbers = "In brackets: 95% intervals over the hospital's patients."
    if results.repeats:
        numbers = f"Means over {results.repeats} ± the standard deviation over them."
    outside = "" if results.view(view)["takes_part"].all() else " In parentheses: before the hospital took part."
    untested = results.about["untested"]
    names = [*untested["hospitals"], *(untested["alternatives"] if view == "alternatives" else ())]
    without = f" Without held-out patients: {', '.join(names)}." if names else ""
    reasons = join_left_out(list_without_mean(results, view).values())
    without += f" Without a mean: {reasons}." if reasons else ""
    without += f" {text}" if (text := state_common_models(results, view)) else ""
    about = "Mean AUC over the diseases at each hospital, on its own held-out patients"
    return f"{about}. {numbers}{outside}{without} {describe_statistics(results.about['batch_norm'])}".strip()


# ---- a terminal --------------------------------------------------------------------------------------------------


def render_tables(results: Results) -> RenderableType:
    """All views for a terminal, which the answer follows."""
    mark = results.origin.mark + results.title
    if own := find_presentation(results):
        texts = own.list_missing(results)
        notes = [f"Not defined (and left out of the mean): {'; '.join(texts)}"] if texts else []
        return Group(own.render(results), *map(Text, notes))
    parts: list[RenderableType] = [
        rich_table(make_auc_grid(results, digits=2), mark, describe_aucs(results), dim=["paper"]),
        *map(Text, list_notes(results)),
    ]
    if len(gains := results.gains("study")):
        parts.append(
            render_differences(gains, "Differences", added_to_tables=True, patients_known=_knows_patients(results))
        )
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
            parts += map(Text, filter(None, below))
    if fairness := make_fairness_grid(results):
        parts.append(rich_table(fairness, fairness.caption))
    return Group(*parts)


def describe_stage_1(results: Results) -> str:
    """AUCs after stage 1 alone, beside that of K=1: what stage 2 adds; empty if they are not known."""
    aucs = results.about.get("stage_1") or {}
    named = {format_title(disease): value for disease, value in aucs.items() if disease != "mean" or len(aucs) > 2}
    each = ", ".join(f"{name} {number(value)}" for name, value in named.items())
    if not each:
        return ""
    alone = next((row for row in results.list_estimates("study", disease="mean") if row["k"] == 1), None)
    stage_2 = "" if alone is None else f"; after stage 2 the mean AUC of {alone['model']} is {number(alone['auc'])}"
    return f"After stage 1 alone (cross-entropy at the first client): {each}{stage_2}"


def list_notes(results: Results) -> list[str]:
    """List the notes below the table of AUCs."""
    notes = [f"paper: {results.about['paper']}"] if results.about["paper"] else []
    if unalike := results.about.get("made_unalike"):
        notes.append(unalike)
    if stage_1 := describe_stage_1(results):
        notes.append(stage_1)
    if left_out := join_left_out(list_out_of_mean(results)):
        notes.append(f"Left out of the mean: {left_out}")
    if not results.curves.empty:
        ends = results.curves.groupby(["model", *results.draws], sort=False)[[*OUTPUTS]].last().astype(float)
        both = ends.groupby("model", sort=False).mean().dropna()
        texts = [f"{model} {last:.3f}, {average:.3f}" for model, last, average in both.itertuples()]
        if texts:
            about = "mean AUC of the last point and of the average over the last stage's rounds"
            notes.append(f"{about}: {'; '.join(texts)}")
    published = results.about["published"]
    for algorithm, window in find_largest_windows(results).items():
        theirs = published["largest_window"].get(algorithm) if published else None
        beside = "" if theirs is None else f"; the paper's: {theirs}"
        notes.append(f"{algorithm}: largest window without loss of AUC: {window}{beside}")
    return notes
