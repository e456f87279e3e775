"""The studies that one command runs: one per seed, held-out site or set of partners, or per method, window and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from chestfed.core.diseases import nearest_hint
from chestfed.core.errors import ConfigError, nearest
from chestfed.data.sites import load_site_config
from chestfed.results.evaluation.joining.contributions import MOST_EXACT, Subset, list_subsets, sample_orders
from chestfed.studies.experiment.data import SiteEntry, Subsets
from chestfed.studies.experiment.methods import PipelineFile
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.stage_2 import Federated


@dataclass(frozen=True)
class Variant:
    """One study. `suffix` follows the pipeline's name in the name of its run folder.

    `subset` are the target's partners, in a study of sets of them; `images` the number of the target's training images,
    in words, where it is limited.
    """

    pipeline: Pipeline
    label: str
    suffix: str = ""
    subset: Subset | None = None
    images: str = ""


def list_variants(file: PipelineFile, path: Path) -> list[Variant]:
    """All studies of a pipeline, in the order in which they run: with all K for each seed, or with the largest K where
    methods or windows are compared. With `held_out` the sites' YAMLs are read.

    Raises `ConfigError` if a method cannot run, a site to hold out is unknown, or two methods of a comparison are the
    same.
    """
    if file.held_out is not None:
        names = [load_site_config(path.parent / entry.config).site for entry in file.sites]
        pipeline = file.resolve()
        return [_held_out(pipeline, names.index(name), name) for name in held_out_sites(pipeline, names)]
    if file.subsets is not None:
        design = Design(file.resolve(), path, file.subsets)
        return [_subset(file, design, seed, subset) for seed in file.seed_list for subset in design.subsets]
    if file.target_images is not None:
        pipeline, _ = put_target_first(file.resolve(), path, file.target_images.target)
        return [
            _limited(pipeline.model_copy(update={"seed": seed}), count)
            for count in file.target_images.counts
            for seed in file.seed_list
        ]
    methods = {method.name: file.resolve(method.name) for method in file.selected_methods}
    _refuse_equal_methods(methods)
    algorithms = [pipeline.federated.algorithm.name for pipeline in methods.values()]
    if file.windows and len(set(algorithms)) < len(algorithms):
        raise ConfigError(
            f"windows: two methods of {', '.join(algorithms)} have one algorithm; select one, or set window in each "
            "method and remove windows",
            kind="windows of one algorithm",
        )
    return [
        _variant(file, pipeline, seed, window)
        for pipeline in methods.values()
        for window in (file.windows or (None,))
        for seed in file.seed_list
    ]


def _refuse_equal_methods(methods: Mapping[str, Pipeline]) -> None:
    """Refuse two methods with the same settings: they would be one run with two names."""
    for (name, pipeline), (other, second) in combinations(methods.items(), 2):
        if pipeline.model_copy(update={"method": other}) == second:
            raise ConfigError(
                f"methods: {name} and {other} have the same settings; change one, or remove it", kind="equal methods"
            )


def _variant(file: PipelineFile, pipeline: Pipeline, seed: int, window: int | None) -> Variant:
    changes: dict[str, object] = {"seed": seed}
    if window is not None:
        changes["federated"] = pipeline.federated.model_copy(update={"window": window})
        changes["tuning"] = pipeline.tuning if window == pipeline.federated.window else None
    if file.is_comparison:
        changes["k"] = [max(pipeline.k)]
    study = pipeline.model_copy(update=changes)
    return Variant(study, _label(study))


def _subset(file: PipelineFile, design: Design, seed: int, subset: Subset) -> Variant:
    """Train the target with these partners, and no others."""
    study = design.restrict(file.resolve().model_copy(update={"seed": seed}), subset)
    return Variant(study, f"{design.name(subset)}, seed {seed}", subset=subset)


def _limited(pipeline: Pipeline, count: int | None) -> Variant:
    """Train with at most so many images of the target."""
    images = "all target images" if count is None else f"{count} target images"
    study = limit_target(pipeline, count)
    return Variant(study, f"{images}, {_label(study)}", images=images)


def held_out_sites(pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """Names of the sites that are held out, in the order of the pipeline."""
    assert pipeline.held_out is not None
    selection = pipeline.held_out.sites
    if selection == "all":
        return list(names)
    for name in selection:
        if name not in names:
            close = nearest(name, names, 0.5)
            hint = f"did you mean '{close}'?" if close else f"the sites are {', '.join(names)}"
            text = f"held_out.sites: '{name}' is not one of the study's sites; {hint}"
            raise ConfigError(text, kind="unknown site", site=name, suggestion=close)
    return [name for name in names if name in selection]


def _held_out(pipeline: Pipeline, place: int, site: str) -> Variant:
    """Train with all clients of the other sites."""
    assert pipeline.held_out is not None
    chosen = pipeline.held_out.model_copy(update={"sites": [site]})
    clients = sum(entry.clients for number, entry in enumerate(pipeline.sites) if number != place)
    title = f"{pipeline.title}: without {site}"
    study = pipeline.model_copy(update={"held_out": chosen, "k": [clients], "title": title})
    return Variant(study, f"{site} held out", f"-{site}")


def _label(pipeline: Pipeline) -> str:
    settings = pipeline.federated
    ks = ", ".join(map(str, pipeline.k))
    label = f"{pipeline.method}, window {settings.window}, seed {pipeline.seed}, K={ks}"
    return label + whole_rounds(settings)


def whole_rounds(settings: Federated) -> str:
    """The steps that rounding to whole rounds gives in place of those asked for; empty if they are the same."""
    if settings.batches == settings.wanted_steps:
        return ""
    return f", {settings.batches:,} steps instead of {settings.wanted_steps:,} (rounded to whole rounds)"


# ---- one target --------------------------------------------------------------------------------------------------


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
        raise ConfigError(text, kind="unknown site", site=target, suggestion=nearest(target, names))
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
