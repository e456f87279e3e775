"""The page's table of AUCs by sex, age and view, from the groups that a study stores beside its scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from chestfed.core.diseases import title_of
from chestfed.evaluation.estimates import Estimate, auc_estimates
from chestfed.evaluation.intervals.methods import Intervals
from chestfed.evaluation.labeled import Scored, list_cells
from chestfed.evaluation.summary import Values, age_bands, groups_of
from chestfed.results.grid import Cell, Grid, Rows, drop_single_mean, grid_of, make_auc_cell
from chestfed.results.run_folder import RunFolder, scored_frame

#: With fewer patients than this with a disease, or without it, a group has no AUC.
FEWEST = 5
#: Needs no resamples.
_HOW = Intervals("obuchowski", 0)


def subgroups(run: RunFolder) -> Grid | None:
    """The AUC of the largest K in each group; None if the study knows no sex, age or view.

    A group's AUC compares its positives with its own negatives. The mean is over the diseases that have an AUC there.
    """
    found = run.predictions()
    columns = found.columns[found.columns.str.startswith("group_")]
    named: dict[str, Values] = {str(name).removeprefix("group_"): found[name] for name in columns}
    if not named:
        return None
    scored = scored_frame(found, run.diseases)
    bands = age_bands(np.array([])).categories
    if "age" in named and found["group_age"].dropna().isin(bands).all():
        named["age"] = pd.Categorical(found["group_age"], bands)
    rows: Rows = []
    for name, group, chosen in groups_of(named, len(found)):
        patients = found.loc[chosen, "patient"].nunique()
        cells = (_cell(one) for one in drop_single_mean(_estimates(scored.where(chosen))))
        rows.append((f"{name} {group}", (Cell(f"{chosen.sum():,}", (f"{patients:,} patients",)), *cells)))
    heads = ("group", "images", *(title_of(disease) for disease in drop_single_mean((*run.diseases, "mean"))))
    caption = (
        f"AUC of K={run.settings.ks[-1]} by group{run.settings.over_hospitals}; below each its 95% interval over "
        "patients (obuchowski), n+ and n−. "
        f"Few: under {FEWEST} patients with the disease, or without it"
    )
    return grid_of("subgroups", caption, heads, rows)


def _estimates(group: Scored) -> tuple[Estimate, ...]:
    """Of each disease and their mean; a disease with few patients (at a hospital) counts as one without labels."""
    labels = group.labels.copy()
    for cell in list_cells(labels, group.hospitals):
        classes = (group.patients[cell.rows[cell.positive == positive]] for positive in (True, False))
        if min(len(np.unique(patients)) for patients in classes) < FEWEST:
            labels[cell.rows, cell.column] = np.nan
    return auc_estimates(replace(group, labels=labels), _HOW)


def _cell(one: Estimate) -> Cell:
    if one.value is None:
        return Cell("few")
    cell = make_auc_cell(one.record("auc"))
    counts = () if one.disease == "mean" else (f"{one.positives:,} / {one.negatives:,}",)
    return Cell(cell.text, (*cell.below, *counts))
