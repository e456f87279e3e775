"""What a study would do: images, positives, steps, bytes, time. Reads label files, writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Self

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chestfed.algorithms.variables import Point, byte_count
from chestfed.core.diseases import TITLES
from chestfed.core.errors import ImageError
from chestfed.core.provenance import Origin
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import graph_of, objective_of, ratio_of_duals, rule_of_stage
from chestfed.experiment.variants import whole_rounds
from chestfed.images.decode import decode
from chestfed.models import FlatModule, build_model, seeded, title_of
from chestfed.objectives.declaration import Population
from chestfed.training.clients import StudyData
from chestfed.training.study_tables import StudyTables

#: Images decoded per site, and training steps timed, to estimate the time.
_TIMED_IMAGES, _TIMED_STEPS = 6, 3


@dataclass(frozen=True)
class Counted:
    """One client, or the test set: images, training rows (repeats counted), positives and negatives per disease."""

    name: str
    images: int
    rows: int
    positives: tuple[int, ...]
    negatives: tuple[int, ...]

    @classmethod
    def of(cls, name: str, labels: np.ndarray, repeats: np.ndarray) -> Self:
        """Count labels `[n, J]`, each row `repeats[n]` times."""
        positives, negatives = (((labels == value) * repeats[:, None]).sum(axis=0).tolist() for value in (1, 0))
        return cls(name, len(labels), int(repeats.sum()), tuple(positives), tuple(negatives))

    @property
    def per_disease(self) -> list[str]:
        """Positives/negatives."""
        return [f"{p}/{n}" for p, n in zip(self.positives, self.negatives, strict=True)]


@dataclass(frozen=True)
class Timings:
    """Of a network on this machine, measured a moment ago: seconds per step, and per image that is scored."""

    parameters: int
    buffers: int
    pretrain_step: float
    federated_step: float
    scored_image: float


@dataclass(frozen=True)
class StudyPlan:
    """One study; times in seconds, `decode_seconds` estimated from a few images."""

    label: str
    pipeline: Pipeline
    clients: tuple[Counted, ...]
    test: Counted
    origin: Origin
    decode_seconds: float
    timings: Timings

    @property
    def pretrain_steps(self) -> int:
        """Steps of stage 1."""
        return self.pipeline.pretrain.steps(self.clients[0].rows)

    @property
    def stage_1_seconds(self) -> float:
        """Estimated."""
        return self.pretrain_steps * self.timings.pretrain_step

    def stage_2_seconds(self, k: int) -> float:
        """Estimated, evaluations included."""
        evaluated = len(self.pipeline.evaluated_rounds) * self.test.images
        steps = self.pipeline.federated.steps * self.pipeline.federated.taking_part(k)
        return steps * self.timings.federated_step + evaluated * self.timings.scored_image

    @property
    def training_seconds(self) -> float:
        """Both stages, of every K."""
        return self.stage_1_seconds + sum(map(self.stage_2_seconds, self.pipeline.k))


def plan_study(label: str, pipeline: Pipeline, source: StudyTables | StudyData, timings: Timings) -> StudyPlan:
    """Count what this study would do; of hospitals labels are read, and a few images to time their decoding."""
    if isinstance(source, StudyTables):
        clients = [Counted.of(name, part.labels(), part.frame["repeats"].to_numpy()) for name, part in source.clients]
        scored = np.concatenate([table.labels() for table in source.tests])
        seconds = _decode_seconds(source)
    else:
        clients = [Counted.of(client.name, client.labels, client.repeats) for client in source.clients]
        scored, seconds = source.test.labels, 0.0
    test = Counted.of("test set", scored, np.ones(len(scored), np.int64))
    return StudyPlan(label, pipeline, tuple(clients), test, source.origin, seconds, timings)


def time_steps(pipeline: Pipeline, machine: Machine) -> Timings:
    """Run a few training steps on images without content."""
    network = FlatModule(build_model(pipeline.model, len(pipeline.tasks), pipeline.seed), machine.device)
    size = pipeline.preprocess.size

    def seconds_per_step(batch_size: int, training: bool) -> float:
        images = torch.zeros(batch_size, 3, size, size, device=machine.device)
        if machine.channels_last:
            images = images.to(memory_format=torch.channels_last)
        network.module.train(training)

        def step() -> None:
            with (
                seeded(0, machine.device),
                torch.set_grad_enabled(training),
                torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast),
            ):
                loss = network.module(images).float().square().mean()
            if training:
                loss.backward()
            loss.item()  # waits for the device

        return min(_seconds(step) for _ in range(_TIMED_STEPS))

    scored = pipeline.evaluation.batch_size
    return Timings(
        network.size,
        network.buffers().numel(),
        seconds_per_step(pipeline.pretrain.batch_size, training=True),
        seconds_per_step(pipeline.federated.images_per_step, training=True),
        seconds_per_step(scored, training=False) / scored,
    )


def _seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def bytes_per_client_round(pipeline: Pipeline, parameters: int, buffers: int, k: int) -> tuple[int, int]:
    """Bytes (up, down) of one of `k` clients in one round: the algorithm's own messages, of tensors without content.

    Without a server: what a node sends to its neighbors, on average, and 0.
    """
    settings, count = pipeline.federated, len(pipeline.tasks)
    population = Population(torch.empty(count, device="meta"), torch.empty(k, count, device="meta"))
    objective = objective_of(settings, population)
    ratios = ratio_of_duals(objective, population)
    primal = torch.empty(parameters + objective.extra_size, device="meta")
    graph = graph_of(settings, k)
    if graph is not None:
        peer, one = rule_of_stage(settings, 0, ratios, graph.nodes, graph), torch.empty(1, device="meta")
        node = peer.start_node(Point(primal, primal[:0]), one, one)
        synchronous = getattr(settings.algorithm, "exchange", "synchronous") == "synchronous"
        edges = len(graph.edges) if synchronous else min(1, len(graph.edges))
        return 2 * edges * byte_count(peer.message(node, 0)) // graph.nodes, 0
    if settings.spec.pooled:
        return 0, 0
    algorithm = rule_of_stage(settings, 0, ratios, k)
    point = Point(primal, torch.empty(objective.dual_size, device="meta"))
    message = algorithm.message(algorithm.start_stage(point))
    composed = SimpleNamespace(inner=lambda x: x, outer=lambda h, y: (h, y), pull_back=lambda q: q)
    oracle = composed if settings.objective_spec.kind == "compositional" else lambda v, alpha: (v, alpha)
    update, _ = algorithm.local_round(message, algorithm.start_client(point), oracle)
    return byte_count(update) + 4 * buffers, byte_count(message) + 4 * buffers


def _decode_seconds(tables: StudyTables) -> float:
    """Estimated seconds to decode everything in one process, from a few images per site; unreadable ones count 0."""
    total = 0.0
    for _, table in tables.clients:
        rows = table.frame.iloc[np.linspace(0, len(table.frame) - 1, _TIMED_IMAGES).astype(int)]
        started = time.perf_counter()
        for image, stored in zip(rows["image"], table.with_frame(rows).stored(), strict=True):
            try:
                decode(table.root / image, stored)
            except (ImageError, OSError):
                continue  # the study itself reports it
        total += (time.perf_counter() - started) / _TIMED_IMAGES * len(table.frame)
    return total


def render(plan: StudyPlan, machine: Machine) -> RenderableType:
    """One study: images and labels of each client and of the test set, and its parts."""
    clients = _table(
        f"{plan.origin.short_mark}{plan.pipeline.title}",
        ["client"],
        ["images", "rows", *_tasks(plan)],
        ([part.name, f"{part.images:,}", f"{part.rows:,}", *part.per_disease] for part in (*plan.clients, plan.test)),
        "positives/negatives per disease, repeated training rows counted; the rest is missing",
    )
    columns = ["clients", "steps per client", "images", "rounds", "sent up", "sent down", "time, about"]
    total = plan.decode_seconds + plan.training_seconds
    facts = (
        f"{_facts(plan, machine)}, evaluated {len(plan.pipeline.evaluated_rounds)} times. {_total(total, 'about')}; "
        "start-up and MLflow come on top. Nothing was written."
    )
    return Group(clients, _table("What would run", ["part"], columns, _parts(plan)), Text(facts))


def render_held_out(plans: Sequence[StudyPlan], title: str, machine: Machine) -> RenderableType:
    """One study per held-out site: who trains, and what is scored."""
    first = plans[0]
    assert first.pipeline.held_out is not None
    which = first.pipeline.held_out.images
    images = "all its images" if which == "all" else f"its {which} split"
    shown = _table(
        f"{first.origin.short_mark}{title}",
        ["held out", "stage 1 on", "stage 2 on"],
        ["rows trained on", "images scored", *_tasks(first), "time, about"],
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
    facts = (
        f"{len(plans)} studies, one for each site that is held out; stage 1 is shared by those that start on the same "
        f"site. {_facts(first, machine)}. {_total(sum(plan.training_seconds for plan in plans), 'at most')}; decoding "
        "what is not cached, start-up and MLflow come on top. Nothing was written."
    )
    return Group(shown, Text(facts))


def _table(
    title: str, words: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None
) -> Table:
    """A table with columns of words and then of numbers."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _parts(plan: StudyPlan) -> Iterable[Sequence[str]]:
    """Steps, images, bytes and time of decoding, stage 1, and stage 2 of each K."""
    pipeline, settings, steps = plan.pipeline, plan.pipeline.federated, plan.pretrain_steps
    images = sum(client.images for client in plan.clients) + plan.test.images
    yield ["decode what is not cached", "", "", f"{images:,}", "", "", "", duration(plan.decode_seconds)]
    trained = f"{steps * pipeline.pretrain.batch_size:,}"
    yield ["stage 1", "1", f"{steps:,}", trained, "", "", "", duration(plan.stage_1_seconds)]
    for k in pipeline.k:
        up, down = bytes_per_client_round(pipeline, plan.timings.parameters, plan.timings.buffers, k)
        clients = settings.taking_part(k)
        yield [
            f"stage 2, K={k}",
            str(k),
            f"{settings.steps:,}",
            f"{settings.steps * clients * settings.images_per_step:,}",
            f"{settings.rounds:,}",
            _size(settings.rounds * clients * up),
            _size(settings.rounds * clients * down),
            duration(plan.stage_2_seconds(k)),
        ]


def _facts(plan: StudyPlan, machine: Machine) -> str:
    pipeline, settings = plan.pipeline, plan.pipeline.federated
    return (
        f"{title_of(pipeline.model)}, {plan.timings.parameters:,} parameters, on {machine.name}. {settings.spec.name}, "
        f"window {settings.window}, {len(settings.schedule)} stages, {settings.rounds} rounds{whole_rounds(settings)}"
    )


def _total(seconds: float, how: str) -> str:
    return f"Estimated total: {how} {duration(seconds)}, from {_TIMED_STEPS} timed steps"


def _tasks(plan: StudyPlan) -> list[str]:
    return [TITLES.get(task, task) for task in plan.pipeline.tasks]


def _size(count: int) -> str:
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(len(str(count)) - 1, 14) // 3
    return f"{count / 1000**power:.{min(power, 1)}f} {units[power]}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
