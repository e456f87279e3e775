"""`chestfed compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.core.console import open_console, say
from chestfed.evaluation.intervals import DEFAULT


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders of studies, kN folders, folders of evaluations or predictions.parquet files. The first "
            "is the reference.",
            show_default=False,
        ),
    ],
    k: options.K = None,
    group_seeds: Annotated[
        bool, typer.Option("--group-seeds", help="Treat runs that differ only in their seed as one model.")
    ] = False,
    interval: options.Interval = None,
    resamples: options.Resamples = 2000,
    out: Annotated[Path | None, options.optional(help="Folder for the results. Default: one in runs/paired.")] = None,
) -> None:
    """Compare models with the first one, on the same test images.

    Prints the differences in AUC with paired intervals and p values, also corrected by Holm's method.

    Example:

        chestfed compare runs/chestxray8_patients-0123456789ab runs/evaluations/chestxray8-test-frontal-image-ab01
    """
    from chestfed.core.disk import check_folder
    from chestfed.results import predictions, significance

    console, found = open_console(), [predictions.read_run(path, k) for path in runs]
    if group_seeds:
        found = predictions.group_seeds(found)
    compared = significance.compare_with_first(found, resamples, interval or DEFAULT)
    folder = out or significance.paired_folder(compared, Path("runs") / "paired")
    check_folder(folder, "--out")
    significance.write(compared, folder, "differences")
    console.print(significance.render(compared))
    if resolution := significance.describe_resolution(compared):
        console.print(resolution, highlight=False)
    say(console, f"written to {folder}: differences.csv, differences.json")
