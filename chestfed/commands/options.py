"""What several commands share: options, each declared once, and how errors are told."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chestfed.core.bundled import site_file
from chestfed.core.console import open_console, say
from chestfed.core.errors import ConfigError
from chestfed.evaluation.intervals import MethodName

if TYPE_CHECKING:
    from chestfed.sites import SiteConfig


def site_files(given: Path | list[Path] | None) -> Path | list[Path] | None:
    """Callback of parameters that name YAMLs of sites, which may be bundled ones."""
    return [site_file(path) for path in given] if isinstance(given, list) else given and site_file(given)


#: An option whose default is None, or told in its help.
optional = partial(typer.Option, show_default=False)

Config = Annotated[
    Path,
    typer.Argument(callback=site_files, help="YAML of the site, e.g. site_configs/chexpert.yaml.", show_default=False),
]
Data = Annotated[Path | None, optional(envvar="CHESTFED_DATA", help="Folder that contains the sites' folders.")]
Cache = Annotated[Path, typer.Option(help="Folder for decoded images and results about them.")]
Workers = Annotated[int | None, optional(min=1, help="Processes that decode images. Default: one per core.")]
Against = Annotated[
    list[Path] | None,
    optional(callback=site_files, metavar="OTHER.yaml", help="Compare with another site. Repeatable."),
]
SkipUnreadable = Annotated[bool, typer.Option("--skip-unreadable", help="Skip and count unreadable images.")]
K = Annotated[int | None, optional(min=1, help="Which K of a study. Default: the largest.")]
Resamples = Annotated[int, typer.Option(min=0, help="Bootstrap resamples for the intervals; 0: no intervals.")]
Interval = Annotated[
    MethodName | None,
    optional(help="Method of intervals and of p values of differences. Default: obuchowski, or that of the study."),
]
TrackingUri = Annotated[
    str | None, optional(metavar="URI", help="MLflow tracking URI. Default: a SQLite store in the runs folder.")
]


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without looking for garbage: all of it stays, and looking takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def names(text: str | None, option: str) -> list[str]:
    """The names of an option such as `--algorithms a,b`; none without the option."""
    found = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not found:
        raise typer.BadParameter(f"{option} '{text}': give names, such as codasca,fedavg")
    return found


def data_root(data: Path | None, sites: Sequence[SiteConfig], otherwise: str = "") -> Path:
    """The folder that contains the sites' folders, which may be left out where every YAML gives an absolute root."""
    if data is None and not all(site.has_place for site in sites):
        names = ", ".join(site.site for site in sites if not site.has_place)
        raise ConfigError(f"where are the files of {names}? Set --data DIR or $CHESTFED_DATA{otherwise}")
    return data if data is not None else Path()


def print_error(error: Exception) -> None:
    """Print an error that the user can fix: its message on stderr, without a traceback."""
    from chestfed.engines.declaration import rank

    who = f"rank {rank()}: " if rank() else ""
    say(open_console(stderr=True), f"{who}error: {error}", "red")


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Turn a `ConfigError` into exit code 2, for commands whose exit code 1 means something else."""
    try:
        yield
    except ConfigError as error:
        print_error(error)
        raise typer.Exit(2) from None
