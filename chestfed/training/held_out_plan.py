"""What holding each site out would do. Reads label files, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chestfed.core.diseases import TITLES
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.models import title_of
from chestfed.training.clients import SiteTables
from chestfed.training.held_out import SiteRows, held_out_sites, variant
from chestfed.training.plan import StudyPlan, contents_of_tables, duration, plan_study, whole_rounds

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class FoldPlan:
    """One held-out site: its study's pipeline and plan."""

    site: str
    pipeline: Pipeline
    plan: StudyPlan


def plan_folds(pipeline: Pipeline, sites: Sequence[SiteRows], machine: Machine) -> list[FoldPlan]:
    """Count every fold; the steps are timed once, for the network is the same."""
    names = [site.whole.name for site in sites]
    plans: list[FoldPlan] = []
    for name in held_out_sites(pipeline, names):
        others = [site for site in sites if site.whole.name != name]
        held = sites[names.index(name)]
        clients = tuple(client for site in others for client in site.clients)
        tables = SiteTables(tuple(site.whole for site in sites), clients, (held.unseen,))
        contents, settings = contents_of_tables(tables), variant(pipeline, name, len(clients))
        if not plans:
            plan = plan_study(settings, contents, machine)
        else:
            first = plans[0].plan
            per_image = first.evaluation_seconds / first.contents.test.images
            plan = replace(
                first,
                contents=contents,
                pretrain_steps=pipeline.pretrain.steps(contents.clients[0].rows),
                evaluation_seconds=per_image * contents.test.images,
            )
        plans.append(FoldPlan(name, settings, plan))
    return plans


def seconds(fold: FoldPlan) -> float:
    """Estimated seconds of one fold, without decoding; the scores of the sites trained on are not counted."""
    plan, federated = fold.plan, fold.pipeline.federated
    evaluations = len(fold.pipeline.evaluated_rounds)
    stage_2 = federated.steps * fold.pipeline.k[0] * plan.step_seconds[1]
    return plan.pretrain_steps * plan.step_seconds[0] + stage_2 + evaluations * plan.evaluation_seconds


def render(plans: Sequence[FoldPlan], pipeline: Pipeline, machine: Machine) -> RenderableType:
    """The folds for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    assert pipeline.held_out is not None
    mark = plans[0].plan.contents.origin.short_mark
    shown = Table(title=f"{mark}{pipeline.title}", title_justify="left", caption_justify="left")
    images = "all its images" if pipeline.held_out.images == "all" else f"its {pipeline.held_out.images} split"
    shown.caption = (
        f"positives/negatives per disease of the images that are scored: of each held-out site {images} "
        f"({pipeline.evaluation.protocol}); the rest is missing. None of them trains."
    )
    for name in ("held out", "stage 1 on", "stage 2 on"):
        shown.add_column(name, overflow="fold")
    for name in (
        "rows trained on",
        "images scored",
        *(TITLES.get(task, task) for task in pipeline.tasks),
        "time, about",
    ):
        shown.add_column(name, justify="right")
    for fold in plans:
        clients, test = fold.plan.contents.clients, fold.plan.contents.test
        shown.add_row(
            fold.site,
            clients[0].name,
            "\n".join(client.name for client in clients),
            f"{sum(client.rows for client in clients):,}",
            f"{test.images:,}",
            *(f"{p}/{n}" for p, n in zip(test.positives, test.negatives, strict=True)),
            duration(seconds(fold)),
        )
    first = plans[0]
    settings = first.pipeline.federated
    total = sum(map(seconds, plans))
    facts = (
        f"{len(plans)} studies, one for each site that is held out; stage 1 is shared by those that start on the same "
        f"site. {title_of(first.pipeline.model)}, {first.plan.parameters:,} parameters, on {machine.name}. "
        f"{settings.spec.name}, window {settings.window}, {len(settings.schedule)} stages, {settings.rounds} rounds"
        f"{whole_rounds(settings)}. "
        f"In all at most about {duration(total)}, from a few timed steps; decoding what is not cached, start-up and "
        "MLflow come on top. Nothing was written."
    )
    return Group(shown, Text(facts))
