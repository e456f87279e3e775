"""`chestfed report`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console


def run_command(console: Console, run: Path, out: Path | None, *, figures: bool, pictures: bool) -> None:
    """Write the page of a finished study, and say where it is."""
    from chestfed.report.page import write_report
    from chestfed.results.run_folder import RunFolder

    page = out or RunFolder.open(run).path / "report.html"
    folder = page.parent / f"{page.stem}-figures" if figures else None
    report = write_report(run, page, folder, pictures=pictures)
    size = page.stat().st_size / 1e6
    console.print(f"written to {page} ({size:.1f} MB); open it in a browser", highlight=False, soft_wrap=True)
    if folder is not None:
        console.print(f"{len(report.pictures)} figures, as PNG and SVG, in {folder}", highlight=False, soft_wrap=True)
