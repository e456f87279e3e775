"""`chestfed cache list` and `prune`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say, text_table

Folder = Annotated[Path, typer.Argument(help="Folder of the caches: the `--cache` of other commands.")]
Unused = Annotated[
    int | None, options.optional(min=0, metavar="DAYS", help="Also remove what has not been used for DAYS days.")
]


def cache_list(folder: Folder = Path("cache")) -> None:
    """List the contents of a cache folder: images and last use for each site and kind of result, and its size.

    Example:

        chestfed cache list
    """
    from chestfed.data.images.maintenance import measure, parts

    console, contents = open_console(), parts(folder)
    if not contents:
        say(console, f"{folder}: no cache found")
        return
    rows = []
    for part in contents:
        used = datetime.fromtimestamp(part.used).strftime("%Y-%m-%d")  # noqa: DTZ006 (the user's own clock)
        rows.append([part.site, part.what, f"{part.images:,}", f"{part.unreadable:,}", used])
    console.print(text_table("", ("site", "what"), ("images", "unreadable", "last used"), rows, light=True))
    say(console, f"{measure(folder) / 1e6:,.1f} MB in {folder}")


def cache_prune(folder: Folder = Path("cache"), unused: Unused = None) -> None:
    """Remove replaced and damaged images; every image is checked against its digest. They are made again when needed.

    It waits for a process that fills the cache; studies can read it meanwhile.

    Example:

        chestfed cache prune cache --unused 90
    """
    from chestfed.data.images.maintenance import prune

    console = open_console()
    freed, damaged = prune(folder, unused)
    if not damaged:
        say(console, f"{folder}: no cache found")
        return
    for site, count in damaged.items():
        say(console, f"{site}: {count:,} damaged entries removed", "red" if count else None)
    say(console, f"{freed / 1e6:,.1f} MB freed")
