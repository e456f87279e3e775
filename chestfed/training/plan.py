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
from chestfed.experiment.stage_2 import Federated
from chestfed.models import title_of
from chestfed.training.clients import SiteTables, StudyData

if TYPE_CHECKING:
    from rich.console import RenderableType
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
class StudyPlan:
    """The whole plan; times in seconds, as measured on this machine a moment ago.

    `bytes_per_client_round` is (up, down).
    """

    contents: Contents
    parameters: int
    pretrain_steps: int
    rounds: int
    bytes_per_client_round: tuple[int, int]
    step_seconds: tuple[float, float]
    evaluation_seconds: float


def contents_of_tables(tables: SiteTables) -> Contents:
    """Of hospitals: labels only are read, and a few images to see how long decoding takes."""
    parts = [ClientPlan.of(name, table.labels(), table.frame["repeats"].to_numpy()) for name, table in tables.clients]
    tests = [ClientPlan.of("test set", table.labels(), table.frame["repeats"].to_numpy()) for table in tables.tests]
    return Contents(tuple(parts), _sum(tests), tables.origin, _decode_seconds(tables))


def contents_of_data(data: StudyData) -> Contents:
    """Of data that are there already."""
    parts = [ClientPlan.of(client.name, client.labels, client.repeats) for client in data.clients]
    test = ClientPlan.of("test set", data.test.labels, np.ones(len(data.test.labels), np.int64))
    return Contents(tuple(parts), test, data.origin, 0.0)


def plan_study(pipeline: Pipeline, contents: Contents, machine: Machine) -> StudyPlan:
    """Count, and time a few training steps to estimate the rest."""
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

    evaluation = seconds_per_step(pipeline.evaluation.batch_size, training=False)
    return StudyPlan(
        contents=contents,
        parameters=network.size,
        pretrain_steps=pipeline.pretrain.steps(contents.clients[0].rows),
        rounds=pipeline.federated.rounds,
        bytes_per_client_round=bytes_per_client_round(pipeline, network.size, network.buffers().numel()),
        step_seconds=(
            seconds_per_step(pipeline.pretrain.batch_size, training=True),
            seconds_per_step(pipeline.federated.images_per_step, training=True),
        ),
        evaluation_seconds=evaluation * contents.test.images / pipeline.evaluation.batch_size,
    )


def bytes_per_client_round(pipeline: Pipeline, parameters: int, buffers: int) -> tuple[int, int]:
    """Bytes (up, down) of one client in one round: the algorithm's own messages, built from tensors without content.

    Without a server: what a node sends to its neighbours and receives from them, on average.
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


def render(plan: StudyPlan, pipeline: Pipeline, machine: Machine) -> RenderableType:
    """The plan for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    contents = plan.contents
    mark = contents.origin.short_mark
    counts = Table(title=f"{mark}{pipeline.title}", title_justify="left", caption_justify="left")
    counts.caption = "positives/negatives per disease, repeated training rows counted; the rest is missing"
    counts.add_column("client")
    for name in ("images", "rows", *(TITLES.get(task, task) for task in pipeline.tasks)):
        counts.add_column(name, justify="right")
    for part in (*contents.clients, contents.test):
        cells = [f"{p}/{n}" for p, n in zip(part.positives, part.negatives, strict=True)]
        counts.add_row(part.name, f"{part.images:,}", f"{part.rows:,}", *cells)

    settings = pipeline.federated
    up, down = plan.bytes_per_client_round
    work = Table(title="What would run", title_justify="left")
    for name in (
        "part",
        "clients",
        "steps per client",
        "images",
        "rounds",
        "sent up",
        "sent down",
        "time, about",
    ):
        work.add_column(name, justify="left" if name == "part" else "right")
    stage_1 = plan.pretrain_steps * plan.step_seconds[0]
    work.add_row(
        "decode what is not cached",
        "",
        "",
        f"{contents.images:,}",
        "",
        "",
        "",
        duration(contents.decode_seconds),
    )
    images_1 = plan.pretrain_steps * pipeline.pretrain.batch_size
    work.add_row("stage 1", "1", f"{plan.pretrain_steps:,}", f"{images_1:,}", "", "", "", duration(stage_1))
    total = contents.decode_seconds + stage_1
    evaluations = len(pipeline.evaluated_rounds) * plan.evaluation_seconds
    for k in pipeline.k:
        steps = settings.steps
        seconds = steps * k * plan.step_seconds[1] + evaluations
        total += seconds
        work.add_row(
            f"stage 2, K={k}",
            str(k),
            f"{steps:,}",
            f"{steps * k * settings.images_per_step:,}",
            f"{plan.rounds:,}",
            _size(plan.rounds * k * up),
            _size(plan.rounds * k * down),
            duration(seconds),
        )
    facts = (
        f"{title_of(pipeline.model)}, {plan.parameters:,} parameters, on {machine.name}. {settings.spec.name}, window "
        f"{settings.window}, {len(settings.schedule)} stages, {settings.rounds} rounds{whole_rounds(settings)}, "
        f"evaluated {len(pipeline.evaluated_rounds)} times. In all about "
        f"{duration(total)}, from {_TIMED_STEPS} timed steps; start-up and MLflow come on top. Nothing was written."
    )
    return Group(counts, work, Text(facts))


def whole_rounds(settings: Federated) -> str:
    """By how much whole rounds miss the steps that the stages should have; empty if they do not."""
    if settings.batches == settings.wanted_steps:
        return ""
    return f", {settings.batches:,} steps in place of {settings.wanted_steps:,}, for rounds are whole"


def _sum(parts: Sequence[ClientPlan]) -> ClientPlan:
    positives, negatives = (
        tuple(map(sum, zip(*(getattr(part, name) for part in parts), strict=True)))
        for name in ("positives", "negatives")
    )
    images, rows = (sum(getattr(part, name) for part in parts) for name in ("images", "rows"))
    return ClientPlan(parts[0].name, images, rows, positives, negatives)


def _decode_seconds(tables: SiteTables) -> float:
    """Estimated seconds to decode everything in one process, from a few images per site; unreadable ones count 0."""
    from chestfed.core.errors import ImageError
    from chestfed.images.decode import decode

    total = 0.0
    for _, table in tables.clients:
        rows = table.frame.iloc[np.linspace(0, len(table.frame) - 1, _TIMED_IMAGES).astype(int)]
        started = time.perf_counter()
        for image, inverted in zip(rows["image"], rows["inverted"], strict=True):
            try:
                decode(table.root / image, inverted=bool(inverted))
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
