"""`chestfed compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.bundled import advise_run
from chestfed.core.console import open_console, say, show_answer
from chestfed.core.errors import ConfigError
from chestfed.results.evaluation.intervals import DEFAULT


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            callback=options.run_paths,
            autocompletion=options.known_runs,
            help="Runs by name or folder, kN folders, folders of evaluations or predictions.parquet files. The first "
            "is the reference.",
            show_default=False,
        ),
    ],
    k: options.K = None,
    group_seeds: Annotated[
        bool, typer.Option("--group-seeds", help="Treat runs that differ only in their seed or split as one model.")
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
    from chestfed.core.checkpoint import write_text
    from chestfed.core.disk import check_folder
    from chestfed.results.evaluation.estimates import as_csv
    from chestfed.results.tables import differences
    from chestfed.results.tables.answer import compare_models, describe_resolution, find_decisive
    from chestfed.results.tables.frames import list_difference_rows, select
    from chestfed.results.tables.predictions import group_seeds as merge
    from chestfed.results.tables.predictions import load_predictions
    from chestfed.results.tables.views import render_differences

    for path in runs:
        if not path.exists():
            advice, close = advise_run(path)
            raise ConfigError(f"{path}: no such run, folder or file. {advice}", kind="no such name", suggestion=close)
    console, models = open_console(), [load_predictions(path, k) for path in runs]
    models = merge(models) if group_seeds else models
    compared = select(differences.compare_with_first(models, resamples, interval or DEFAULT), "study")
    folder = out or differences.name_folder(compared, Path("runs") / "paired")
    check_folder(folder, "--out")
    write_text(folder / "differences.csv", as_csv(compared))
    rows = list_difference_rows(compared)
    known = all(model.has_patients for model in models)
    console.print(render_differences(compared, patients_known=known))
    means = [row for row in rows if row["disease"] == "mean"]
    if resolution := describe_resolution(find_decisive(means), named=len(means) > 1):
        console.print(resolution)
    say(console, f"written to {folder}: differences.csv")
    answer = compare_models(rows, patients_known=known)
    show_answer(console, answer, folder=str(folder), differences=rows)
