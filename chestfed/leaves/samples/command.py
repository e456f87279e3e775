"""`chestfed samples`, and the sample hospitals of a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chestfed.core.console import command, open_console, say
from chestfed.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from chestfed.app.commands.progress import Bars
    from chestfed.studies.experiment.pipeline import Pipeline

Size = Literal["default", "tiny"]


def samples(
    out: Annotated[Path, typer.Option(help="Folder to write the hospitals to.")] = Path("synthetic_hospitals"),
    seed: Annotated[int, typer.Option(help="Seed of patients and images.")] = 1,
    size: Annotated[Size, typer.Option(help="default: about 3,500 images; tiny: 275, for tests.")] = "default",
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
    if is_complete(out, seed=seed, size=size):
        say(console, f"{out} already contains these hospitals; nothing to do")
        return
    with Bars(console) as bars:
        summaries = write_hospitals(out, seed=seed, size=size, progress=bars.drawing)
    for summary in summaries:
        say(console, str(summary))
    say(console, f"SYNTHETIC phantoms, no patients: written to {out}")


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
    say(console, f"SYNTHETIC phantoms, no patients: {written.images} images in {written.pictures}")
    say(console, f"{shape}: {SHAPES[shape].about}")
    say(console, f"next: {command('site', 'new', name, '--images', written.pictures, *labels)}")


def write_samples(console: Console, folder: Path, seed: int, size: str, bars: Bars) -> None:
    """Write the synthetic hospitals unless they exist."""
    from chestfed.leaves.samples.writing import is_complete, write_hospitals

    if is_complete(folder, seed=seed, size=size):
        return
    say(console, f"writing five SYNTHETIC hospitals (phantoms, no patients) to {folder}")
    write_hospitals(folder, seed=seed, size=size, progress=bars.drawing)


@contextmanager
def hospitals_to_look_at(pipeline: Pipeline, data_root: Path) -> Iterator[Path]:
    """The data root or, if its synthetic hospitals do not exist yet, a temporary folder with their label files.

    Links to what else there is in the data root are beside them: hospitals that were added may be there.
    """
    from chestfed.leaves.samples.writing import is_complete, write_labels

    settings = pipeline.samples
    if settings is None or is_complete(data_root, seed=settings.seed, size=settings.size):
        yield data_root
        return
    with TemporaryDirectory(prefix="chestfed-") as folder:
        write_labels(Path(folder), data_root, seed=settings.seed, size=settings.size)
        for path in data_root.glob("[!.]*"):
            if not Path(folder, path.name).exists():
                Path(folder, path.name).symlink_to(path.absolute())
        yield Path(folder)
