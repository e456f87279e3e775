"""The page's table of AUCs by sex, age and view, from the groups that a study stores beside its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.results.evaluation.estimates import Estimate, auc_estimates
from chestfed.results.evaluation.intervals.bootstrap import enough_resamples
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.joining.groups import FEWEST, find_gap
from chestfed.results.evaluation.labeled import Scored, list_cells
from chestfed.results.evaluation.summary import Values, age_bands, list_groups
from chestfed.results.tables.files import scored_frame
from chestfed.results.tables.grid import Cell, Grid, Rows, make_grid, number, pair, signed
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.views import drop_single_mean


def make_subgroup_grid(run: RunFolder, how: Intervals) -> Grid | None:
    """The AUC of the largest K in each group, with intervals by `how`; None if the study knows no sex, age or view.

    A group's AUC compares its positives with its own negatives. The mean is over the diseases that have an AUC there. A
    large group gets fewer resamples.
    """
    predictions = run.predictions()
    columns = predictions.columns[predictions.columns.str.startswith("group_")]
    values: dict[str, Values] = {str(name).removeprefix("group_"): predictions[name] for name in columns}
    if not values:
        return None
    scored = scored_frame(predictions, run.diseases)
    bands = age_bands(np.array([])).categories
    if "age" in values and predictions["group_age"].dropna().isin(bands).all():
        values["age"] = pd.Categorical(predictions["group_age"], bands)
    rows: Rows = []
    groups: dict[str, np.ndarray] = {}
    for name, group, members in list_groups(values, len(predictions)):
        groups[f"{name} {group}"] = members
        patients, images = predictions.loc[members, "patient"].nunique(), int(members.sum())
        enough = replace(how, resamples=enough_resamples(how.resamples, images))
        cells = map(_make_cell, drop_single_mean(_estimate(scored.where(members), enough)))
        rows.append((f"{name} {group}", (Cell(f"{images:,}", (f"{patients:,} patients",)), *cells)))
    heads = ("group", "images", *(format_title(disease) for disease in drop_single_mean((*run.diseases, "mean"))))
    caption = (
        f"AUC of K={run.settings.ks[-1]} by group{run.settings.over_hospitals}; below each its 95% interval over "
        f"patients ({how.method}), n+ and n−. "
        f"Few: under {FEWEST} patients with the disease, or without it{_describe_gaps(scored, groups)}"
    )
    return make_grid("subgroups", caption, heads, rows)


def _describe_gaps(scored: Scored, groups: Mapping[str, np.ndarray]) -> str:
    """The worst and the best group of each disease, and the gap between them; empty where hospitals are averaged."""
    texts = []
    for column, labels in zip(scored.columns(), scored.labels.T, strict=True):
        if scored.hospitals is not None or column.reason:
            continue
        labeled = ~np.isnan(labels)
        gap = find_gap(column, {name: members[labeled] for name, members in groups.items()})
        if gap is not None:
            worst = f"{gap.worst} {number(gap.worst_auc)} {pair(gap.worst_interval)}"
            best = f"{gap.best} {number(gap.best_auc)}"
            apart = f"{signed(gap.gap)} {pair(gap.gap_interval, 3, signed)}"
            texts.append(f"{format_title(column.disease)}: worst {worst}, best {best}, gap {apart}")
    return f". Groups apart, which some are by chance; 95% by bootstrap: {'; '.join(texts)}" if texts else ""


def _estimate(group: Scored, how: Intervals) -> tuple[Estimate, ...]:
    """Of each disease and their mean; a disease with few patients (at a hospital) counts as one without labels."""
    labels = group.labels.copy()
    for cell in list_cells(labels, group.hospitals):
        classes = (group.patients[cell.rows[cell.positive == positive]] for positive in (True, False))
        if min(len(np.unique(patients)) for patients in classes) < FEWEST:
            labels[cell.rows, cell.column] = np.nan
    return auc_estimates(replace(group, labels=labels), how)


def _make_cell(estimate: Estimate) -> Cell:
    if estimate.value is None:
        return Cell("few")
    counts = "" if estimate.disease == "mean" else f"{estimate.positives:,} / {estimate.negatives:,}"
    return Cell(number(estimate.value), tuple(filter(None, (pair(estimate.interval), counts))))
