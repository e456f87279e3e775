"""What a dry run prints of its plans: tables, disk, memory, time, and what the test set can show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.core.console import plural, text_table
from chestfed.core.diseases import format_title as disease_title
from chestfed.core.disk import size_text
from chestfed.data.sites.stats import advise_test_patients
from chestfed.learning.models import name_network
from chestfed.results.evaluation import power
from chestfed.results.evaluation.joining.planning import count_freedom
from chestfed.results.evaluation.labeled import LEAST_PATIENTS
from chestfed.results.evaluation.protocols import describe_hospitals
from chestfed.results.tables.clients.influence import unusual_clients
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.stage_2 import whole_rounds
from chestfed.studies.training.costs import bytes_per_client_round, count_state_bytes, duration, estimated
from chestfed.studies.training.data.class_counts import draw_class_counts
from chestfed.studies.training.plan import DRAW, STAGE_1, PlannedPart, StudyPlan


def render(plan: StudyPlan, machine: Machine, pipelines: Sequence[Pipeline]) -> RenderableType:
    """The images and labels of each client and of the test set of one study, and the parts of these studies."""
    caption = (
        "rows: the training list, with repeated positives; positive/negative images per disease, the rest is missing"
    )
    shares = {share.client: [f"{share.weight:.2f}", f"{share.per_row:.2f}"] for share in plan.influence}
    if shares:
        caption += (
            f". weight: in every mean of K={max(plan.pipeline.k)}, federated.weights: "
            f"{plan.pipeline.federated.weights}; per row: relative to a mean over all rows"
        )
    clients = text_table(
        f"{plan.origin.short_mark}{plan.pipeline.title}",
        ["client"],
        ["images", "rows", *_tasks(plan), *(["weight", "per row"] if shares else [])],
        (
            [part.name, f"{part.images:,}", f"{part.rows:,}", *part.per_disease, *shares.get(part, [])]
            for part in (*plan.clients, plan.test)
        ),
        caption,
    )
    total = sum(part.seconds for _, part in plan.list_runs(pipelines))
    facts = (
        f"{_facts(plan, machine)}, evaluated {plural(len(plan.pipeline.evaluated_rounds), 'time')}{_elsewhere(plan)}. "
        f"{_headline(plan)}"
        f"{estimated(total, plan.timings)}, without start-up and MLflow. Nothing was written."
    )
    picture = draw_class_counts({client.name: client.classes for client in plan.clients})
    pictures = [Text(f"{picture}\n")] if picture else []
    below = [facts, *list_needs(plan), *propose_settings(machine)]
    return Group(clients, *pictures, *map(Text, _remarks(plan)), tabulate_parts(plan, pipelines), *map(Text, below))


def tabulate_parts(plan: StudyPlan, pipelines: Sequence[Pipeline]) -> RenderableType:
    """Table of what would run in these studies: steps, images, rounds, bytes and time of a run, and how many there are.

    Runs of one part that take unlike long have a line each.
    """
    columns = ["clients", "steps per client", "images", "rounds", "sent up", "sent down", "time"]
    runs = plan.list_runs(pipelines)
    counts = Counter((part.name, part.seconds) for _, part in runs)
    first = {(part.name, part.seconds): (of, part) for of, part in reversed(runs)}
    rows = [[*_row(*first[line]), duration(line[1]), f"{count:,}"] for line, count in counts.items()]
    if len(pipelines) > 1:
        return text_table("What would run", ["part"], [*columns, "runs"], rows, "time: of one run")
    return text_table("What would run", ["part"], columns, [row[:-1] for row in rows])


def list_needs(plan: StudyPlan) -> list[str]:
    """Disk and memory, as far as they are known before a study runs."""
    states = size_text(count_state_bytes(plan.timings.parameters, len(plan.pipeline.k)))
    decoded = f"{size_text(plan.images * plan.pipeline.preprocess.size**2)} of decoded images in the cache, "
    disk = f"Disk: {decoded if plan.pipeline.sites else ''}at least {states} of models and states in --out."
    memory = f"Memory: at least {size_text(plan.timings.memory)}, which a step needed here."
    return [disk, memory] if plan.timings.memory else [disk]


def propose_settings(machine: Machine) -> list[str]:
    """Settings with which this machine would be faster; each makes another run."""
    if not machine.lacks_bf16:
        return []
    return [
        "Proposed on this GPU: --set runtime.bf16=true. The network then moves half the bytes; the last digits change."
    ]


def render_held_out(plans: Sequence[StudyPlan], title: str, machine: Machine) -> RenderableType:
    """One study per held-out site: who trains, and what is scored."""
    first = plans[0]
    assert first.pipeline.held_out is not None
    which = first.pipeline.held_out.images
    images = "all its images" if which == "all" else f"its {which} split"
    shown = text_table(
        f"{first.origin.short_mark}{title}",
        ["held out", "stage 1 on", "stage 2 on"],
        ["rows trained on", "images scored", *_tasks(first), "time"],
        (
            [
                plan.label.removesuffix(" held out"),
                plan.clients[0].name,
                "\n".join(client.name for client in plan.clients),
                f"{sum(client.rows for client in plan.clients):,}",
                f"{plan.test.images:,}",
                *plan.test.per_disease,
                duration(plan.training_seconds),
            ]
            for plan in plans
        ),
        f"positives/negatives per disease of the images that are scored: of each held-out site {images} "
        f"({first.pipeline.evaluation.protocol}); the rest is missing. None of them trains.",
    )
    most = sum(plan.training_seconds for plan in plans) + first.data_seconds
    facts = (
        f"{len(plans)} studies, one for each site that is held out; stage 1 is shared by those that start on the same "
        f"site. {_facts(first, machine)}. {estimated(most, first.timings)}, with stage 1 counted for every study, "
        "without start-up and MLflow. Nothing was written."
    )
    return Group(shown, Text(facts))


def _remarks(plan: StudyPlan) -> list[str]:
    """Unusual clients, and what the test set can show at all."""
    pipeline = plan.pipeline
    remarks = [*plan.remarks]
    remarks += unusual_clients(
        plan.influence, pipeline.tasks, adds_hospitals=bool(pipeline.sites) and not pipeline.held_out
    )
    few = {
        task: f"{disease_title(task)} ({positives} with it, {negatives} without)"
        for task, (positives, negatives) in zip(pipeline.tasks, plan.test_patients, strict=True)
        if 0 < min(positives, negatives) < LEAST_PATIENTS
    }
    if few:
        least = dict(zip(pipeline.tasks, map(min, plan.patients), strict=False))  # of a collection nothing is known
        known = {task: least[task] for task in few if task in least}
        advice = advise_test_patients(
            known,
            LEAST_PATIENTS,
            "; or ".join(plan.more_tested).replace("; or M", "; or m").replace("; or R", "; or r"),
        )
        remarks.append(
            f"Warning: fewer than {LEAST_PATIENTS} test patients have, or do not have, {', '.join(few.values())}: no "
            f"mean and no verdict will rest on it. {advice}".rstrip(". ")
        )
    counted = [
        ((positives, negatives), patients)
        for positives, negatives, patients in zip(
            plan.test.positives, plan.test.negatives, plan.test_patients, strict=True
        )
        if min(patients) >= LEAST_PATIENTS
    ]
    error = power.difference_error(images for images, _ in counted)
    if error is not None:
        smallest = power.detectable_difference(error, count_freedom([patients for _, patients in counted]))
        remarks.append(
            f"With these {plan.test.images:,} test images a difference of mean AUC below about "
            f"{smallest:.3f} is likely to be missed (80% power, 5% level; assuming AUCs of "
            f"{power.AUC} and scores of two models with a correlation of {power.CORRELATION}; other training seeds "
            "come on top)"
        )
    return remarks


def _row(plan: StudyPlan, part: PlannedPart) -> list[str]:
    """Name, clients, steps, images, rounds and bytes of a part."""
    pipeline, settings, other = plan.pipeline, plan.pipeline.federated, part.alternative
    if other is not None:
        images = other.pretrain_steps * pipeline.pretrain.batch_size + other.federated_steps * settings.images_per_step
        return [part.name, "1", f"{other.pretrain_steps + other.federated_steps:,}", f"{images:,}", "", "", ""]
    if part.k is not None:
        up, down = bytes_per_client_round(pipeline, plan.timings.parameters, plan.timings.buffers, part.k)
        clients = settings.taking_part(part.k)
        images = settings.steps * clients * settings.images_per_step
        sent = [size_text(settings.rounds * clients * each) for each in (up, down)]
        return [part.name, str(part.k), f"{settings.steps:,}", f"{images:,}", f"{settings.rounds:,}", *sent]
    if part.name == STAGE_1:
        images = plan.pretrain_steps * pipeline.pretrain.batch_size
        return [part.name, "1", f"{plan.pretrain_steps:,}", f"{images:,}", "", "", ""]
    return [part.name, "", "", "" if part.name == DRAW else f"{plan.images:,}", "", "", ""]


def _facts(plan: StudyPlan, machine: Machine) -> str:
    pipeline, settings = plan.pipeline, plan.pipeline.federated
    length = f"{plural(len(settings.schedule), 'stage')}, {plural(settings.rounds, 'round')}{whole_rounds(settings)}"
    return (
        f"{name_network(pipeline.model)}, {plan.timings.parameters:,} parameters, on {machine.name}. "
        f"{settings.spec.name}, window {settings.window}, {length}"
    )


def _elsewhere(plan: StudyPlan) -> str:
    if not plan.at_hospitals:
        return ""
    whose = plural(plan.hospitals, "hospital") + (
        ", the target included" if plan.with_target else " besides the target"
    )
    return f"; every K then on {plan.at_hospitals:,} held-out images of {whose}"


def _headline(plan: StudyPlan) -> str:
    """Meaning of the AUC if the test set has images of several hospitals; else empty."""
    text = describe_hospitals(plan.test_hospitals, plan.pipeline.evaluation.over_hospitals).removeprefix(", ")
    return f"AUC: {text}. " if text else ""


def _tasks(plan: StudyPlan) -> list[str]:
    return [disease_title(task) for task in plan.pipeline.tasks]
