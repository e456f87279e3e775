"""Plans for a terminal: `chestfed study --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chestfed.core.diseases import TITLES
from chestfed.experiment.device import Machine
from chestfed.training.plan import TIMED_STEPS, ClientPlan, StudyPlan, whole_rounds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def render(plan: StudyPlan, machine: Machine) -> RenderableType:
    """One study: its clients and its parts."""
    from rich.console import Group
    from rich.text import Text

    total = plan.contents.decode_seconds + plan.training_seconds
    facts = (
        f"{_facts(plan, machine)}, evaluated {len(plan.pipeline.evaluated_rounds)} times. {_total(total, 'about')}; "
        "start-up and MLflow come on top. Nothing was written."
    )
    return Group(_clients(plan), _parts(plan), Text(facts))


def render_held_out(plans: Sequence[StudyPlan], title: str, machine: Machine) -> RenderableType:
    """One study per held-out site: who trains, and what is scored."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    first = plans[0]
    assert first.pipeline.held_out is not None
    which = first.pipeline.held_out.images
    images = "all its images" if which == "all" else f"its {which} split"
    shown = Table(title=f"{first.contents.origin.short_mark}{title}", title_justify="left", caption_justify="left")
    shown.caption = (
        f"positives/negatives per disease of the images that are scored: of each held-out site {images} "
        f"({first.pipeline.evaluation.protocol}); the rest is missing. None of them trains."
    )
    for name in ("held out", "stage 1 on", "stage 2 on"):
        shown.add_column(name, overflow="fold")
    for name in ("rows trained on", "images scored", *_tasks(first), "time, about"):
        shown.add_column(name, justify="right")
    for plan in plans:
        clients, test = plan.contents.clients, plan.contents.test
        shown.add_row(
            plan.label.removesuffix(" held out"),
            clients[0].name,
            "\n".join(client.name for client in clients),
            f"{sum(client.rows for client in clients):,}",
            f"{test.images:,}",
            *_counts(test),
            duration(plan.training_seconds),
        )
    facts = (
        f"{len(plans)} studies, one for each site that is held out; stage 1 is shared by those that start on the same "
        f"site. {_facts(first, machine)}. {_total(sum(plan.training_seconds for plan in plans), 'at most')}; decoding "
        "what is not cached, start-up and MLflow come on top. Nothing was written."
    )
    return Group(shown, Text(facts))


def _clients(plan: StudyPlan) -> Table:
    """Images and labels of each client and of the test set."""
    from rich.table import Table

    mark = plan.contents.origin.short_mark
    shown = Table(title=f"{mark}{plan.pipeline.title}", title_justify="left", caption_justify="left")
    shown.caption = "positives/negatives per disease, repeated training rows counted; the rest is missing"
    shown.add_column("client")
    for name in ("images", "rows", *_tasks(plan)):
        shown.add_column(name, justify="right")
    for part in (*plan.contents.clients, plan.contents.test):
        shown.add_row(part.name, f"{part.images:,}", f"{part.rows:,}", *_counts(part))
    return shown


def _parts(plan: StudyPlan) -> Table:
    """Steps, images, bytes and time of decoding, stage 1, and stage 2 of each K."""
    from rich.table import Table

    pipeline, settings = plan.pipeline, plan.pipeline.federated
    up, down = plan.bytes_per_client_round
    work = Table(title="What would run", title_justify="left")
    names = ("part", "clients", "steps per client", "images", "rounds", "sent up", "sent down", "time, about")
    for name in names:
        work.add_column(name, justify="left" if name == "part" else "right")
    images, decode = plan.contents.images, plan.contents.decode_seconds
    work.add_row("decode what is not cached", "", "", f"{images:,}", "", "", "", duration(decode))
    steps = plan.pretrain_steps
    trained = f"{steps * pipeline.pretrain.batch_size:,}"
    work.add_row("stage 1", "1", f"{steps:,}", trained, "", "", "", duration(plan.stage_1_seconds))
    for k in pipeline.k:
        work.add_row(
            f"stage 2, K={k}",
            str(k),
            f"{settings.steps:,}",
            f"{settings.steps * k * settings.images_per_step:,}",
            f"{settings.rounds:,}",
            _size(settings.rounds * k * up),
            _size(settings.rounds * k * down),
            duration(plan.stage_2_seconds(k)),
        )
    return work


def _facts(plan: StudyPlan, machine: Machine) -> str:
    pipeline, settings = plan.pipeline, plan.pipeline.federated
    return (
        f"{pipeline.model.title}, {plan.timings.parameters:,} parameters, on {machine.name}. {settings.algorithm}, "
        f"window {settings.window}, {len(settings.schedule)} stages, {settings.rounds} rounds{whole_rounds(settings)}"
    )


def _total(seconds: float, how: str) -> str:
    return f"Estimated total: {how} {duration(seconds)}, from {TIMED_STEPS} timed steps"


def _tasks(plan: StudyPlan) -> list[str]:
    return [TITLES.get(task, task) for task in plan.pipeline.tasks]


def _counts(part: ClientPlan) -> list[str]:
    return [f"{p}/{n}" for p, n in zip(part.positives, part.negatives, strict=True)]


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
