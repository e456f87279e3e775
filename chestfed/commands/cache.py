"""`chestfed cache list`, `prune` and `verify`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from chestfed.commands import options
from chestfed.core.console import open_console, say, text_table
from chestfed.core.errors import ChestfedError

Folder = Annotated[Path, typer.Argument(help="Folder of the caches: the `--cache` of other commands.")]
Unused = Annotated[
    int | None, options.optional(min=0, metavar="DAYS", help="Also remove what has not been used for DAYS days.")
]


def cache_list(folder: Folder = Path("cache")) -> None:
    """List the contents of a cache folder: images, bytes and last use for each site and kind of result.

    Example:

        chestfed cache list
    """
    from chestfed.images.maintenance import parts

    console, found = open_console(), parts(folder)
    if not found:
        say(console, f"{folder}: no cache found")
        return
    rows = []
    for part in found:
        used = datetime.fromtimestamp(part.used).strftime("%Y-%m-%d")  # noqa: DTZ006 (the user's own clock)
        rows.append([part.site, part.what, f"{part.images:,}", f"{part.unreadable:,}", f"{part.size / 1e6:,.1f}", used])
    numbers = ("images", "unreadable", "MB", "last used")
    console.print(text_table("", ("site", "what"), numbers, rows, light=True))
    say(console, f"{sum(part.size for part in found) / 1e6:,.1f} MB in {folder}")


def cache_prune(folder: Folder = Path("cache"), unused: Unused = None) -> None:
    """Remove what is no longer used: replaced images, records of killed runs.

    Do not prune while a study reads the cache.

    Example:

        chestfed cache prune cache --unused 90
    """
    from chestfed.images.maintenance import prune

    found = f"{prune(folder, unused) / 1e6:,.1f} MB freed" if folder.is_dir() else f"{folder}: no cache found"
    say(open_console(), found)


def cache_verify(folder: Folder = Path("cache")) -> None:
    """Check every record against its digest and remove damaged ones. They are made again when needed.

    The exit code is 1 if any record was damaged.

    Example:

        chestfed cache verify
    """
    from chestfed.commands.progress import StepBars
    from chestfed.images.maintenance import verify

    console = open_console()
    with StepBars(console) as bars:
        found = verify(folder, lambda site, done, total: bars.show(f"verifying {site}", done, total, unit="entry"))
    if not found:
        say(console, f"{folder}: no cache found")
    for index, (checked, damaged) in found.items():
        say(console, f"{index}: {checked:,} checked, {damaged:,} damaged", "red" if damaged else None)
    if any(damaged for _, damaged in found.values()):
        raise ChestfedError("damaged entries were removed; the next command that needs these images decodes them again")
