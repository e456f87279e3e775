"""The first screen of a study in a terminal: question, answer, one table and what it means, 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from chestfed.core.console import text_table
from chestfed.core.diseases import format_title
from chestfed.results.tables.answer import Answer
from chestfed.results.tables.frames import DifferenceRow, EstimateRow, Results, get_interval, group_rows
from chestfed.results.tables.grid import number, p_value, pair, signed
from chestfed.results.tables.sentences import average_seen, describe_chance
from chestfed.results.tables.settings import state_settings
from chestfed.results.tables.views import list_left_out, list_undefined, list_undefined_held_out

#: With more models than this, the table has the first and the last one.
_MODELS: Final = 5
_CHANGE: Final = ("change", "95% interval")


def render_summary(results: Results, answer: Answer) -> Group:
    """All but the last line, which is the answer again."""
    mark = results.origin.mark.rstrip(": ")
    parts: list[Any] = [Text(mark)] if mark else []
    parts.append(Text(_plain(str(answer)), "bold"))
    parts.append(_make_table(results))
    texts = [answer.meaning, answer.resolution, state_settings(results.about.get("methods", []))]
    texts += [_explain_brackets(results), _list_missing(results)]
    parts += [Text(_plain(text)) for text in texts if text]
    if describe_chance(results):
        text = "Warning: mean AUCs below 0.5 where the model was trained: reversed labels, or too little training"
        parts.append(Text(f"{text} (page, --verbose).", "yellow"))
    return Group(*parts)


def _plain(text: str) -> str:
    """Not every terminal has the long minus."""
    return text.replace("−", "-")


def _make_table(results: Results) -> Table:
    if len(results.view("held_out")):
        return _list_held_out(results)
    if results.about.get("along"):
        models = list(results.view("alternatives")["model"].unique())
        return _list_hospitals(results, models, "alternatives") if models else _list_methods(results)
    models = list(results.view("study")["model"].unique())
    if not results.by_k:
        return _list_methods(results)
    models = models if len(models) <= _MODELS else [models[0], models[-1]]
    if len(results.view("hospitals")):
        return _list_hospitals(results, models)
    aucs = {(row["model"], row["disease"]): row for row in results.list_estimates("study")}
    gains = {row["disease"]: row for row in results.list_differences("study", model=models[-1])}
    rows = [
        [_name_disease(name), *(number(aucs[model, name]["auc"]) for model in models), *_show_change(gains.get(name))]
        for name in results.view("study")["disease"].unique()
    ]
    return _lay_out("AUC", models, rows)


def _list_hospitals(results: Results, models: Sequence[str], view: str = "hospitals") -> Table:
    """The change is that of the last model."""
    compared = results.list_differences(view, disease="mean", model=models[-1])
    gains = {row["hospital"]: row for row in compared}
    rows = []
    for means in group_rows(results.list_estimates(view, disease="mean"), "hospital"):
        at = {row["model"]: row for row in means}
        cells = [_show_auc(at[model]) if model in at else "-" for model in models]
        rows.append([means[0]["hospital"], *cells, *_show_change(gains.get(means[0]["hospital"]))])
    return _lay_out("mean AUC at", models, rows)


def _list_methods(results: Results) -> Table:
    gains = {row["model"]: row for row in results.list_differences("study", disease="mean")}
    rows = []
    for row in results.list_estimates("study", disease="mean"):
        gain = gains.get(row["model"])
        spread = "" if row["sd"] is None else f"±{row['sd']:.3f}"
        test = "" if gain is None or gain["p_holm"] is None else p_value(gain["p_holm"])
        rows.append([row["model"], number(row["auc"]), spread, *_show_change(gain), test])
    return text_table("", ("method",), ("mean AUC", "over seeds", *_CHANGE, "p (Holm)"), rows, light=True)


def _list_held_out(results: Results) -> Table:
    rows = []
    for part in group_rows(results.list_estimates("held_out"), "model"):
        mean = next(row for row in part if row["disease"] == "mean" and not row["takes_part"])
        interval = f" {pair(get_interval(mean))}".rstrip()
        seen = (average_seen(part) or [None])[-1]
        rows.append([mean["model"], f"{mean['images']:,}", f"{number(mean['auc'])}{interval}", number(seen)])
    heads = ("images", "mean AUC, held out", "at sites trained on")
    return text_table("", ("site",), heads, rows, light=True)


def _lay_out(head: str, models: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = text_table("", (head,), (*models, *_CHANGE), rows)
    table.box, table.pad_edge = None, False
    for column in table.columns:
        column.no_wrap = True
    return table


def _show_auc(row: EstimateRow) -> str:
    return number(row["auc"]) if row["takes_part"] or row["auc"] is None else f"({number(row['auc'])})"


def _show_change(row: DifferenceRow | None) -> tuple[str, str]:
    if row is None or row["difference"] is None:
        return "-", ""
    return _plain(signed(row["difference"])), _plain(pair(get_interval(row), 3, signed))


def _explain_brackets(results: Results) -> str:
    hospitals = results.view("hospitals")
    if hospitals.empty or hospitals["takes_part"].all():
        return ""
    return "K hospitals train together; in parentheses: before this one took part."


def _list_missing(results: Results) -> str:
    """What a mean is without."""
    if len(results.view("held_out")):
        undefined = list_undefined_held_out(results)
    else:
        undefined = list_undefined(results) + list_left_out(results)
    return f"Left out of the mean: {'; '.join(undefined)}." if undefined else ""


def _name_disease(name: str) -> str:
    return "mean" if name == "mean" else format_title(name)
