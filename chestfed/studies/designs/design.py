"""Common part of all designs, and the catalogue in which they are found."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from chestfed.core.plugins import Catalogue, Options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chestfed.results.tables.frames import Results
    from chestfed.studies.experiment.device import Machine
    from chestfed.studies.experiment.methods import PipelineFile
    from chestfed.studies.experiment.pipeline import Pipeline
    from chestfed.studies.training.data.experiment import Experiment
    from chestfed.studies.training.plan import StudyPlan
    from chestfed.studies.training.reporting import Summary
    from chestfed.studies.training.run import StudyResult


class Takes(Enum):
    """Features of a pipeline besides the key of a design."""

    METHODS = "several methods or windows"
    SEEDS = "several seeds or splits"
    COLLECTION = "a collection"
    ALTERNATIVES = "alternatives"


@dataclass(frozen=True)
class Variant:
    """One study of a design. `suffix` follows the pipeline's name in the name of its run folder.

    `values` say how it differs from the others: `images`, `subset`, `site`.
    """

    pipeline: Pipeline
    label: str
    suffix: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A study that has been run: what was asked, what was read, what came out."""

    variant: Variant
    experiment: Experiment
    result: StudyResult


@dataclass(frozen=True)
class Finished:
    """Results of the studies of a design.

    Attributes
    ----------
    folder
        With the tables; of one study its run folder.
    answer
        In one sentence.
    results
        Frames of estimates and differences; None if the design has only tables of its own.
    studies
        The finished studies, in the order in which they ran.
    """

    folder: Path
    answer: str
    studies: tuple[StudyResult, ...]
    results: Results | None = None
    results_folder: Path | None = None  #: of `results`, if it is another one
    before: tuple[RenderableType, ...] = ()  #: tables that come before those of `results`
    after: tuple[RenderableType, ...] = ()  #: tables and lines that come after them
    summary: Summary | None = None  #: for reporters; a single study has told its own


class Design(ABC):
    """The studies of one pipeline, whose file is `path`, and what they come to."""

    #: Which study's plan stands for all in a dry run; empty: each has its own.
    one_plan: ClassVar[str] = "first"

    def __init__(self, file: PipelineFile, path: Path) -> None:
        self.file, self.path = file, path

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline of the first method, with all sites that are opened, the target first."""
        return self.file.resolve()

    @property
    @abstractmethod
    def variants(self) -> list[Variant]:
        """All studies in the order in which they run.

        Raises `ConfigError` if one of them cannot run.
        """

    def list_planned(self) -> list[Variant]:
        """The studies whose plan a dry run shows."""
        return [max(self.variants, key=_size)] if self.one_plan else self.variants

    def render_plans(self, plans: Sequence[StudyPlan], machine: Machine) -> RenderableType:
        """The table of a dry run, from the plans of `list_planned`."""
        from chestfed.studies.training.plan_output import render

        return render(plans[0], machine, [variant.pipeline for variant in self.variants])

    @abstractmethod
    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        """Collect the studies, write the design's tables into a folder below `out`, and answer."""


def _size(variant: Variant) -> tuple[int, float]:
    """Number of sites, and of images that the target may train with."""
    sites = variant.pipeline.sites
    return len(sites), (sites[0].training_images if sites else None) or math.inf


@dataclass(frozen=True)
class DesignSpec:
    """Declaration of a design.

    `name` is the key of a pipeline that asks for it, and `options` is the model of that key; None: the schema of
    pipelines has the key itself. A design that `joins` others is chosen only if no other one is asked for. Keys that it
    `ignores` may be in a file, and are refused on a command line.
    """

    name: str
    make: type[Design]
    options: type[Options] = Options
    takes: frozenset[Takes] = frozenset()
    joins: Takes | None = None
    description: str = ""
    in_schema: bool = False  #: whether the schema of pipelines has the key itself
    ignores: frozenset[str] = frozenset()


DESIGNS: Final[Catalogue[DesignSpec]] = Catalogue(
    "design", "chestfed.designs", DesignSpec, packages=("chestfed.studies.designs",)
)


@dataclass(frozen=True)
class TableSpec:
    """Declaration of a table that is added to those of the design named `design`.

    `make` takes the finished studies and the folder of the design's tables, writes there what it has to keep, and
    returns what is printed; None: nothing.
    """

    name: str
    design: str
    make: Callable[[Sequence[Done], Path], RenderableType | None]
    options: type[Options] = Options


#: Tables that leaves and plug-ins add to a design.
TABLES: Final[Catalogue[TableSpec]] = Catalogue("table", "chestfed.tables", TableSpec, packages=())


def list_keys() -> dict[str, DesignSpec]:
    """The designs whose keys are not in the schema of pipelines, built-in and installed ones."""
    return {name: spec for name in DESIGNS.names if not (spec := DESIGNS.find(name)).in_schema}


def list_asked(file: PipelineFile) -> list[DesignSpec]:
    """The designs whose keys a pipeline has."""
    named = [] if file.design is None else [DESIGNS.find(file.design.name)]
    specs = DESIGNS.built_in.values()
    return named + [spec for spec in specs if spec.in_schema and getattr(file, spec.name, None) is not None]


def find_spec(file: PipelineFile) -> DesignSpec:
    """The design that a pipeline asks for; without a key the comparison of K or methods."""
    asked = list_asked(file)
    leading = [spec for spec in asked if spec.joins is None]
    return (leading or asked or [DESIGNS.find("comparison")])[0]


def make_design(file: PipelineFile, path: Path) -> Design:
    """The design of a pipeline."""
    return find_spec(file).make(file, path)


def finish(design: Design, done: Sequence[Done], out: Path) -> Finished:
    """Results of the studies of a design, with the tables that are added to it."""
    finished, name = design.finish(done, out), find_spec(design.file).name
    specs = [spec for spec in map(TABLES.find, TABLES.names) if spec.design == name]
    tables = [spec.make(done, finished.folder) for spec in specs]
    return replace(finished, after=(*finished.after, *(table for table in tables if table is not None)))


def list_variants(file: PipelineFile, path: Path) -> list[Variant]:
    """All studies of a pipeline, in the order in which they run."""
    return make_design(file, path).variants


def find_conflicts(file: PipelineFile) -> Iterator[str]:
    """Why the design cannot be combined with what else a pipeline has."""
    spec = find_spec(file)
    others = {other.name: other.joins for other in list_asked(file) if other is not spec}
    others |= {Takes.METHODS.value: Takes.METHODS} if file.is_comparison else {}
    others |= {Takes.SEEDS.value: Takes.SEEDS} if len(file.draws) > 1 else {}
    others |= {Takes.COLLECTION.value: Takes.COLLECTION} if not file.sites else {}
    if refused := [name for name, kind in others.items() if kind not in spec.takes]:
        yield (
            f"{spec.name}: not with {', '.join(refused)}; select a method with --methods, a seed with --seed, or "
            "remove a key"
        )
