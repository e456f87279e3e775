"""What a study would do: images, positives, steps, bytes, time. Reads label files, writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from chestfed.core.diseases import TITLES
from chestfed.core.provenance import Origin
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.variants import whole_rounds
from chestfed.models import title_of
from chestfed.training.clients import StudyData
from chestfed.training.study_tables import StudyTables

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from torch import Tensor

#: Images decoded per site, and training steps timed, to estimate the time.
_TIMED_IMAGES, _TIMED_STEPS = 6, 3


@dataclass(frozen=True)
class ClientPlan:
    """One client, or the test set: images, training rows (repeats counted), positives and negatives per disease."""

    name: str
    images: int
    rows: int
    positives: tuple[int, ...]
    negatives: tuple[int, ...]

    @classmethod
    def of(cls, name: str, labels: np.ndarray, repeats: np.ndarray) -> Self:
        """Count labels `[n, J]`, each row `repeats[n]` times."""
        positives, negatives = (((labels == value) * repeats[:, None]).sum(axis=0) for value in (1, 0))
        return cls(name, len(labels), int(repeats.sum()), tuple(map(int, positives)), tuple(map(int, negatives)))


@dataclass(frozen=True)
class Contents:
    """What a study is over, before anything runs; `decode_seconds` is estimated from a few images."""

    clients: tuple[ClientPlan, ...]
    test: ClientPlan
    origin: Origin
    decode_seconds: float

    @property
    def images(self) -> int:
        """Images of all clients and of the test set."""
        return sum(client.images for client in self.clients) + self.test.images


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
    """One study; times in seconds. `bytes_per_client_round` is (up, down)."""

    label: str
    pipeline: Pipeline
    contents: Contents
    timings: Timings
    pretrain_steps: int
    bytes_per_client_round: tuple[int, int]

    @property
    def stage_1_seconds(self) -> float:
        """Estimated."""
        return self.pretrain_steps * self.timings.pretrain_step

    def stage_2_seconds(self, k: int) -> float:
        """Estimated, evaluations included."""
        evaluated = len(self.pipeline.evaluated_rounds) * self.contents.test.images
        steps = self.pipeline.federated.steps * k
        return steps * self.timings.federated_step + evaluated * self.timings.scored_image

    @property
    def training_seconds(self) -> float:
        """Both stages, of every K."""
        return self.stage_1_seconds + sum(map(self.stage_2_seconds, self.pipeline.k))


def contents_of_tables(tables: StudyTables) -> Contents:
    """Of hospitals: labels only are read, and a few images to see how long decoding takes."""
    parts = [ClientPlan.of(name, table.labels(), table.frame["repeats"].to_numpy()) for name, table in tables.clients]
    tests = [ClientPlan.of("test set", table.labels(), table.frame["repeats"].to_numpy()) for table in tables.tests]
    return Contents(tuple(parts), _sum(tests), tables.origin, _decode_seconds(tables))


def contents_of_data(data: StudyData) -> Contents:
    """Of data that are loaded already."""
    parts = [ClientPlan.of(client.name, client.labels, client.repeats) for client in data.clients]
    test = ClientPlan.of("test set", data.test.labels, np.ones(len(data.test.labels), np.int64))
    return Contents(tuple(parts), test, data.origin, 0.0)


def plan_study(label: str, pipeline: Pipeline, contents: Contents, timings: Timings) -> StudyPlan:
    """Count what this study would do."""
    return StudyPlan(
        label,
        pipeline,
        contents,
        timings,
        pipeline.pretrain.steps(contents.clients[0].rows),
        bytes_per_client_round(pipeline, timings.parameters, timings.buffers),
    )


def time_steps(pipeline: Pipeline, machine: Machine) -> Timings:
    """Run a few training steps on images without content."""
    import torch

    from chestfed.models import FlatModule, build_model, seeded

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

        return _fastest(step)

    scored = pipeline.evaluation.batch_size
    return Timings(
        network.size,
        network.buffers().numel(),
        seconds_per_step(pipeline.pretrain.batch_size, training=True),
        seconds_per_step(pipeline.federated.images_per_step, training=True),
        seconds_per_step(scored, training=False) / scored,
    )


def bytes_per_client_round(pipeline: Pipeline, parameters: int, buffers: int) -> tuple[int, int]:
    """Bytes (up, down) of one client in one round: the algorithm's own messages, built from tensors without content.

    Without a server: what a node sends to its neighbors and receives from them, on average.
    """
    import torch

    from chestfed.algorithms.variables import Point, byte_count
    from chestfed.experiment.rules import graph_of, objective_of, rule_of_stage
    from chestfed.objectives.compositional import CompositionalAuc

    settings, count = pipeline.federated, len(pipeline.tasks)
    objective = objective_of(settings, torch.empty(count, device="meta"))
    primal = torch.empty(parameters + objective.extra_size, device="meta")
    ratios = torch.empty(count, device="meta")
    graph = graph_of(settings, max(pipeline.k))
    if graph is not None:
        peer, none = rule_of_stage(settings, 0, ratios, graph.nodes, graph), primal[:0]
        node = peer.start_node(Point(primal, none), torch.empty(1, device="meta"), torch.empty(1, device="meta"))
        synchronous = getattr(settings.algorithm, "exchange", "synchronous") == "synchronous"
        edges = len(graph.edges) if synchronous else min(1, len(graph.edges))
        mean = 2 * edges * byte_count(peer.message(node, 0)) // graph.nodes
        return mean, mean
    if settings.spec.pooled:
        return 0, 0
    algorithm = rule_of_stage(settings, 0, ratios, 1)
    point = Point(primal, torch.empty(objective.dual_size, device="meta"))
    message = algorithm.message(algorithm.start_stage(point))
    oracle = _NoComposition() if isinstance(objective, CompositionalAuc) else lambda v, alpha: (v, alpha)
    update, _ = algorithm.local_round(message, algorithm.start_client(point), oracle)
    return byte_count(update) + 4 * buffers, byte_count(message) + 4 * buffers


class _NoComposition:
    """`CompositionalGradients` of tensors without content."""

    def inner(self, x: Tensor) -> Tensor:
        return x

    def outer(self, h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return h, y

    def pull_back(self, q: Tensor) -> Tensor:
        return q


def _sum(parts: Sequence[ClientPlan]) -> ClientPlan:
    positives, negatives = (
        tuple(map(sum, zip(*(getattr(part, name) for part in parts), strict=True)))
        for name in ("positives", "negatives")
    )
    images, rows = (sum(getattr(part, name) for part in parts) for name in ("images", "rows"))
    return ClientPlan(parts[0].name, images, rows, positives, negatives)


def _decode_seconds(tables: StudyTables) -> float:
    """Estimated seconds to decode everything in one process, from a few images per site; unreadable ones count 0."""
    from chestfed.core.errors import ImageError
    from chestfed.images.decode import decode

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


def _fastest(action: Callable[[], None]) -> float:
    times = []
    for _ in range(_TIMED_STEPS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


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
        f"{title_of(pipeline.model)}, {plan.timings.parameters:,} parameters, on {machine.name}. {settings.spec.name}, "
        f"window {settings.window}, {len(settings.schedule)} stages, {settings.rounds} rounds{whole_rounds(settings)}"
    )


def _total(seconds: float, how: str) -> str:
    return f"Estimated total: {how} {duration(seconds)}, from {_TIMED_STEPS} timed steps"


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
