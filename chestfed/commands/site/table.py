"""`chestfed site table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.core.console import open_console, say


def site_table(
    config: options.Config,
    data: options.Data = None,
    sample: Annotated[int, typer.Option(min=1, help="Rows to show, drawn at random.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 1,
    csv: Annotated[Path | None, options.optional(help="Also write the rows to this file.")] = None,
    sheet: Annotated[
        Path | None, options.optional(help="Write a contact sheet (PNG): images with their labels.")
    ] = None,
) -> None:
    """Show rows of a site: the image, its view and split, the cells of the label file, the findings and the labels.

    For a radiologist to compare with the images. The output quotes cells and names images: keep it at the site.

    Example:

        chestfed site table st_anne.yaml --data data --sample 20 --sheet st_anne_sheet.png
    """
    from chestfed.core.checkpoint import write_text
    from chestfed.inspection.label_rows import contact_sheet, label_rows
    from chestfed.sites import load_site_config

    console = open_console()
    site = load_site_config(config)
    root = options.data_root(data, [site])
    survey, places, rows = label_rows(site, root, sample, seed)
    for row in rows.to_dict("records"):
        say(console, f"{row.pop('file')}:{row.pop('row')}  {row.pop('image')}")
        for name, text in row.items():
            say(console, f"    {name}: {text}")
    say(
        console,
        f"{len(rows):,} of {len(survey.table.frame):,} images. Names images and quotes cells: keep it at the site.",
    )
    if csv is not None:
        write_text(csv, rows.to_csv(index=False))
        say(console, f"written to {csv}; keep it at the site")
    if sheet is not None:
        unread = contact_sheet(survey, places, sheet)
        lost = f"; {unread:,} images cannot be read" if unread else ""
        say(console, f"written to {sheet}{lost}; it shows images of the site: keep it at the site")
