"""`chestfed samples`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chestfed.core.console import command, open_console, say, show_answer
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

Size = Literal["default", "full", "tiny", "large"]


def samples(
    out: Annotated[Path, typer.Option(help="Folder to write the hospitals to.")] = Path("synthetic_hospitals"),
    seed: Annotated[int, typer.Option(help="Seed of patients and images.")] = 1,
    size: Annotated[
        Size,
        typer.Option(
            help="default: about 3,500 images; full: as many, with twice the rows and columns, in twice the time; "
            "tiny: 275, for tests; large: 432, with --extra alone."
        ),
    ] = "default",
    extra: Annotated[
        str | None,
        typer.Option(
            metavar="NAME/SHAPE",
            help="Write one further hospital instead, with its own spreadsheet, to try `chestfed site new`: "
            "st-anne/SHAPE, where SHAPE is wide, delimited, list, readers, long or dicom.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write five synthetic sample hospitals in the layouts of the real data sets. Phantoms without clinical meaning.

    Example:

        chestfed samples --extra st-anne/wide --out hospitals
    """
    from chestfed.app.commands.progress import Bars
    from chestfed.leaves.samples.writing import is_complete, write_hospitals

    console = open_console()
    if extra is not None:
        _write_extra(console, out, extra, seed, size)
        return
    if size == "large":
        raise ConfigError("--size large is for --extra NAME/SHAPE", kind="no effect", option="size")
    if is_complete(out, seed=seed, size=size):
        say(console, f"{out} already contains these hospitals; nothing to do")
        return
    with Bars(console) as bars:
        summaries = write_hospitals(out, seed=seed, size=size, progress=bars.drawing)
    for summary in summaries:
        say(console, str(summary))
    images = {summary.folder.name: summary.images for summary in summaries}
    show_answer(console, f"SYNTHETIC radiographs, no patients: {sum(images.values())} images in {out}", images=images)


def _write_extra(console: Console, out: Path, extra: str, seed: int, size: str) -> None:
    """Write one more hospital with its own spreadsheet, and say how to add it."""
    from chestfed.app.commands.progress import Bars
    from chestfed.leaves.samples.extra import SHAPES, write_extra

    name, slash, shape = extra.partition("/")
    if not slash:
        raise ConfigError(f"--extra {extra}: expected NAME/SHAPE, where SHAPE is one of {', '.join(SHAPES)}")
    with Bars(console) as bars:
        written = write_extra(out, name, shape, seed=seed, size=size, progress=bars.drawing)
    labels = [] if written.table is None else ["--labels", written.table]
    say(console, f"SYNTHETIC radiographs, no patients: {written.images} images in {written.pictures}")
    say(console, f"{shape}: {SHAPES[shape].about}")
    say(console, f"next: {command('site', 'new', name, '--images', written.pictures, *labels)}")
