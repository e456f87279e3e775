"""Each site held out in turn: train on all the others, score on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from rich.console import RenderableType

from chestfed.core.errors import ConfigError, nearest
from chestfed.core.provenance import Origin
from chestfed.data.sites import load_site_config
from chestfed.learning.models import name_network
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.frames import About
from chestfed.results.tables.presentations.held_out import Fold, collect_folds, list_fold_metrics, write_folds
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.designs.design import Design, DesignSpec, Done, Finished, Variant
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.plan import StudyPlan
from chestfed.studies.training.plan_output import render_held_out
from chestfed.studies.training.reporting import Summary


class HeldOutDesign(Design):
    """One study per site that is held out."""

    one_plan = ""

    @cached_property
    def variants(self) -> list[Variant]:
        """Raises `ConfigError` also if a site to hold out is unknown."""
        names = [load_site_config(self.path.parent / entry.config).site for entry in self.file.sites]
        return [
            _hold_out(self.pipeline, names.index(name), name) for name in select_held_out_sites(self.pipeline, names)
        ]

    def render_plans(self, plans: Sequence[StudyPlan], machine: Machine) -> RenderableType:
        return render_held_out(plans, self.pipeline.title, machine)

    def finish(self, done: Sequence[Done], out: Path) -> Finished:
        """One table of all sites."""
        folds, last = [_make_fold(one) for one in done], done[-1].result.results
        evaluation, origin = self.pipeline.evaluation, Origin.together(one.experiment.origin for one in done)
        about: About = {
            "model": name_network(self.pipeline.model),
            "protocol": evaluation.protocol,
            "quick": self.pipeline.quick,
            "batch_norm": None if last.about["batch_norm"] is None else evaluation.batch_norm,
        }
        results = collect_folds(folds, self.pipeline.title, origin, about)
        folder = write_folds(results, folds, out)
        name, folders = f"{self.path.stem}, all held-out sites", {fold.site: fold.folder for fold in folds}
        return Finished(
            folder,
            str(answer_study(results)),
            tuple(one.result for one in done),
            results,
            summary=Summary(name, results.origin, folder, list_fold_metrics(results), folders),
        )


HELD_OUT = DesignSpec("held_out", HeldOutDesign, in_schema=True)


def select_held_out_sites(pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """Names of the sites that are held out, in the order of the pipeline."""
    assert pipeline.held_out is not None
    selection = pipeline.held_out.sites
    if selection == "all":
        return list(names)
    for name in selection:
        if name not in names:
            close = nearest(name, names)
            hint = f"did you mean '{close}'?" if close else f"the sites are {', '.join(names)}"
            text = f"held_out.sites: '{name}' is not one of the study's sites; {hint}"
            raise ConfigError(text, kind="unknown site", site=name, suggestion=close)
    return [name for name in names if name in selection]


def _hold_out(pipeline: Pipeline, place: int, site: str) -> Variant:
    """Train with all clients of the other sites."""
    assert pipeline.held_out is not None
    chosen = pipeline.held_out.model_copy(update={"sites": [site]})
    clients = sum(entry.clients for number, entry in enumerate(pipeline.sites) if number != place)
    title = f"{pipeline.title}: without {site}"
    study = pipeline.model_copy(update={"held_out": chosen, "k": [clients], "title": title})
    return Variant(study, f"{site} held out", f"-{site}", {"site": site})


def _make_fold(done: Done) -> Fold:
    result, images = done.result, done.result.results.about["images"]
    row = RunFolder(result.folder).row().with_reasons(done.experiment.reasons)
    return Fold(done.variant.values["site"], images, result.folder.name, row, result.seen)
