"""The signature of `chestfed tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.app.commands.tune.counts import COUNTS
from chestfed.core.bundled import pipeline_file
from chestfed.core.console import open_console


def _default(name: str) -> str:
    return "Default: {}; with --quick {}.".format(*COUNTS[name])


Trials = Annotated[
    int | None,
    options.optional(
        min=1,
        metavar="N",
        help=f"Number of settings to try per key of a method that is searched. {_default('trials')}",
    ),
]
Seeds = Annotated[
    int | None,
    options.optional(
        min=1, metavar="S", help=f"Training seeds of each trial and of the tested runs. {_default('seeds')}"
    ),
]
Confirm = Annotated[
    int | None,
    options.optional(
        min=0, metavar="S", help=f"Further training seeds of the three best settings. {_default('confirm')}"
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="A search in minutes, to see what comes out: few trials, of the study that `chestfed study "
        "--quick` runs. Same as --set quick=true.",
    ),
]


def tune(
    pipeline: options.Pipeline,
    methods: options.Methods = None,
    trials: Trials = None,
    seeds: Seeds = None,
    confirm: Confirm = None,
    k: Annotated[
        str | None,
        typer.Option(
            metavar="all|K,K",
            help="Search for each of these K by itself, and for each hospital's own data and centralized training if "
            "the pipeline has these alternatives. Default: for the largest K.",
        ),
    ] = None,
    data: options.PipelineData = None,
    out: options.Out = Path("runs"),
    cache: options.Cache = options.AUTO,
    dry_run: options.DryRun = False,
    skip_unreadable: options.SkipUnreadable = False,
    tracking: options.Tracking = True,
    tracking_uri: options.TrackingUri = None,
    set_: options.Set = None,
    quick: Quick = False,
) -> None:
    """Select each method's settings on validation patients, then test the selected ones once.

    Every method gets the same number of trials per key that is searched, over the same ranges, or all points of a
    grid. Options declare their ranges; `search` in the pipeline replaces them. A range is widened, by a factor of four
    at most, if the best value lies at its edge; a best value with none near beyond it costs one more trial there. The
    three best settings are trained with further seeds. Validation patients are those of `validation_fraction`, else a
    quarter of the target's training patients. No test image is used before all trials are done. The selected settings
    are written to tuned.yaml, which `chestfed study` runs. To resume an interrupted search, or to continue with a
    larger --trials, run the same command again.

    Example:

        chestfed tune pipelines/digits_ih.yaml --methods codasca,fedprox --trials 20 --seeds 5 --dry-run
    """
    with options.quick_imports():
        from chestfed.app.commands.tune.run import prepare, run, show_plan
        from chestfed.app.studies import Session

    named = {"selected": options.select_methods(methods), "k": None if k in (None, "all") else f"[{k}]"}
    overrides = options.join_overrides(set_, {**named, "quick": "true" if quick else None})
    counts = {"trials": trials, "seeds": seeds, "confirm": confirm}
    tuning = prepare(pipeline_file(pipeline), overrides, data, counts, every_k=k is not None, planned=dry_run)
    session = Session(open_console(), out, cache, tracking, tracking_uri, skip_unreadable)
    if dry_run:
        show_plan(session.console, tuning)
    else:
        run(session, tuning)
