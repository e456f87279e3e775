"""`chestfed report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.commands.console import say
from chestfed.core.console import open_console


def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a finished study, or of several, as `chestfed study` prints it.", show_default=False
        ),
    ],
    out: Annotated[Path | None, options.optional(help="The page. Default: report.html in the run folder.")] = None,
    figures: Annotated[
        bool,
        typer.Option("--figures", help="Also write every figure as PNG and SVG, to PAGE-figures/."),
    ] = False,
    interval: options.Interval = None,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Show a few small images per site, even of real patients. Check the license of the data set first.",
        ),
    ] = False,
) -> None:
    """Write one HTML page about a finished study, to read, print or send. It needs no network and no other file.

    AUC per K with intervals; K=1 against the larger K, paired; ROC, precision-recall and calibration curves; AUC, bytes
    and client drift per round; a card per site; configuration, versions and digests. Of several training seeds: AUCs
    with their spread, and the test over test patients and seeds.

    Example:

        chestfed report runs/synthetic-source_addition_samples-0123456789ab --figures
    """
    from chestfed.report.page import write_report
    from chestfed.results.run_folder import COMPARISON, RunFolder

    folder = run if (run / COMPARISON).is_file() else RunFolder.open(run).path
    page = out or folder / "report.html"
    drawn = page.parent / f"{page.stem}-figures" if figures else None
    written = write_report(folder, page, drawn, pictures=pictures, interval=interval)
    console = open_console()
    say(console, f"written to {page} ({page.stat().st_size / 1e6:.1f} MB); open it in a browser")
    if drawn is not None:
        say(console, f"{len(written.pictures)} figures, as PNG and SVG, in {drawn}")
