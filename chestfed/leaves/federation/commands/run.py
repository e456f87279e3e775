"""`chestfed federation run`; what it does is imported when it is called."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.bundled import pipeline_file
from chestfed.core.console import open_console, say, show_warning
from chestfed.core.errors import ConfigError
from chestfed.leaves.federation.commands.arguments import Insecure, require_flower

if TYPE_CHECKING:
    from chestfed.studies.experiment.methods import PipelineFile
    from chestfed.studies.experiment.pipeline import Pipeline


def federation_run(
    pipeline: Annotated[Path, typer.Argument(help="Pipeline YAML; its sites name the hospitals.", show_default=False)],
    federation: Annotated[Path, typer.Option(help="Folder of the federation.", show_default=False)],
    out: options.Out = Path("runs"),
    tracking: options.Tracking = True,
    tracking_uri: options.TrackingUri = None,
    methods: options.Methods = None,
    set_: options.Set = None,
    without: Annotated[
        list[str] | None,
        options.optional(metavar="NAME", help="Go on without this hospital, from here to the end. Repeatable."),
    ] = None,
    rejoin: Annotated[
        list[str] | None,
        options.optional(metavar="NAME", help="A hospital left out before takes part from the next K on. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the pipeline and show what hospitals would receive; send nothing."),
    ] = False,
    metrics: Annotated[
        int | None, options.optional(metavar="PORT", help="Serve Prometheus metrics on this port of loopback.")
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Run a study across the hospitals, on the server's machine. To resume it, run the same command again.

    Example:

        chestfed federation run pipelines/source_addition_samples.yaml --federation trial
    """
    pipeline = pipeline_file(pipeline)
    require_flower()
    from chestfed.app.commands.progress import Bars
    from chestfed.app.commands.study.show import show_finished_study
    from chestfed.core.disk import check_folder
    from chestfed.leaves.federation.flower.line import FlowerLine, locate_server
    from chestfed.leaves.federation.server.progress import Progress
    from chestfed.leaves.federation.server.study import run_over_hospitals, show_plan
    from chestfed.leaves.federation.settings import read_federation
    from chestfed.reports.tracking.declaration import RECORDS
    from chestfed.studies.experiment.loading import load_pipeline
    from chestfed.studies.training.reporting import Reporters

    started, console, members = time.monotonic(), open_console(), read_federation(federation)
    overrides = options.join_overrides(set_, {"selected": options.select_methods(methods)})
    loaded = _one_study(load_pipeline(pipeline, overrides, sites_here=False))
    say(console, f"{loaded.title}\n{pipeline} over the hospitals of {members.file.federation}")
    if dry_run:
        show_plan(loaded, members, partial(say, console))
        return
    check_folder(out, "--out")
    with Bars(console) as bars, Progress(members.folder, loaded, metrics) as progress:
        record = [RECORDS.find("mlflow").make(out, tracking_uri)] if tracking else []
        reporters = Reporters([bars, *record, progress], partial(show_warning, console))
        line = FlowerLine(locate_server(members, insecure=insecure))
        about = (loaded, pipeline.stem, members, line, out, reporters, partial(say, console))
        study = run_over_hospitals(*about, without=without or (), rejoin=rejoin or (), progress=progress)
    show_finished_study(console, study, time.monotonic() - started)


def _one_study(file: PipelineFile) -> Pipeline:
    """The pipeline of a file that describes one run; raises ConfigError of a comparison."""
    if file.is_comparison or file.seeds != 1 or file.splits != 1:
        text = "name one method with --methods; no windows, one seed, and one split"
        raise ConfigError(f"a federation runs one study: {text}")
    return file.resolve()
