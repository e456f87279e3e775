"""Studies with every set of partners of a target hospital: who contributes what, without an order of addition."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from chestfed.core.config import StrictModel
from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError
from chestfed.evaluation.joining.contributions import MOST_EXACT, Subset, list_subsets, sample_orders
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


class Design:
    """The sets of partners of one target; `pipeline` has all sites, the target first."""

    def __init__(self, pipeline: Pipeline, path: Path, settings: Subsets) -> None:
        names = [load_site_config(path.parent / entry.config).site for entry in pipeline.sites]
        target = settings.target or names[0]
        if target not in names:
            hint = nearest_hint([target], names)
            text = f"subsets.target: '{target}' is not one of the sites {', '.join(names)}{hint}"
            raise ConfigError(text, kind="unknown site", site=target)
        first = names.index(target)
        order = [first, *(place for place in range(len(names)) if place != first)]
        entries = [pipeline.sites[place] for place in order]
        # Patients that a partner sets aside for testing would make the test set one of several hospitals.
        entries = [entries[0], *(entry.model_copy(update={"test_fraction": None}) for entry in entries[1:])]
        self.target, self.partners = target, tuple(names[place] for place in order[1:])
        self._entries = dict(zip((target, *self.partners), entries, strict=True))
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
        """The study of the target with these partners: with all their clients, scored at the target alone."""
        names = [self.target, *(partner for partner in self.partners if partner in subset)]
        entries = [self._entries[name] for name in names]
        same = [[name for name in group if name in names] for group in pipeline.overlap.same_patient_ids]
        overlap = pipeline.overlap.model_copy(update={"same_patient_ids": [group for group in same if len(group) > 1]})
        changes = {"sites": entries, "k": [sum(entry.clients for entry in entries)], "overlap": overlap}
        changes |= {"alternatives": None, "published": None, "title": f"{pipeline.title}: {self.name(subset)}"}
        evaluation = pipeline.evaluation.model_copy(update={"hospitals": "none"})
        study = pipeline.model_copy(update={**changes, "evaluation": evaluation})
        _check_target(study, self.target)
        return study


def _check_target(study: Pipeline, target: str) -> None:
    entry = study.sites[0]
    if entry.control is not None:
        raise ConfigError(f"subsets: {target} is a negative control and cannot be the target", kind="control as target")
    if entry.test_fraction is not None and study.evaluation.split != "test":
        raise ConfigError(f"subsets: {target} has test_fraction: set evaluation.split: test", kind="other split")
