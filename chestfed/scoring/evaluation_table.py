"""An evaluation as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chestfed.core.diseases import TITLES
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.protocols import unit_of
from chestfed.evaluation.summary import MAX_FPR, METHODS, SHARE, Summary
from chestfed.scoring.evaluate import Evaluation

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Numbers whose intervals the printed table has room for, by the beginnings of their names; the files have all.
_WITH_INTERVAL = ("auc", "sensitivity_at", "specificity_at")


def render(evaluation: Evaluation) -> RenderableType:
    """The tables for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    summary, protocol = evaluation.summary, evaluation.summary.protocol
    unit = {"image": "images", "study": "studies"}[unit_of(protocol)]
    of_images = f" ({evaluation.images} images)" if unit == "studies" else ""
    caption = (
        f"{protocol}: n = {summary.units} {unit} of {summary.patients} patients{of_images}, {evaluation.split} split. "
        f"In brackets: {METHODS[summary.method]}"
        + (
            ""
            if summary.method == "bootstrap"
            else "; of sens@spec and spec@sens a patient-clustered bootstrap interval"
        )
        + f". sens@spec: sensitivity at a specificity of {SHARE} or more; spec@sens: the reverse. pAUC: up to a "
        f"false-positive rate of {MAX_FPR}, 0.5 without information. ECE: equal-width bins. "
        f"Input: {_input(evaluation)}."
    )
    shown = Table(title=evaluation.headline, caption=caption, title_justify="left", caption_justify="left")
    shown.add_column("disease", overflow="fold")
    for name in ("n+ / n-", "AUC", "AUPRC", "pAUC", f"sens@spec {SHARE}", f"spec@sens {SHARE}", "Brier", "ECE"):
        shown.add_column(name, justify="right")
    for one in summary.diseases:
        counts = f"{one.auc.positives} / {one.auc.negatives}"
        cells = [
            _shown(value, one.interval(name) if name.startswith(_WITH_INTERVAL) else None)
            for name, value in list(one.values().items())[:-1]
        ]
        shown.add_row(TITLES.get(one.disease, one.disease), counts, *cells)
    means = list(summary.means.values())[:-1]
    shown.add_section()
    shown.add_row(
        "mean",
        f"over {means[0].diseases} of {len(summary.diseases)}",
        *(_shown(mean.value, mean.bounds.interval) for mean in means),
        style="bold",
    )
    parts: list[RenderableType] = [shown]
    undefined = [f"{TITLES.get(one.disease, one.disease)}: {one.reason}" for one in summary.diseases if one.reason]
    if undefined:
        parts.append(Text("Not defined, and left out of the mean: " + "; ".join(undefined) + _one_class(summary)))
    if summary.subgroups:
        parts.append(_subgroups(evaluation, unit))
    parts += [Text(note, style="yellow") for note in evaluation.notes]
    return Group(*parts)


def _one_class(summary: Summary) -> str:
    """What the count beside the mean does not say: which numbers are over more diseases than the AUC."""
    auc, brier = summary.means["auc"].diseases, summary.means["brier"].diseases
    if brier in (auc, 0):
        return ""
    return f". Brier and ECE need no second class: their means are over {brier} of {len(summary.diseases)}"


def _subgroups(evaluation: Evaluation, unit: str) -> RenderableType:
    from rich.table import Table

    summary = evaluation.summary
    mark = evaluation.origin.short_mark
    caption = (
        f"{summary.protocol}. AUC within the group, its interval as above, n+ / n-; the mean is over the diseases that "
        "have one."
    )
    shown = Table(title=f"{mark}Subgroups", caption=caption, title_justify="left", caption_justify="left")
    shown.add_column("group")
    shown.add_column(f"n ({unit})", justify="right")
    for one in summary.diseases:
        shown.add_column(TITLES.get(one.disease, one.disease), justify="right")
    shown.add_column("mean", justify="right", style="bold")
    for column, groups in summary.subgroups.items():
        for group in groups:
            cells = [
                f"{_shown(auc.auc, bounds.interval)}\n{auc.positives} / {auc.negatives}"
                for auc, bounds in zip(group.diseases, group.intervals.diseases, strict=True)
            ]
            defined = sum(auc.auc is not None for auc in group.diseases)
            mean = f"{_shown(group.mean, group.intervals.mean.interval)}\nover {defined}"
            shown.add_row(f"{column}: {group.value}", str(group.images), *cells, mean)
        shown.add_section()
    return shown


def _input(evaluation: Evaluation) -> str:
    preprocess = evaluation.scorer.preprocess
    return f"{evaluation.scorer.input}, {preprocess.size} x {preprocess.size} pixels, {preprocess.fit}"


def _shown(value: float | None, interval: Interval | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f}\n[{interval.low:.2f}, {interval.high:.2f}]"
