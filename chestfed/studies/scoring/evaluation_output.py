"""The files of an evaluation, and its tables for a terminal; both show the frames of its summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chestfed.core.checkpoint import json_text, write_text
from chestfed.core.diseases import format_title
from chestfed.core.manifest import EVALUATED, write_manifest
from chestfed.core.pseudonyms import refuse_key_within
from chestfed.results.evaluation.estimates import as_csv
from chestfed.results.evaluation.intervals.interval import OTHER_NUMBERS, Interval
from chestfed.results.evaluation.intervals.methods import METHODS
from chestfed.results.evaluation.metrics import MAX_FPR, SHARE
from chestfed.results.evaluation.protocols import name_unit
from chestfed.results.evaluation.summary import FEW, MAIN, PAIRS, WITHIN, Summary, name_group
from chestfed.results.tables.decisions import MEANING, make_decision_grid
from chestfed.results.tables.grid import Cell, Grid, Line, number, pair, rich_table
from chestfed.results.tables.predictions import write_predictions
from chestfed.results.tables.run_folder import EVALUATION, PREDICTIONS
from chestfed.results.tables.sentences import describe_scoring, name_program, number_references
from chestfed.results.tables.views import drop_single_mean
from chestfed.studies.scoring.evaluate import Evaluation, list_rows
from chestfed.studies.training.identity import software_versions

if TYPE_CHECKING:
    from rich.console import RenderableType

#: The frames of a summary, each a CSV file and a key of `evaluation.json`.
FRAMES = ("metrics", "subgroups", "reliability")
#: Those of `decisions`, if there are some: at their thresholds, and over all thresholds.
DECISIONS = ("confusion", "decision_curve")
#: The numbers of the printed table, in the order of `MAIN`, and those whose intervals it has room for.
_HEADS = ("AUC", "AUPRC", "pAUC", f"sens. at spec. {SHARE}", f"spec. at sens. {SHARE}", "Brier", "ECE")
_WITH_INTERVAL = ("auc", "sensitivity_at", "specificity_at")


def write(evaluation: Evaluation, folder: Path) -> None:
    """Write the CSV files, `methods.md`, `predictions.parquet`, their manifest, and `evaluation.json`."""
    refuse_key_within(folder, evaluation.predictions.attrs["key"])
    folder.mkdir(parents=True, exist_ok=True)
    summary = evaluation.summary
    head = {"data": str(evaluation.origin), "site": evaluation.site, "split": evaluation.split}
    frames = {name: getattr(summary, name) for name in FRAMES}
    if (decisions := evaluation.decisions) is not None:
        frames |= dict(zip(DECISIONS, (decisions.confusion, decisions.curve), strict=True))
    for name, frame in frames.items():
        write_text(folder / f"{name}.csv", as_csv(frame.assign(**head)[[*head, *frame]]))
    unit = {"image": "images", "study": "studies"}[name_unit(summary.protocol)]
    what = f"{summary.units:,} {unit} ({summary.protocol}, {evaluation.split} split of {evaluation.title})"
    sentences = describe_scoring(what, summary.patients, len(summary.diseases), summary.intervals)
    statistics = [(sentence, ())] if (sentence := evaluation.statistics.sentence.rstrip(".")) else []
    write_text(folder / "methods.md", str(number_references([*sentences, *statistics, name_program()])))
    write_predictions(folder / PREDICTIONS, evaluation.predictions)
    about = json_text(_about(evaluation) | {name: list_rows(frame) for name, frame in frames.items()})
    write_manifest(
        folder, EVALUATED, [*(f"{name}.csv" for name in frames), "methods.md", PREDICTIONS], {EVALUATION: about}
    )
    write_text(folder / EVALUATION, about)


def render(evaluation: Evaluation) -> RenderableType:
    """The tables for a terminal."""
    from rich.console import Group
    from rich.text import Text

    summary = evaluation.summary
    unit = {"image": "images", "study": "studies"}[name_unit(summary.protocol)]
    of_images = f" ({evaluation.images} images)" if unit == "studies" else ""
    method, preprocess = summary.intervals.method, evaluation.scorer.preprocess
    caption = (
        f"{summary.protocol}: n = {summary.units} {unit} of {summary.patients} patients{of_images}, {evaluation.split} "
        f"split. In brackets: {METHODS[method].about} ({method}; {METHODS[method].references[0]}); of sens. at spec. "
        f"and spec. at sens.: {OTHER_NUMBERS}. "
        f"sens. at spec.: sensitivity at a specificity of {SHARE} or more; spec. at sens.: the reverse. pAUC: up to a "
        f"false-positive rate of {MAX_FPR}, 0.5 without information. ECE: expected calibration error, 15 bins "
        "of equally many images. "
        f"Input: {evaluation.scorer.input}, {preprocess.size} x {preprocess.size} pixels, {preprocess.fit}. "
        f"{evaluation.statistics.sentence}"
    )
    parts: list[RenderableType] = [rich_table(metrics_grid(summary), evaluation.headline, caption)]
    if points := _list_thresholds(summary):
        parts.append(Text(points))
    aucs = summary.metrics.query("metric == 'auc' and value.isna() and disease != 'mean'")
    if len(aucs):
        nothing = (
            f"{format_title(disease)}: {reason}"
            for disease, reason in zip(aucs["disease"], aucs["reason"], strict=True)
        )
        parts.append(Text("Not defined, and left out of the mean: " + "; ".join(nothing)))
    if len(summary.subgroups):
        caption = f"{summary.protocol}. AUC within the group, its interval as above, n+ / n-; {FEW}."
        caption += f" {PAIRS[0].upper()}{PAIRS[1:]}." * bool((summary.subgroups["group"] == WITHIN).any())
        title = f"{evaluation.origin.short_mark}Subgroups"
        parts.append(rich_table(subgroup_grid(summary, f"n ({unit})"), title, caption))
    if evaluation.decisions is not None:
        title = f"{evaluation.origin.short_mark}Decisions at a threshold"
        caption = f"{summary.protocol}. An image is called positive from the threshold on. {MEANING}. Intervals over "
        caption += f"patients: {method}."
        parts.append(rich_table(make_decision_grid(evaluation.decisions), title, caption))
    return Group(*parts, *(Text(note, style="yellow") for note in evaluation.notes))


def _list_thresholds(summary: Summary) -> str:
    """The thresholds of each disease's sensitivity at the fixed specificity."""
    points = []
    for disease in summary.diseases:
        rows = summary.metrics[summary.metrics["disease"] == disease].set_index("metric")["value"]
        threshold, sensitivity = (rows[f"at_specificity_{SHARE}.{part}"] for part in ("threshold", "sensitivity"))
        if np.isfinite(threshold):
            points.append(f"{format_title(disease)} {threshold:.3g} (sensitivity {number(sensitivity)})")
    if not points:
        return ""
    advice = "chosen on these images, so optimistic; --threshold scores one that was chosen before"
    return f"Thresholds for a specificity of {SHARE}: {', '.join(points)}: {advice}"


