"""The first screen of a study in a terminal: question, answer, one table and what it means, 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from chestfed.core.console import text_table
from chestfed.core.diseases import format_title
from chestfed.results.tables.answer import Answer, find_gain_view, list_few_at, summarize_seeds
from chestfed.results.tables.clients.attendance import find_attendance, list_incomplete
from chestfed.results.tables.clients.gate import state_reasons
from chestfed.results.tables.columns import COMMON, OWN_DATA, DifferenceRow, EstimateRow
from chestfed.results.tables.frames import Results, get_interval, group_rows, list_difference_rows
from chestfed.results.tables.grid import number, p_value, pair, signed
from chestfed.results.tables.presentations import find_presentation
from chestfed.results.tables.sentences import describe_chance, describe_origins, describe_quick, state_common_models
from chestfed.results.tables.settings import state_settings
from chestfed.results.tables.views import (
    LeftOut,
    join_left_out,
    list_out_of_hospitals,
    list_out_of_mean,
    list_without_mean,
)

#: With more models than this, the table has the first and the last one.
_MODELS: Final = 5
_INTERVAL: Final = "95% interval"


def render_summary(results: Results, answer: Answer, repeat: str = "") -> Group:
    """Answer, table and what they mean; `repeat` is the command that trains the advised seeds."""
    mark = results.origin.mark.rstrip(": ")
    mark = ". ".join(filter(None, (mark, describe_origins(results))))
    parts: list[Any] = [Text(mark)] if mark else []
    parts += [Text(text, "yellow")] if (text := describe_quick(results)) else []
    parts.append(Text(_plain(str(answer)), "bold"))
    parts.append(_make_table(results))
    texts = ["" if results.by_k else _explain_intervals(results)]
    texts += [
        state_common_models(results, "study"),
        answer.meaning,
        answer.calibration,
        "" if _shows_gains(results) else answer.gains,
        answer.resolution,
    ]
    texts += [state_reasons(results), f"{answer.advice} {repeat}".strip()]
    texts += [state_settings(results.about.get("methods", []))]
    texts += [_explain_brackets(results), _list_missing(results), results.about.get("made_unalike", "")]
    parts += [Text(_plain(text)) for text in texts if text]
    if describe_chance(results):
        text = "Warning: mean AUCs not above 0.5 where the model was trained: labels reversed, or too little training"
        parts.append(Text(f"{text} (page, --verbose).", "yellow"))
    return Group(*parts)


def _plain(text: str) -> str:
    """Not every terminal has the long minus."""
    return text.replace("−", "-")


def _make_table(results: Results) -> Table:
    if own := find_presentation(results):
        return own.summarize(results)
    if results.in_groups:
        models = list(results.view("alternatives")["model"].unique())
        return _list_hospitals(results, models, "alternatives") if models else _list_methods(results)
    models = list(results.view("study")["model"].unique())
    if not results.by_k:
        return _list_methods(results)
    models = models if len(models) <= _MODELS else [models[0], models[-1]]
    if _shows_gains(results):
        return _list_gains(results, models)
    if len(results.view("hospitals")):
        return _list_hospitals(results, models)
    aucs = {(row["model"], row["disease"]): row for row in results.list_estimates("study")}
    gains = {row["disease"]: row for row in results.list_differences("study", model=models[-1])}
    rows = [
        [_name_disease(name), *(number(aucs[model, name]["auc"]) for model in models), *_show_change(gains.get(name))]
        for name in results.view("study")["disease"].unique()
    ]
    return _lay_out("AUC", models, rows)


def _shows_gains(results: Results) -> bool:
    """Whether the table has each hospital's own data, and so says who gains."""
    return results.by_k and not results.in_groups and find_gain_view(results) == "alternatives"


def _list_gains(results: Results, models: Sequence[str]) -> Table:
    """Own data of each hospital, each K but the target alone, and the last one minus own data."""
    alone = {row["place"]: row for row in results.list_estimates("alternatives", disease="mean", kind=OWN_DATA)}
    gains = {row["place"]: row for row in results.list_differences("alternatives", disease="mean", kind=COMMON)}
    rows, shown = [], list[str]()
    for means in group_rows(results.list_estimates("hospitals", disease="mean"), "place"):
        at, place = {row["model"]: row for row in means}, means[0]["place"]
        shown = [model for model in models if model in at and at[model]["k"] > 1]
        cells = [_show_auc(at[model]) for model in shown]
        own = number(alone[place]["auc"]) if place in alone else "-"
        rows.append([place, own, *cells, *_show_change(gains.get(place))])
    return _lay_out("mean AUC at", ["own data", *shown], rows, "gain")


