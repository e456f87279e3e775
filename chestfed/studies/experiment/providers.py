"""Providers: what writes the hospitals of a pipeline into its data root first, where they are not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from chestfed.core.plugins import Catalogue, Options
from chestfed.studies.experiment.pipeline import Pipeline


@dataclass(frozen=True)
class Unwritten:
    """Hospitals that a study would write first: processor seconds on one core for all, and mean bytes of an image."""

    seconds: float = 0.0
    image_bytes: float = 0.0


@dataclass(frozen=True)
class ProviderSpec:
    """Declaration of a provider; its name is the key of a pipeline that asks for it.

    `write` is `module:name` of `write(folder, options)`, which writes what is missing; `labels` that of a context
    manager `labels(folder, options)`, whose folder has at least the label files; `estimate` that of
    `estimate(folder, options)`, the `Unwritten` of what is missing.
    """

    name: str
    write: str
    labels: str
    estimate: str
    options: type[Options] = Options


PROVIDERS: Final[Catalogue[ProviderSpec]] = Catalogue("provider", "chestfed.providers", ProviderSpec, packages=())


def provide(pipeline: Pipeline, root: Path | None) -> None:
    """Write the hospitals that the pipeline asks for, unless they exist."""
    if pipeline.samples is not None and root is not None:
        resolve_name(PROVIDERS.find("samples").write)(root, pipeline.samples)


def estimate_unwritten(pipeline: Pipeline, root: Path) -> Unwritten:
    """What writing the hospitals takes that the pipeline asks for and that are not there; nothing is left behind."""
    if pipeline.samples is None:
        return Unwritten()
    unwritten: Unwritten = resolve_name(PROVIDERS.find("samples").estimate)(root, pipeline.samples)
    return unwritten


@contextmanager
def provide_labels(pipeline: Pipeline, root: Path) -> Iterator[Path]:
    """The data root or, if its hospitals do not exist yet, a temporary folder with their label files."""
    if pipeline.samples is None:
        yield root
        return
    with resolve_name(PROVIDERS.find("samples").labels)(root, pipeline.samples) as folder:
        yield folder