def metrics_grid(summary: Summary) -> Grid:
    """A line per disease, and at last the mean."""
    lines = []
    for disease in drop_single_mean((*summary.diseases, "mean")):
        rows = summary.metrics[summary.metrics["disease"] == disease].set_index("metric").loc[[*MAIN[: len(_HEADS)]]]
        cells = [
            _cell(row, row["value"], interval=row["metric"].startswith(_WITH_INTERVAL))
            for row in rows.reset_index().to_dict("records")
        ]
        first = rows.loc["auc"]
        counts = f"{first['positives']} / {first['negatives']}"
        if disease == "mean":
            counts = f"over {first['over_diseases']} of {len(summary.diseases)}"
        elif not first["in_mean"] and not np.isnan(first["value"]):
            counts += ", few"
        lines.append(Line(format_title(disease), (Cell(counts), *cells), disease if disease == "mean" else ""))
    return Grid("metrics", "", tuple(map(Cell, ("disease", "n+ / n-", *_HEADS))), tuple(lines))


def subgroup_grid(summary: Summary, head: str) -> Grid:
    """A line per subgroup."""
    lines = []
    for (column, group), rows in summary.subgroups.groupby(["column", "group"], sort=False):
        cells = []
        for row in drop_single_mean(rows.to_dict("records")):
            over = (
                f"over {row['over_diseases']}"
                if row["disease"] == "mean"
                else f"{row['positives']} / {row['negatives']}{', few' * (not row['in_mean'])}"
            )
            cell = _cell(row, row["auc"])
            plain = () if pd.isna(row["auc_all_pairs"]) else (f"all pairs {number(row['auc_all_pairs'])}",)
            cells.append(Cell(cell.text, (*cell.below, over, *plain)))
        lines.append(Line(name_group(str(column), str(group)), (Cell(str(rows["group_n"].iloc[0])), *cells)))
    diseases = (Cell(format_title(disease)) for disease in drop_single_mean((*summary.diseases, "mean")))
    return Grid("subgroups", "", (Cell("group"), Cell(head), *diseases), tuple(lines))


def _cell(row: Any, value: float, *, interval: bool = True) -> Cell:
    if np.isnan(value):
        return Cell("-")
    bounded = interval and not np.isnan(row["low"])
    return Cell(number(value), (pair(Interval(row["low"], row["high"]), 2),) if bounded else ())


def _about(evaluation: Evaluation) -> dict[str, Any]:
    scorer, summary = evaluation.scorer, evaluation.summary
    return {
        "title": evaluation.headline,
        **evaluation.origin.keys(),
        "notes": list(evaluation.notes),
        "model": {
            "name": scorer.name,
            "kind": scorer.kind,
            "digest": scorer.digest,
            "outputs": list(scorer.outputs),
            "output": scorer.output,
            "input": scorer.input.model_dump(mode="json"),
            "preprocess": scorer.preprocess.model_dump(mode="json"),
            "trained_on": None if scorer.origin is None else str(scorer.origin),
        },
        "batch_norm": evaluation.statistics.choice,
        "site": evaluation.site,
        "split": evaluation.split,
        "key": evaluation.predictions.attrs["key"],
        "unit": name_unit(summary.protocol),
        "images": evaluation.images,
        "images_left_out": evaluation.left_out,
        "protocol": summary.protocol,
        "n": summary.units,
        "patients": summary.patients,
        "patients_trained_on": evaluation.patients_trained_on,
        "interval_method": summary.intervals.method,
        "interval": METHODS[summary.intervals.method].about,
        "interval_references": list(METHODS[summary.intervals.method].references),
        "interval_of_other_numbers": OTHER_NUMBERS,
        "versions": software_versions(),
    }
