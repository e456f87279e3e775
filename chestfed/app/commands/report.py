"""`chestfed report`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say, show_answer
from chestfed.core.errors import ChestfedWarning


def report(
    run: Annotated[
        Path,
        typer.Argument(
            callback=options.run_paths,
            autocompletion=options.known_runs,
            help="Name or folder of a finished study or comparison, as `chestfed runs` lists them.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, options.optional(help="The page, NAME.html, or a folder for report.html. Default: the run folder.")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write every figure as PNG and SVG to PAGE-figures/.")
    ] = False,
    threshold: options.Thresholds = None,
    interval: options.Interval = None,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Show a few small images per site, even of real patients. Check the license of the data set first.",
        ),
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the web browser.")] = False,
) -> None:
    """Write one HTML page about a finished study. It is a single file that needs no network.

    AUC per K with intervals; paired comparison of K=1 with each larger K; ROC, precision-recall and calibration curves;
    AUC, bytes and client drift per round; a card per site; configuration, versions and digests. For several training
    seeds: AUCs with their spread, and the test over test patients and seeds.

    Example:

        chestfed report runs/synthetic-source_addition_samples-0123456789ab --figures
    """
    from chestfed.reports.pages.page import write_report
    from chestfed.results.tables.run_folder import COMPARISON, RunFolder

    folder = run if (run / COMPARISON).is_file() else RunFolder.open(run).path
    page = out if out is not None and out.suffix in (".html", ".htm") else (out or folder) / "report.html"
    drawn = page.parent / f"{page.stem}-figures" if figures else None
    written = write_report(folder, page, drawn, pictures=pictures, interval=interval, thresholds=threshold or ())
    console = open_console()
    if drawn is not None:
        say(console, f"{len(written.pictures)} figures, as PNG and SVG, in {drawn}")
    size = page.stat().st_size
    about = {"page": str(page), "bytes": size, "figures": len(written.pictures) if drawn is not None else 0}
    advice = "" if open_ and _open_page(page) else "; open it in a browser"
    show_answer(console, f"written to {page} ({size / 1e6:.1f} MB){advice}", **about)


def _open_page(page: Path) -> bool:
    """Open a page in the web browser; returns whether there is one, and warns if there is none."""
    import webbrowser

    if webbrowser.open(page.resolve().as_uri()):
        return True
    warnings.warn("no web browser was found on this machine: the page was not opened", ChestfedWarning, stacklevel=2)
    return False
