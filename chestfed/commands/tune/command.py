"""The signature of `chestfed tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.core.bundled import pipeline_file
from chestfed.core.console import open_console


def tune(
    pipeline: Annotated[
        Path, typer.Argument(help="YAML of a pipeline, or the name of a bundled one.", show_default=False)
    ],
    algorithms: Annotated[
        str | None, options.optional(metavar="A,B,C", help="Algorithms to tune. Default: those the pipeline compares.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Number of settings to try per algorithm.")] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="S", help="Training seeds of each trial and of the tested runs.")
    ] = 3,
    data: Annotated[
        Path | None, options.optional(help="Folder that contains the sites' folders. Default: as `chestfed study`.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the search, the runs and the MLflow store.")] = Path("runs"),
    cache: options.Cache = Path("cache"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show ranges, number of runs and time; write nothing.")
    ] = False,
    skip_unreadable: options.SkipUnreadable = False,
    tracking: Annotated[bool, typer.Option(help="Record trials and runs in MLflow.")] = True,
    tracking_uri: options.TrackingUri = None,
    set_: Annotated[
        list[str] | None,
        options.optional("--set", metavar="KEY=VALUE", help="Set any key of the pipeline. Repeatable."),
    ] = None,
) -> None:
    """Select each algorithm's settings on validation patients, then test the selected ones once.

    Every algorithm gets the same number of trials over the same ranges. Options declare their ranges; `search` in the
    pipeline replaces them. A range is widened if the best value lies at its edge. Validation patients are those of
    `validation_fraction`, else a quarter of the target's training patients. No test image is used before all trials are
    done. The selected settings are written to tuned.yaml, which `chestfed study` runs. To resume an interrupted search,
    or to continue with a larger --trials, run the same command again. Needs Optuna (extra `tune`).

    Example:

        chestfed tune pipelines/digits_ih.yaml --algorithms codasca,fedprox --trials 20 --seeds 5 --dry-run
    """
    with options.quick_imports():
        from chestfed.commands.tune.run import prepare, run, show_plan

    names = options.names(algorithms, "--algorithms")
    tuning = prepare(open_console(), pipeline_file(pipeline), set_ or [], data, names, trials=trials, seeds=seeds)
    if dry_run:
        show_plan(tuning)
    else:
        run(tuning, out, cache, tracking_uri, tracking=tracking, skip_unreadable=skip_unreadable)
