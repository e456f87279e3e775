"""Every K with fewer images of the target, to see how the gain of joining depends on their number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from chestfed.core.plugins import Options
from chestfed.results.tables.clients.along import Group, collect_along
from chestfed.results.tables.columns import TARGET_IMAGES as COLUMN
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.comparison import label_study, write_together
from chestfed.studies.designs.design import Design, DesignSpec, Done, Finished, Takes, Variant
from chestfed.studies.designs.target import limit_target, put_target_first
from chestfed.studies.experiment.pipeline import Pipeline

#: A number of images; None: all, which is written `all` or null.
_Count = Annotated[
    Annotated[int, Field(ge=1)] | None,
    BeforeValidator(
        lambda value: None if value == "all" else value,
        json_schema_input_type=Annotated[int, Field(ge=1)] | Literal["all"] | None,
    ),
]


class TargetImages(Options):
    """Train with fewer images of the target, to see how the gain of joining depends on their number."""

    counts: list[_Count] = Field(min_length=1, description="numbers of the target's training images, or all of them")
    target: str | None = Field(None, description="site whose images are fewer, and that is scored; null: the first one")

    @field_validator("counts")
    @classmethod
    def _names_each_once(cls, value: list[int | None]) -> list[int | None]:
        if len(set(value)) < len(value):
            raise ValueError(f"name each once; found {', '.join(str(count or 'all') for count in value)}")
        return value


class TargetImagesDesign(Design):
    """The studies of every number of images, split and seed."""

    one_plan = "largest"

    @property
    def options(self) -> TargetImages:
        assert isinstance(self.file.design, TargetImages)
        return self.file.design

    @cached_property
    def pipeline(self) -> Pipeline:
        return put_target_first(self.file.resolve(), self.path, self.options.target)[0]

    @cached_property
    def variants(self) -> list[Variant]:
        return [
            self._limit(self.pipeline.model_copy(update=draw), count)
            for count in self.options.counts
            for draw in self.file.draws
        ]

    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        """Each number of images is collected by itself, over its seeds."""
        groups: dict[int | None, list[RunFolder]] = {}
        for one in done:
            groups.setdefault(one.variant.values["images"], []).append(RunFolder(one.result.folder))
        parts = [Group(runs, target_images=images) for images, runs in groups.items()]
        return write_together(self, done, collect_along(parts, self.pipeline.title, COLUMN), out)

    def _limit(self, pipeline: Pipeline, count: int | None) -> Variant:
        study = limit_target(pipeline, count)
        return Variant(study, f"{_count(count)}, {label_study(study)}", values={"images": count})


TARGET_IMAGES = DesignSpec(
    "target_images",
    TargetImagesDesign,
    TargetImages,
    takes=frozenset({Takes.SEEDS, Takes.ALTERNATIVES}),
    description="train every K with fewer images of the target, instead of all",
)


def _count(images: int | None) -> str:
    """The number of the target's training images, in words."""
    return "all target images" if images is None else f"{images} target images"
