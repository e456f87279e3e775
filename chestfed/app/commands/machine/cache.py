"""`chestfed cache list` and `prune`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from chestfed.app.commands import options
from chestfed.core.console import open_console, say, show_answer, text_table

Folder = Annotated[
    Path,
    typer.Argument(help="Folder of the caches: their `--cache`. auto: all that commands may have used."),
]
Unused = Annotated[
    int | None, options.optional(min=0, metavar="DAYS", help="Also remove what has not been used for DAYS days.")
]


def cache_list(folder: Folder = options.AUTO, data: options.Data = None) -> None:
    """List the contents of a cache folder: images and last use for each site and kind of result, and its size.

    Example:

        chestfed cache list
    """
    from chestfed.data.images.maintenance import measure, parts
    from chestfed.data.images.place import list_caches

    console, folders = open_console(), list_caches(folder, data)
    contents = [part for found in folders for part in parts(found)]
    if not contents:
        show_answer(console, f"{folder}: no cache found", parts=[], bytes=0)
        return
    rows = []
    for part in contents:
        used = datetime.fromtimestamp(part.used).strftime("%Y-%m-%d")  # noqa: DTZ006 (the user's own clock)
        rows.append([part.site, part.what, f"{part.images:,}", f"{part.unreadable:,}", used])
    console.print(text_table("", ("site", "what"), ("images", "unreadable", "last used"), rows, light=True))
    size, listed = sum(map(measure, folders)), [asdict(part) for part in contents]
    places = [str(found) for found in folders]
    text = f"{size / 1e6:,.1f} MB in {', '.join(places)}"
    show_answer(console, text, parts=listed, bytes=size, folders=places)


def cache_prune(folder: Folder = options.AUTO, unused: Unused = None, data: options.Data = None) -> None:
    """Remove replaced and damaged images; every image is checked against its digest. They are made again when needed.

    It waits for a process that fills the cache; studies can read it meanwhile.

    Example:

        chestfed cache prune cache --unused 90
    """
    from chestfed.data.images.maintenance import prune
    from chestfed.data.images.place import list_caches

    console, freed, damaged = open_console(), 0, dict[str, int]()
    for found in list_caches(folder, data):
        size, counts = prune(found, unused)
        freed += size
        damaged |= counts
    if not damaged:
        show_answer(console, f"{folder}: no cache found", freed=0, damaged={})
        return
    for site, count in damaged.items():
        say(console, f"{site}: {count:,} damaged entries removed", "red" if count else None)
    show_answer(console, f"{freed / 1e6:,.1f} MB freed", freed=freed, damaged=damaged)
