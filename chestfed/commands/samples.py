"""`chestfed samples`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from chestfed.core.errors import ConfigError


def run_command(console: Console, out: Path, seed: int, size: str) -> None:
    """Write the synthetic hospitals and say what they hold."""
    from chestfed.commands.progress import Bars
    from chestfed.samples import SIZES, is_complete, write_hospitals

    if size not in SIZES:
        raise ConfigError(f"--size {size}: choose one of {', '.join(SIZES)}")
    if is_complete(out, seed=seed, size=size):
        console.print(f"{out} already holds these hospitals; nothing to do", highlight=False)
        return
    with Bars(console) as bars:
        summaries = write_hospitals(out, seed=seed, size=size, progress=bars.drawing)
    for summary in summaries:
        console.print(str(summary), highlight=False, soft_wrap=True)
    console.print(f"SYNTHETIC phantoms, no patients: written to {out}", highlight=False, soft_wrap=True)


def extra_command(console: Console, out: Path, extra: str, seed: int, size: str) -> None:
    """Write one further hospital with a spreadsheet of its own, and say how to add it."""
    from chestfed.commands.progress import Bars
    from chestfed.samples import SHAPES, write_extra

    name, slash, shape = extra.partition("/")
    if not slash:
        raise ConfigError(f"--extra {extra}: give NAME/SHAPE, the shape being one of {', '.join(SHAPES)}")
    with Bars(console) as bars:
        written = write_extra(out, name, shape, seed=seed, size=size, progress=bars.drawing)
    console.print(
        f"SYNTHETIC phantoms, no patients: {written.images} images in {written.pictures}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"{shape}: {SHAPES[shape].about}", highlight=False, soft_wrap=True)
    labels = "" if written.table is None else f" --labels {written.table}"
    console.print(
        f"next: chestfed site new {name} --images {written.pictures}{labels}", highlight=False, soft_wrap=True
    )
