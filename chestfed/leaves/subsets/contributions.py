"""Contribution of each partner to a target, from the finished studies of sets of partners."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from chestfed.core.checkpoint import write_text
from chestfed.core.console import plural, text_table
from chestfed.core.diseases import format_title
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.results.evaluation.comparison import holm
from chestfed.results.evaluation.estimates import as_csv, auc_per_disease, mean_of
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.joining.contributions import Contribution, Subset, estimate_contributions
from chestfed.results.evaluation.labeled import (
    LEAST_PATIENTS,
    NO_DISEASE_COUNTS,
    find_counted_in_all,
    group_splits,
    put_beside,
)
from chestfed.results.evaluation.splits import Splits
from chestfed.results.evaluation.training_seeds import SeedsTest
from chestfed.results.tables.collect import name_folder
from chestfed.results.tables.frames import name_run
from chestfed.results.tables.grid import number, pair, signed
from chestfed.results.tables.predictions import Predictions, align_splits, load_predictions, merge_seeds

#: Measure -> its name in tables.
MEASURES: Final = {"shapley": "Shapley value", "added_first": "added first", "removed_last": "removed last"}
#: Row of the total gain.
TOTAL: Final = "all partners"


@dataclass(frozen=True, eq=False)
class Contributions:
    """`table` has one row per partner and measure and the total, `sets` one per set of partners and seed.

    `names` are the set and the label of each study, in their order; `untested` the diseases left out of the
    contributions, which have fewer than `LEAST_PATIENTS` of a class.
    """

    target: str
    seeds: tuple[int, ...]
    names: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    origin: Origin
    table: pd.DataFrame
    sets: pd.DataFrame
    images: int
    patients: int
    untested: tuple[str, ...] = ()
    sampled: int = 0  #: orders of joining; 0: every order counts
    splits: tuple[int, ...] = (0,)  #: of the patients

    @property
    def metrics(self) -> dict[str, float | None]:
        """Values by name."""
        rows = zip(self.table["partner"], self.table["measure"], self.table["value"], strict=True)
        return {f"contribution/{partner}/{measure}": float(value) for partner, measure, value in rows}


def collect_contributions(
    runs: Sequence[tuple[Subset, int, Path]],
    target: str,
    partners: Sequence[str],
    orders: Sequence[Sequence[str]] | None = None,
) -> Contributions:
    """From the partners, the training seed and the folder of each study.

    Raises `ConfigError` if the studies scored other images or labels, or no disease has enough patients of each class.
    """
    loaded = [load_predictions(folder) for _, _, folder in runs]
    of_sets: dict[Subset, list[Predictions]] = {}
    for (subset, _, _), run in zip(runs, loaded, strict=True):
        of_sets.setdefault(subset, []).append(run)
    merged = {subset: merge_seeds(members) for subset, members in of_sets.items()}
    first = next(iter(merged.values()))
    merged = {subset: align_splits(first, model, first.diseases) for subset, model in merged.items()}
    tests = [members[0] for members in group_splits(first.scored(first.diseases)).values()]
    counted = find_counted_in_all(tests)
    use = np.flatnonzero(counted).tolist()
    if not use:
        raise ConfigError(f"{NO_DISEASE_COUNTS}: nothing can be compared", kind="no AUC")
    names, rows = [], []
    for (subset, seed, _), run in zip(runs, loaded, strict=True):
        (scored,) = run.scored(first.diseases)
        aucs = auc_per_disease(scored)
        mean = mean_of(auc for auc, counts in zip(aucs.values(), counted, strict=True) if counts)
        name = " + ".join((target, *(partner for partner in partners if partner in subset)))
        (split,) = run.splits or (0,)
        names.append((name, f"{name}, seed {name_run(seed, split or None)}"))
        about = {"set": name, "partners": len(subset), "seed": seed, "split": split}
        rows.append(about | {"mean": mean, **aucs})
    beside = put_beside(tests)
    columns = (np.arange(len(tests))[:, None] * len(counted) + np.array(use)).ravel()
    scores = {subset: [run[:, columns] for run in _list_scores(model)] for subset, model in merged.items()}
    given = (beside.labels[:, columns], beside.patients, beside.hospitals)
    splits = Splits(len(tests), first.rotation)
    each, total = estimate_contributions(scores, partners, *given, orders=orders, splits=splits)
    return Contributions(
        target,
        tuple(dict.fromkeys(seed for _, seed, _ in runs)),
        tuple(names),
        tuple(folder.name for _, _, folder in runs),
        Origin.together(run.origin for run in loaded if run.origin is not None),
        _tabulate(each, total),
        pd.DataFrame(rows),
        *first.counts,
        tuple(name for j, name in enumerate(first.diseases) if j not in use),
        0 if orders is None else len(orders),
        tuple(first.tests),
    )


def _list_scores(model: Predictions) -> list[np.ndarray]:
    """Scores of each seed on the images of every split, side by side."""
    groups = group_splits(model.scored(model.diseases))
    return [put_beside(parts).scores for parts in zip(*groups.values(), strict=True)]


def write_contributions(together: Contributions, out: Path) -> Path:
    """Write `contributions.csv` and `sets.csv` into a folder named by the studies."""
    folder = name_folder(together.folders, together.origin, out, "contributions")
    folder.mkdir(parents=True, exist_ok=True)
    head: dict[str, Any] = {"data": str(together.origin), "target": together.target, "seeds": len(together.seeds)}
    head |= {"splits": len(together.splits)} if len(together.splits) > 1 else {}
    write_text(folder / "contributions.csv", as_csv(together.table.assign(**head)))
    write_text(folder / "sets.csv", as_csv(together.sets.assign(data=str(together.origin))))
    return folder


def render_contributions(together: Contributions) -> RenderableType:
    """The AUC of every set, and what each partner contributes."""
    means = together.sets.groupby("set", sort=False)["mean"].agg(["mean", "std"])
    alone = means["mean"].iloc[0]
    rows = [
        [
            str(name),
            "" if pd.isna(row["mean"]) else number(row["mean"]),
            "" if pd.isna(row["std"]) else number(row["std"]),
            f"{row['mean'] - alone:+.3f}",
        ]
        for name, row in means.iterrows()
    ]
    spread = "SD over runs" if len(together.splits) > 1 else "SD over seeds"
    sets = text_table(f"Mean AUC at {together.target}", ("trained with",), ("AUC", spread, "minus alone"), rows)
    by_partner = {(row["partner"], row["measure"]): _cell(row) for row in together.table.to_dict("records")}
    partners = [name for name in dict.fromkeys(together.table["partner"]) if name != TOTAL]
    rows = [[name, *(by_partner[name, measure] for measure in MEASURES)] for name in partners]
    rows.append([TOTAL, by_partner[TOTAL, "shapley"], "", ""])
    over = "test patients and training seeds" if len(together.seeds) > 1 else "test patients"
    over += " and splits of the patients" if len(together.splits) > 1 else ""
    caption = f"differences of the mean AUC with 95% intervals over {over}; Shapley values sum to the total"
    if together.sampled:
        caption += f"; {together.sampled} sampled orders of joining, whose error is in the intervals"
    if together.untested:
        untested = ", ".join(map(format_title, together.untested))
        caption += f"; without {untested}: fewer than {LEAST_PATIENTS} test patients of a class"
    table = text_table(
        f"What each contributes to {together.target}", ("partner",), list(MEASURES.values()), rows, caption
    )
    return Group(sets, table)


def describe_contributions(together: Contributions) -> str:
    """Who helps and who harms, and what could not be seen."""
    seen: dict[str, list[str]] = {"helps": [], "harms": []}
    unclear = []
    for row in together.table.to_dict("records"):
        if row["partner"] == TOTAL or row["measure"] != "shapley":
            continue
        if row["low"] > 0 or row["high"] < 0:
            seen["helps" if row["low"] > 0 else "harms"].append(row["partner"])
        else:
            unclear.append(row["partner"])
    parts = [f"{', '.join(names)} {verb}" for verb, names in seen.items() if names]
    if unclear:
        parts.append(f"{', '.join(unclear)}: inconclusive")
    images = f"{plural(together.images, 'test image')} of {plural(together.patients, 'patient')}"
    seeds = plural(len(together.seeds), "training seed")
    seeds += f", {len(together.splits)} splits of patients" if len(together.splits) > 1 else ""
    return f"At {together.target} {'; '.join(parts)} (Shapley value; {images}, {seeds})."


def _tabulate(contributions: Sequence[Contribution], total: SeedsTest) -> pd.DataFrame:
    rows = [
        _row(contribution.partner, measure, getattr(contribution, measure))
        for contribution in contributions
        for measure in MEASURES
    ]
    frame = pd.DataFrame([*rows, _row(TOTAL, "shapley", total)])
    return frame.assign(p_holm=pd.Series(holm([None if pd.isna(p) else p for p in frame["p"]]), dtype="float64"))


def _row(partner: str, measure: str, test: SeedsTest) -> Mapping[str, object]:
    low, high = test.interval or (np.nan, np.nan)
    values = {"value": test.difference, "low": low, "high": high, "p": np.nan if test.p is None else test.p}
    return {"partner": partner, "measure": measure, **values, "reason": test.reason}


def _cell(row: Mapping[Hashable, Any]) -> str:
    interval = None if pd.isna(row["low"]) else Interval(row["low"], row["high"])
    return f"{signed(row['value'])} {pair(interval, 3, signed)}".rstrip().replace("−", "-")
