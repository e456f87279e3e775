"""Studies of one target hospital: with every set of partners, or with fewer and fewer images of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from chestfed.core.config import StrictModel
from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError
from chestfed.evaluation.joining.contributions import MOST_EXACT, Subset, list_subsets, sample_orders
from chestfed.experiment.data import SiteEntry
from chestfed.experiment.pipeline import Pipeline
from chestfed.sites import load_site_config


class Subsets(StrictModel):
    """Train the target with every set of the other sites, and say what each of them contributes."""

    target: str | None = Field(None, description="site at which the models are scored; null: the first one")
    pairs: int | None = Field(
        None,
        ge=2,
        le=1000,
        description="pairs of random orders of joining to sample, each with its reverse; null: all sets, of at most "
        f"{MOST_EXACT} partners",
    )
    alternatives: bool = Field(
        False,
        description="also score the hospitals of every set, and train the pipeline's `alternatives` there: what "
        "joining this set is worth to each, and what a gate makes of it",
    )


class TargetImages(StrictModel):
    """Train with fewer images of the target, to see how the gain of joining depends on their number."""

    counts: list[Annotated[int, Field(ge=1)] | None] = Field(
        min_length=1, description="numbers of the target's training images; null: all"
    )
    target: str | None = Field(None, description="site whose images are fewer, and that is scored; null: the first one")


def put_target_first(pipeline: Pipeline, path: Path, target: str | None) -> tuple[Pipeline, list[str]]:
    """The pipeline with the target as its first site, and the names of all sites in that order.

    A partner's `test_fraction` is left out: patients that it sets aside would make the test set one of several
    hospitals.

    Raises `ConfigError` if there is no such site, or it cannot be the target.
    """
    names = [load_site_config(path.parent / entry.config).site for entry in pipeline.sites]
    target = target or names[0]
    if target not in names:
        hint = nearest_hint([target], names)
        text = f"target: '{target}' is not one of the sites {', '.join(names)}{hint}"
        raise ConfigError(text, kind="unknown site", site=target)
    first = names.index(target)
    order = [first, *(place for place in range(len(names)) if place != first)]
    entries = [pipeline.sites[place] for place in order]
    entries = [entries[0], *(entry.model_copy(update={"test_fraction": None}) for entry in entries[1:])]
    _check_target(entries[0], target, pipeline.evaluation.split)
    return pipeline.model_copy(update={"sites": entries}), [names[place] for place in order]


def limit_target(pipeline: Pipeline, images: int | None) -> Pipeline:
    """The study with at most so many training images of its first site; None: all."""
    first = pipeline.sites[0].model_copy(update={"training_images": images})
    return pipeline.model_copy(update={"sites": [first, *pipeline.sites[1:]]})


class Design:
    """The sets of partners of one target; `pipeline` has all sites, the target first."""

    def __init__(self, pipeline: Pipeline, path: Path, settings: Subsets) -> None:
        pipeline, (self.target, *partners) = put_target_first(pipeline, path, settings.target)
        self.partners, self.alternatives = tuple(partners), settings.alternatives
        self._entries = dict(zip((self.target, *self.partners), pipeline.sites, strict=True))
        if not self.partners:
            raise ConfigError("subsets: the pipeline has one site, so there is no partner", kind="no partner")
        if settings.pairs is None and len(self.partners) > MOST_EXACT:
            raise ConfigError(
                f"subsets: {len(self.partners)} partners have {2 ** len(self.partners):,} sets. Sample orders of "
                "joining: --set subsets.pairs=5",
                kind="too many sets",
                partners=len(self.partners),
            )
        self.orders = None if settings.pairs is None else sample_orders(self.partners, settings.pairs, pipeline.seed)
        self.pipeline = self.restrict(pipeline, frozenset(self.partners))

    @property
    def subsets(self) -> list[Subset]:
        """Smallest first."""
        return list_subsets(self.partners, self.orders)

    def name(self, subset: Subset) -> str:
        """The target and its partners, in the order of the pipeline."""
        return " + ".join((self.target, *(partner for partner in self.partners if partner in subset)))

    def restrict(self, pipeline: Pipeline, subset: Subset) -> Pipeline:
        """The study of the target with these partners, with all their clients.

        It is scored at the target alone, unless alternatives are wanted.
        """
        names = [self.target, *(partner for partner in self.partners if partner in subset)]
        entries = [self._entries[name] for name in names]
        same = [[name for name in group if name in names] for group in pipeline.overlap.same_patient_ids]
        overlap = pipeline.overlap.model_copy(update={"same_patient_ids": [group for group in same if len(group) > 1]})
        changes = {"sites": entries, "k": [sum(entry.clients for entry in entries)], "overlap": overlap}
        changes |= {"published": None, "title": f"{pipeline.title}: {self.name(subset)}"}
        if not (self.alternatives and subset):
            changes["alternatives"] = None
            changes["evaluation"] = pipeline.evaluation.model_copy(update={"hospitals": "none"})
        return pipeline.model_copy(update=changes)


def _check_target(entry: SiteEntry, target: str, split: str) -> None:
    if entry.control is not None:
        raise ConfigError(f"target: {target} is a negative control and cannot be the target", kind="control as target")
    if entry.test_fraction is not None and split != "test":
        raise ConfigError(f"target: {target} has test_fraction: set evaluation.split: test", kind="other split")
