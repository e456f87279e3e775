"""The signature of `chestfed tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.bundled import pipeline_file
from chestfed.core.console import open_console


def tune(
    pipeline: options.Pipeline,
    methods: options.Methods = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Number of settings to try per method.")] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, metavar="S", help="Training seeds of each trial and of the tested runs.")
    ] = 3,
    data: options.PipelineData = None,
    out: options.Out = Path("runs"),
    cache: options.Cache = options.AUTO,
    dry_run: options.DryRun = False,
    skip_unreadable: options.SkipUnreadable = False,
    tracking: options.Tracking = True,
    tracking_uri: options.TrackingUri = None,
    set_: options.Set = None,
) -> None:
    """Select each method's settings on validation patients, then test the selected ones once.

    Every method gets the same number of trials over the same ranges, or all points of a grid. Options declare their
    ranges; `search` in the pipeline replaces them. A range is widened if the best value lies at its edge. Validation
    patients are those of `validation_fraction`, else a quarter of the target's training patients. No test image is used
    before all trials are done. The selected settings are written to tuned.yaml, which `chestfed study` runs. To resume
    an interrupted search, or to continue with a larger --trials, run the same command again.

    Example:

        chestfed tune pipelines/digits_ih.yaml --methods codasca,fedprox --trials 20 --seeds 5 --dry-run
    """
    with options.quick_imports():
        from chestfed.app.commands.tune.run import prepare, run, show_plan
        from chestfed.app.studies import Session

    overrides = options.join_overrides(set_, {"selected": options.select_methods(methods)})
    tuning = prepare(pipeline_file(pipeline), overrides, data, trials=trials, seeds=seeds)
    session = Session(open_console(), out, cache, tracking, tracking_uri, skip_unreadable)
    if dry_run:
        show_plan(session.console, tuning)
    else:
        run(session, tuning)
