"""The studies that one command runs: one per seed, held-out site or set of partners, or per method, window and seed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from chestfed.core.errors import ConfigError
from chestfed.evaluation.joining.contributions import Subset
from chestfed.experiment.methods import PipelineFile
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.stage_2 import Federated
from chestfed.experiment.subsets import Design, limit_target, put_target_first
from chestfed.sites import load_site_config


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
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean '{close[0]}'?" if close else f"the sites are {', '.join(names)}"
            text = f"held_out.sites: '{name}' is not one of the study's sites; {hint}"
            raise ConfigError(text, kind="unknown site", site=name, hint=hint)
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
