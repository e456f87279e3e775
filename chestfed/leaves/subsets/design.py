"""Train the target with every set of the other sites, in place of every K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pydantic import Field

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Options
from chestfed.leaves.subsets.contributions import (
    collect_contributions,
    describe_contributions,
    render_contributions,
    write_contributions,
)
from chestfed.results.evaluation.joining.contributions import MOST_EXACT, Subset, list_subsets, sample_orders
from chestfed.results.tables.clients.along import Group, collect_along
from chestfed.results.tables.columns import SUBSETS as COLUMN
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.comparison import name_draw, write_together
from chestfed.studies.designs.design import Design, DesignSpec, Done, Finished, Takes, Variant
from chestfed.studies.designs.target import put_target_first
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.reporting import Summary


class Subsets(Options):
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
        "joining this set is worth to each, and what a gate (a choice of the model on validation patients) makes of it",
    )


class SubsetsDesign(Design):
    """The studies of every set of partners, split and seed."""

    one_plan = "largest"

    @property
    def options(self) -> Subsets:
        assert isinstance(self.file.design, Subsets)
        return self.file.design

    @cached_property
    def _entries(self) -> dict[str, SiteEntry]:
        """The sites by name, the target first."""
        pipeline, names = put_target_first(self.file.resolve(), self.path, self.options.target)
        return dict(zip(names, pipeline.sites, strict=True))

    @property
    def target(self) -> str:
        return next(iter(self._entries))

    @property
    def partners(self) -> tuple[str, ...]:
        return tuple(self._entries)[1:]

    @cached_property
    def orders(self) -> list[tuple[str, ...]] | None:
        """The orders of joining that are sampled; None: every set is a study."""
        if not self.partners:
            raise ConfigError("subsets: the pipeline has one site, so there is no partner", kind="no partner")
        if self.options.pairs is not None:
            return sample_orders(self.partners, self.options.pairs, self.file.seed)
        if len(self.partners) > MOST_EXACT:
            raise ConfigError(
                f"subsets: {len(self.partners)} partners have {2 ** len(self.partners):,} sets. Sample orders of "
                "joining: --set subsets.pairs=5",
                kind="too many sets",
                partners=len(self.partners),
            )
        return None

    @cached_property
    def pipeline(self) -> Pipeline:
        return self._restrict(self.file.resolve(), frozenset(self.partners))

    @cached_property
    def variants(self) -> list[Variant]:
        """Smallest sets first.

        Raises `ConfigError` also if there is no partner, or there are too many sets.
        """
        subsets, pipeline = list_subsets(self.partners, self.orders), self.file.resolve()
        return [
            Variant(study, f"{self._name(subset)}, {name_draw(study)}", values={"subset": subset})
            for draw in self.file.draws
            for subset in subsets
            for study in [self._restrict(pipeline.model_copy(update=draw), subset)]
        ]

    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        """Collect each partner's contribution; with alternatives, also the worth of each set to its hospitals."""
        runs = [(one.variant.values["subset"], one.variant.pipeline.seed, one.result.folder) for one in done]
        together = collect_contributions(runs, self.target, self.partners, self.orders)
        folder = write_contributions(together, out)
        names = zip(together.names, done, strict=True)
        folders = {label: one.result.folder.name for (_, label), one in names}
        name = f"{self.path.stem}, what partners contribute to {self.target}"
        finished = Finished(
            folder,
            describe_contributions(together),
            tuple(one.result for one in done),
            before=(render_contributions(together),),
            after=(f"written to {folder}: contributions.csv, sets.csv",),
            summary=Summary(name, together.origin, folder, together.metrics, folders),
        )
        if not self.options.alternatives:
            return finished
        chosen = [one for one in done if one.variant.values["subset"]]
        groups: dict[str, list[RunFolder]] = {}
        for (name, _), one in zip(together.names, done, strict=True):
            if one in chosen:
                groups.setdefault(name, []).append(RunFolder(one.result.folder))
        parts = [Group(runs, subset=name) for name, runs in groups.items()]
        along = write_together(self, chosen, collect_along(parts, self.pipeline.title, COLUMN), out)
        return replace(finished, results=along.results, results_folder=along.folder)

    def _name(self, subset: Subset) -> str:
        """The target and its partners, in the order of the pipeline."""
        return " + ".join((self.target, *(partner for partner in self.partners if partner in subset)))

    def _restrict(self, pipeline: Pipeline, subset: Subset) -> Pipeline:
        """The study of the target with these partners, with all their clients.

        It is scored at the target alone, unless alternatives are wanted.
        """
        names = [self.target, *(partner for partner in self.partners if partner in subset)]
        entries = [self._entries[name] for name in names]
        same = [[name for name in group if name in names] for group in pipeline.overlap.same_patient_ids]
        overlap = pipeline.overlap.model_copy(update={"same_patient_ids": [group for group in same if len(group) > 1]})
        changes = {"sites": entries, "k": [sum(entry.clients for entry in entries)], "overlap": overlap}
        changes |= {"published": None, "title": f"{pipeline.title}: {self._name(subset)}"}
        if not (self.options.alternatives and subset):
            changes["alternatives"] = None
            changes["evaluation"] = pipeline.evaluation.model_copy(update={"hospitals": "none"})
        return pipeline.model_copy(update=changes)


SUBSETS = DesignSpec(
    "subsets",
    SubsetsDesign,
    Subsets,
    takes=frozenset({Takes.SEEDS, Takes.ALTERNATIVES}),
    description="train with every set of partners of one target instead of every K; null: every K",
    ignores=frozenset({"k"}),
)
