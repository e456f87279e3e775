"""The page's tables of AUCs by sex, age, view and named groups, from those that a study stores beside its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.results.evaluation.estimates import Estimate
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.intervals.methods import Intervals
from chestfed.results.evaluation.joining.groups import find_gaps
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.summary import FEW, PAIRS, WITHIN, Values, age_bands, estimate_groups
from chestfed.results.tables.files import scored_frame
from chestfed.results.tables.grid import Cell, Cells, Grid, Rows, make_grid, number, pair, signed
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.views import drop_single_mean

#: What the tables' words mean.
ABOUT_GROUPS: Final = (
    f"{FEW[0].upper()}{FEW[1:]}. {PAIRS[0].upper()}{PAIRS[1:]}. Worst and best group are found on the test set, so by "
    "chance alone there is a gap; its interval is by bootstrap over patients."
)


def make_subgroup_grids(run: RunFolder, how: Intervals) -> list[Grid]:
    """The AUC of the largest K in each group with intervals by `how`, and the gap between the best and the worst.

    Empty if the study knows no sex, age or view. A group's AUC compares its positives with its own negatives
    (`estimate_groups`).
    """
    predictions = run.predictions()
    columns = predictions.columns[predictions.columns.str.startswith("group_")]
    values: dict[str, Values] = {str(name).removeprefix("group_"): predictions[name] for name in columns}
    if not values:
        return []
    scored = scored_frame(predictions, run.diseases)
    bands = age_bands(np.array([])).categories
    if "age" in values and predictions["group_age"].dropna().isin(bands).all():
        values["age"] = pd.Categorical(predictions["group_age"], bands)
    rows: Rows = []
    groups: dict[str, np.ndarray] = {}
    found: dict[tuple[str, str], Interval | None] = {}
    for part in estimate_groups(scored, values, how):
        if part.group != WITHIN:
            groups[part.head] = part.rows
            found |= {(part.head, estimate.disease): estimate.interval for estimate in part.estimates}
        patients, images = predictions.loc[part.rows, "patient"].nunique(), int(part.rows.sum())
        over = sum(estimate.in_mean for estimate in part.estimates[:-1])
        shown = drop_single_mean(part.estimates)
        cells = (_make_cell(estimate, over, part.all_pairs.get(estimate.disease)) for estimate in shown)
        rows.append((part.head, (Cell(f"{images:,}", (f"{patients:,} patients",)), *cells)))
    heads = ("group", "images", *(format_title(disease) for disease in drop_single_mean((*run.diseases, "mean"))))
    caption = (
        f"AUC of K={run.settings.ks[-1]} by group{run.settings.over_hospitals}; below each its 95% interval over "
        f"patients ({how.method}), n+ and n−"
    )
    gaps = list(_list_gaps(scored, groups, found))
    names = ("disease", "worst group", "best group", "gap")
    about = "Gap between the groups with the lowest and the highest AUC; below each its 95% interval"
    return [make_grid("subgroups", caption, heads, rows), *([make_grid("gaps", about, names, gaps)] if gaps else [])]


def _list_gaps(
    scored: Scored, groups: Mapping[str, np.ndarray], found: Mapping[tuple[str, str], Interval | None]
) -> Iterator[tuple[str, Cells]]:
    """The worst and the best group of each disease, and the gap between them; none where hospitals are averaged.

    `found` are the intervals of the AUCs, by group and disease, as the table has them.
    """
    diseases = []
    for column, labels in zip(scored.columns(), scored.labels.T, strict=True):
        if scored.hospitals is None and not column.reason:
            labeled = ~np.isnan(labels)
            diseases.append((column, {name: members[labeled] for name, members in groups.items()}))
    for (column, _), gap in zip(diseases, find_gaps(diseases), strict=True):
        if gap is not None:
            ends = ((gap.worst, gap.worst_auc), (gap.best, gap.best_auc))
            cells = [Cell(f"{name} {number(auc)}", _below(found[name, column.disease])) for name, auc in ends]
            apart = Cell(signed(gap.gap), (pair(gap.gap_interval, 3, signed),))
            yield format_title(column.disease), (*cells, apart)


def _below(interval: Interval | None) -> tuple[str, ...]:
    return (pair(interval),) if interval is not None else ()


def _make_cell(estimate: Estimate, over: int, all_pairs: float | None) -> Cell:
    if estimate.value is None:
        return Cell("-", (f"over {over}" if estimate.disease == "mean" else estimate.reason,))
    few = ", few" * (not estimate.in_mean)
    counts = f"over {over}" if estimate.disease == "mean" else f"{estimate.positives:,} / {estimate.negatives:,}{few}"
    plain = "" if all_pairs is None else f"all pairs {number(all_pairs)}"
    return Cell(number(estimate.value), tuple(filter(None, (pair(estimate.interval), counts, plain))))