def _list_hospitals(results: Results, models: Sequence[str], view: str = "hospitals") -> Table:
    """The change is that of the last model."""
    compared = results.list_differences(view, disease="mean", model=models[-1])
    gains = {row["place"]: row for row in compared}
    rows = []
    for means in group_rows(results.list_estimates(view, disease="mean"), "place"):
        at = {row["model"]: row for row in means}
        cells = [_show_auc(at[model]) if model in at else "-" for model in models]
        rows.append([means[0]["place"], *cells, *_show_change(gains.get(means[0]["place"]))])
    return _lay_out("mean AUC at", models, rows)


def _list_methods(results: Results) -> Table:
    gains = {row["model"]: row for row in results.list_differences("study", disease="mean")}
    seeds, rows = summarize_seeds(results), []
    for row in results.list_estimates("study", disease="mean"):
        gain = gains.get(row["model"])
        spread = "" if row["sd"] is None else f"±{row['sd']:.3f}"
        test = "" if gain is None or gain["p_holm"] is None else p_value(gain["p_holm"])
        median = number(seeds["median"][row["model"]]) if row["model"] in seeds.index else ""
        rows.append([row["model"], number(row["auc"]), spread, median, *_show_change(gain), test])
    heads = (
        "mean AUC",
        "over runs" if len(results.splits) > 1 else "over seeds",
        "median",
        "change",
        _INTERVAL,
        "p (Holm)",
    )
    return text_table("", ("method",), heads, rows, light=True)


def _lay_out(head: str, models: Sequence[str], rows: Sequence[Sequence[str]], change: str = "change") -> Table:
    table = text_table("", (head,), (*models, change, _INTERVAL), rows)
    table.box, table.pad_edge = None, False
    return table


def _show_auc(row: EstimateRow) -> str:
    return number(row["auc"]) if row["takes_part"] or row["auc"] is None else f"({number(row['auc'])})"


def _show_change(row: DifferenceRow | None) -> tuple[str, str]:
    if row is None or row["difference"] is None:
        return "-", ""
    return _plain(signed(row["difference"])), _plain(pair(get_interval(row), 3, signed))


def _explain_intervals(results: Results) -> str:
    """Line under a comparison: from which method its changes are, and over what their intervals."""
    changes = [row for row in list_difference_rows(results.differences) if row["difference"] is not None]
    references = dict.fromkeys(row["reference"] for row in changes)
    change = f"change: mean AUC minus that of {next(iter(references))}" if len(references) == 1 else ""
    rows = [row for row in changes if get_interval(row) is not None]
    if not rows:
        return f"{change}." if change else ""
    over = ["test patients" if results.about.get("has_patients", True) else "test images"]
    over += ["training seeds"] * any(row["of_seeds"] for row in rows)
    over += ["splits of the patients"] * any(row["splits"] for row in rows)
    names = f"{', '.join(over[:-1])} and {over[-1]}" if over[1:] else f"{over[0]}, for these trained models"
    return f"{change}{'; ' * bool(change)}95% interval: of the change of the mean AUC, over {names}."


def _explain_brackets(results: Results) -> str:
    hospitals, gaps = results.view("hospitals"), list_incomplete(find_attendance(results).values())
    if hospitals.empty:
        return "".join(f"{text}. " for text in gaps).strip()
    shown = hospitals[hospitals["k"] > 1] if _shows_gains(results) else hospitals
    before = "" if shown["takes_part"].all() else "; in parentheses: before this one took part"
    own = "; own data: this hospital alone" if _shows_gains(results) else ""
    if own and set(hospitals["place"]) - set(results.view("alternatives")["place"]):
        own += " (-: not trained)"
    parts = "".join([*(f"; {text}" for text in gaps), before, own])
    return f"K hospitals train together{parts}." if parts else ""


def _list_missing(results: Results) -> str:
    """List what a mean lacks."""
    if own := find_presentation(results):
        undefined = [*map(LeftOut, own.list_missing(results))]
    else:
        undefined = list_out_of_mean(results)
        others = dict[str, LeftOut]()
        if len(results.view("hospitals")) and (results.by_k or results.in_groups):  # else no hospital has a line
            others = list_without_mean(results, "hospitals") | list_out_of_hospitals(results)
        named = {results.about["target"], *list_few_at(results)}
        undefined += [left_out for place, left_out in others.items() if place not in named]
    return f"Left out of the mean: {join_left_out(undefined)}." if undefined else ""


def _name_disease(name: str) -> str:
    return "mean" if name == "mean" else format_title(name)
