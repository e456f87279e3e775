"""The studies that one command runs: one per seed, per held-out site, or per algorithm, window and seed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chestfed.core.errors import ConfigError
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.stage_2 import Federated
from chestfed.sites import load_site_config


@dataclass(frozen=True)
class Variant:
    """One study. `suffix` follows the pipeline's name in the name of its run folder."""

    pipeline: Pipeline
    label: str
    suffix: str = ""


def variants_of(
    pipeline: Pipeline,
    pipeline_file: Path,
    algorithms: Sequence[str] = (),
    windows: Sequence[int] = (),
    seeds: int | Sequence[int] | None = None,
) -> list[Variant]:
    """All studies, in the order in which they run: with all K for each seed, or with the largest K where algorithms or
    windows are compared. A number of `seeds` counts up from the pipeline's. With `held_out` the sites' YAMLs are read.

    Raises
    ------
    ConfigError
        If a name is unknown, something is named twice, or a held-out pipeline is to be compared.
    """
    if pipeline.held_out is not None:
        if algorithms or windows or seeds is not None:
            raise ConfigError(
                "--algorithms, --windows and --seeds compare; a pipeline with held_out runs once per site. Omit "
                "them, or use another seed with --seed"
            )
        names = [load_site_config(pipeline_file.parent / entry.config).site for entry in pipeline.sites]
        return [_held_out(pipeline, names.index(name), name) for name in held_out_sites(pipeline, names)]
    wanted = [pipeline.seed + n for n in range(seeds or 1)] if isinstance(seeds, int | None) else list(seeds)
    for compared, values in {"algorithms": algorithms, "windows": windows, "seeds": wanted}.items():
        if len(set(values)) < len(values):
            raise ConfigError(f"{compared}: name each once; found {', '.join(map(str, values))}")
    if algorithms or windows:
        return _compared(pipeline, algorithms, windows, wanted)
    chosen = [pipeline.for_algorithm().model_copy(update={"seed": seed}) for seed in wanted]
    return [Variant(one, _label(one)) for one in chosen]


def held_out_sites(pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """Names of the sites that are held out, in the order of the pipeline."""
    assert pipeline.held_out is not None
    wanted = pipeline.held_out.sites
    if wanted == "all":
        return list(names)
    for name in wanted:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean '{close[0]}'?" if close else f"the sites are {', '.join(names)}"
            raise ConfigError(f"held_out.sites: '{name}' is not one of the study's sites; {hint}")
    return [name for name in names if name in wanted]


def _held_out(pipeline: Pipeline, place: int, site: str) -> Variant:
    """Train with all clients of the other sites."""
    assert pipeline.held_out is not None
    chosen = pipeline.held_out.model_copy(update={"sites": [site]})
    clients = sum(entry.clients for number, entry in enumerate(pipeline.sites) if number != place)
    title = f"{pipeline.title}: without {site}"
    own = pipeline.for_algorithm().model_copy(update={"held_out": chosen, "k": [clients], "title": title})
    return Variant(own, f"{site} held out", f"-{site}")


def _compared(
    pipeline: Pipeline, algorithms: Sequence[str], windows: Sequence[int], seeds: Sequence[int]
) -> list[Variant]:
    """One variant per algorithm, window and seed; the seeds of an algorithm follow each other."""
    chosen = list(algorithms) or [pipeline.federated.algorithm.name]
    try:
        found = [
            pipeline.variant(name, seed, chosen, window)
            for name in chosen
            for window in (windows or (None,))
            for seed in seeds
        ]
    except ConfigError as error:
        raise ConfigError(f"--algorithms: {error}") from None
    return [Variant(one, _label(one)) for one in found]


def _label(pipeline: Pipeline) -> str:
    settings = pipeline.federated
    ks = ", ".join(map(str, pipeline.k))
    label = f"{settings.algorithm.name}, window {settings.window}, seed {pipeline.seed}, K={ks}"
    return label + whole_rounds(settings)


def whole_rounds(settings: Federated) -> str:
    """The steps that rounding to whole rounds gives in place of those asked for; empty if they are the same."""
    if settings.batches == settings.wanted_steps:
        return ""
    return f", {settings.batches:,} steps instead of {settings.wanted_steps:,} (rounded to whole rounds)"
