"""Results of studies that differ in one thing, such as the number of the target's images, as one pair of frames.

Each group of runs (the training seeds of one study) is collected by itself: a model is compared with those of its own
group. What differs is named in the model, and at a hospital in the hospital: `K=3 with 80 target images`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from chestfed.core.provenance import Origin
from chestfed.results.tables.collect import collect
from chestfed.results.tables.frames import Results, RunEntry, list_records, make_differences, make_estimates
from chestfed.results.tables.run_folder import RunFolder

#: Ends the words of a group whose target has that many training images.
TARGET_IMAGES: Final = " target images"


def collect_along(groups: Mapping[str, Sequence[RunFolder]], title: str) -> Results:
    """Words that follow a model or a hospital -> the runs that they are about; see `collect`."""
    collected = {words: collect(runs, title, by_k=True) for words, runs in groups.items()}
    estimates: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    curves = []
    for words, results in collected.items():
        estimates += (_name(row, words) for row in list_records(results.estimates))
        differences += (_name(row, words) for row in list_records(results.differences))
        if len(results.curves):
            curves.append(results.curves.assign(model=results.curves["model"] + words))
    first = next(iter(collected.values()))
    gates = {
        f"{hospital}{words}": counts
        for words, results in collected.items()
        for hospital, counts in results.about["gate"].items()
    }
    runs: list[RunEntry] = [
        {**run, "run": f"{run['run']}{words}"} for words, results in collected.items() for run in results.about["runs"]
    ]
    return Results(
        title,
        Origin.together(results.origin for results in collected.values()),
        {**first.about, "along": [*groups], "gate": gates, "runs": runs, "recognized": None},
        make_estimates(estimates),
        make_differences(differences),
        pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(),
    )


def _name(row: dict[str, Any], words: str) -> dict[str, Any]:
    place = "hospital" if row["hospital"] else "model"
    return {**row, place: f"{row[place]}{words}"}
