"""`chestfed samples`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from chestfed.commands.progress import Bars
    from chestfed.experiment.pipeline import Pipeline


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


def write_samples(console: Console, folder: Path, seed: int, size: str, bars: Bars) -> None:
    """Write the synthetic hospitals unless they exist."""
    from chestfed.samples import is_complete, write_hospitals

    if is_complete(folder, seed=seed, size=size):
        return
    console.print(f"writing five SYNTHETIC hospitals (phantoms, no patients) to {folder}", highlight=False)
    write_hospitals(folder, seed=seed, size=size, progress=bars.drawing)


@contextmanager
def hospitals_to_look_at(console: Console, pipeline: Pipeline, data_root: Path) -> Iterator[Path]:
    """The data root or, if its synthetic hospitals do not exist yet, a temporary folder that holds them."""
    from chestfed.commands.progress import Bars
    from chestfed.samples import is_complete

    wanted = pipeline.samples
    if wanted is None or is_complete(data_root, seed=wanted.seed, size=wanted.size):
        yield data_root
        return
    with TemporaryDirectory(prefix="chestfed-") as folder:
        with Bars(console) as bars:
            write_samples(console, Path(folder), wanted.seed, wanted.size, bars)
        console.print("(temporary; removed after the dry run)")
        yield Path(folder)
