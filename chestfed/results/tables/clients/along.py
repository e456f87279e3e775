"""Results of studies that differ in one thing, such as the number of the target's images, as one pair of frames.

Each group of runs (the training seeds of one study) is collected by itself: a model is compared with those of its own
group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chestfed.core.provenance import Origin
from chestfed.results.tables.clients.gate import GatePriceFacts
from chestfed.results.tables.collect import collect
from chestfed.results.tables.frames import Results, RunEntry, list_records, make_differences, make_estimates
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.titles import name_in_group


@dataclass(frozen=True)
class Group:
    """The training seeds of one study; `target_images` limits those of the target (None: all), `subset` who trains."""

    runs: Sequence[RunFolder]
    target_images: int | None = None
    subset: str = ""


def collect_along(groups: Sequence[Group], title: str, design: str) -> Results:
    """The groups of a design, `target_images` or `subsets`, together; see `collect`."""
    estimates: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    curves, runs, gates, prices = [], list[RunEntry](), dict[str, dict[str, int]](), dict[str, GatePriceFacts]()
    reasons = dict[str, dict[str, int]]()
    collected = [collect(group.runs, title, design=design) for group in groups]
    for group, results in zip(groups, collected, strict=True):
        about = {"design": design, "target_images": group.target_images, "subset": group.subset}
        estimates += (_name(row | about) for row in list_records(results.estimates))
        differences += (_name(row | about) for row in list_records(results.differences))
        if len(results.curves):
            models = [name_in_group(model, about) for model in results.curves["model"]]
            curves.append(results.curves.assign(model=models))
        gates |= {name_in_group(name, about): counts for name, counts in results.about["gate"].items()}
        reasons |= {name_in_group(name, about): counts for name, counts in results.about["gate_reasons"].items()}
        prices |= {name_in_group(name, about): price for name, price in results.about["gate_price"].items()}
        runs += [{**run, "run": name_in_group(run["run"], about)} for run in results.about["runs"]]
    return Results(
        title,
        Origin.together(results.origin for results in collected),
        {
            **collected[0].about,
            "gate": gates,
            "gate_reasons": reasons,
            "gate_price": prices,
            "runs": runs,
            "recognized": None,
            "calibration": [],
        },
        make_estimates(estimates),
        make_differences(differences),
        pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(),
    )


def _name(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its group in the name of the model, where its place does not say it."""
    return row if row["hospital"] else {**row, "model": name_in_group(row["model"], row)}
