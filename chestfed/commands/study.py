"""`chestfed study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands.console import open_console
from chestfed.commands.options import Cache, SkipUnreadable
from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError

DEFAULT_PIPELINE = "source_addition_samples.yaml"

_COMPARE = "Compare algorithms, windows or seeds"


def study(
    pipeline: Annotated[
        Path | None,
        typer.Argument(help=f"Pipeline YAML. Default: pipelines/{DEFAULT_PIPELINE}.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder that holds the sites' folders; takes precedence over data_root and $CHESTFED_DATA."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and the MLflow store.")] = Path("runs"),
    cache: Cache = Path("cache"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. --set federated.window=8. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would run (images, steps, bytes, time); write nothing."),
    ] = False,
    skip_unreadable: SkipUnreadable = False,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow tracking URI. Default: a SQLite store in the output folder.")
    ] = None,
    tracking: Annotated[bool, typer.Option(help="Record the study in MLflow.")] = True,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Compare algorithms on the same data, weights and number of steps, with the largest K.",
            show_default=False,
            rich_help_panel=_COMPARE,
        ),
    ] = None,
    windows: Annotated[
        str | None,
        typer.Option(
            metavar="I,J",
            help="Compare windows (local steps per round), e.g. 1,32,128.",
            show_default=False,
            rich_help_panel=_COMPARE,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Compare over this many seeds, counting up from `seed`.",
            show_default=False,
            rich_help_panel=_COMPARE,
        ),
    ] = None,
    add_site: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SITE.yaml",
            help="Append this hospital to the pipeline's sites, so that K=1 to 5 becomes K=1 to 6. Repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the source-addition study: does adding hospitals raise the AUC at one hospital?

    Stage 1 trains on the target hospital; stage 2 trains with the first K hospitals, for each K of the pipeline.
    Interrupted at any point, the same command resumes. The tables are printed, and written to the run folder as CSV
    and JSON. With --algorithms, --windows or --seeds, or with a pipeline that lists them, it runs a comparison
    instead: a table, and plots of the mean AUC against rounds, bytes and images.
    """
    from chestfed.commands.study_run import run_command

    run_command(
        open_console(),
        pipeline or bundled("pipelines") / DEFAULT_PIPELINE,
        data,
        out,
        cache,
        set_ or [],
        dry_run=dry_run,
        skip_unreadable=skip_unreadable,
        tracking_uri=tracking_uri,
        tracking=tracking,
        algorithms=[name.strip() for name in algorithms.split(",")] if algorithms else [],
        windows=_numbers(windows),
        seeds=seeds,
        added=add_site or [],
    )


def _numbers(text: str | None) -> list[int]:
    numbers = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() and int(part) > 0 for part in numbers):
        raise ChestfedError(f"--windows: '{text}' is not a list of numbers of local steps, such as 1,32,128")
    return [int(part) for part in numbers]
