"""What a study would do: images, positives, steps, bytes, time. Reads label files, writes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Self

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text

from chestfed.algorithms.variables import Point, byte_count
from chestfed.core.console import plural, text_table
from chestfed.core.diseases import title_of as disease_title
from chestfed.core.disk import size_text
from chestfed.core.errors import ImageError
from chestfed.core.provenance import Origin
from chestfed.core.workers import cores
from chestfed.engines.declaration import engine_for
from chestfed.evaluation import power
from chestfed.evaluation.protocols import describe_hospitals
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import graph_of, objective_of, ratio_of_duals, rule_of_stage
from chestfed.experiment.variants import whole_rounds
from chestfed.images.batches import Rows, TrainBatches
from chestfed.images.decode import prepared
from chestfed.images.preprocess import Preprocess
from chestfed.models import seeded, title_of
from chestfed.objectives.declaration import Population
from chestfed.results.influence import ClientCounts, Influence, compute_influence, unusual_clients
from chestfed.sites.label_counts import count_labels
from chestfed.sites.table import SiteTable
from chestfed.training.client_summary import weights_of_largest_k
from chestfed.training.clients import StudyData
from chestfed.training.pretrain import new_network
from chestfed.training.study_tables import StudyTables

#: Images decoded per site, and the seconds that a kind of step is timed for, to estimate the time.
_TIMED_IMAGES, _TIMED_SECONDS = 3, 0.1
#: A machine is busy if more than this share of its cores had work already.
_BUSY = 0.5


@dataclass(frozen=True)
class Span:
    """Seconds: alone on the machine, and as it is now."""

    low: float = 0.0
    high: float = 0.0

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __mul__(self, times: float) -> Span:
        return Span(self.low * times, self.high * times)

    def __str__(self) -> str:
        low, high = duration(self.low), duration(self.high)
        if low == high:
            return low
        number, _, unit = low.partition(" ")
        return f"{number} to {high}" if high.endswith(unit) else f"{low} to {high}"


@dataclass(frozen=True)
class Counted(ClientCounts):
    """One client, or the test set: images, training rows (with repeats), positive and negative images per disease."""

    images: int

    @classmethod
    def of(cls, name: str, labels: np.ndarray, repeats: np.ndarray) -> Self:
        """Count labels `[n, J]`; only the training list has a row `repeats[n]` times."""
        counts = count_labels(labels)
        positives, negatives = tuple(one.positive for one in counts), tuple(one.negative for one in counts)
        return cls(name, int(repeats.sum()), positives, negatives, len(labels))

    @property
    def per_disease(self) -> list[str]:
        return [f"{p}/{n}" for p, n in zip(self.positives, self.negatives, strict=True)]


@dataclass(frozen=True)
class Timings:
    """Of a network on this machine, measured a moment ago: seconds per step, and per image that is scored.

    `load` is how many processes wanted a core before that, per core; None where the system does not say it.
    """

    parameters: int
    buffers: int
    pretrain_step: Span
    federated_step: Span
    scored_image: Span
    load: float | None
    uncompiled: bool = False  #: although training will be compiled

    def alternative_seconds(self, part: PlannedAlternative) -> Span:
        """Training alone."""
        return self.pretrain_step * part.pretrain_steps + self.federated_step * part.federated_steps


@dataclass(frozen=True)
class PlannedAlternative:
    """An alternative of the hospitals: models, and over all of them steps of stage 1 and batches of stage 2."""

    name: str
    models: int
    pretrain_steps: int
    federated_steps: int


@dataclass(frozen=True)
class StudyPlan:
    """One study; `decode_seconds` is estimated from a few images, `at_hospitals` counts images scored once per K.

    These are of `hospitals` hospitals, the target among them or not; `tested` is how many the test set has images of.
    """

    label: str
    pipeline: Pipeline
    clients: tuple[Counted, ...]
    test: Counted
    origin: Origin
    decode_seconds: Span
    timings: Timings
    at_hospitals: int = 0
    hospitals: int = 0
    with_target: bool = False
    tested: int = 1

    @property
    def influence(self) -> tuple[Influence, ...]:
        """That of the clients of the largest K; none where nothing is averaged with weights."""
        weights = weights_of_largest_k(self.pipeline, [client.rows for client in self.clients])
        return compute_influence(self.clients[: len(weights)], weights)

    @property
    def pretrain_steps(self) -> int:
        return self.pipeline.pretrain.steps(self.clients[0].rows)

    @property
    def stage_1_seconds(self) -> Span:
        return self.timings.pretrain_step * self.pretrain_steps

    def stage_2_seconds(self, k: int) -> Span:
        """Estimated, evaluations included."""
        scored = len(self.pipeline.evaluated_rounds) * self.test.images + self.at_hospitals
        settings, clients = self.pipeline.federated, self.pipeline.federated.taking_part(k)
        share = engine_for(self.pipeline.engine).share(1 if settings.spec.pooled else clients)
        steps = settings.steps * clients * share
        return self.timings.federated_step * steps + self.timings.scored_image * scored

    @property
    def training_seconds(self) -> Span:
        """Both stages, of every K, and the alternatives."""
        k_seconds = sum(map(self.stage_2_seconds, self.pipeline.k), self.stage_1_seconds)
        return sum((self.timings.alternative_seconds(part) for part in self.alternatives), k_seconds)

    @property
    def alternatives(self) -> tuple[PlannedAlternative, ...]:
        """What the hospitals with both classes could do instead; of one class none is trained."""
        choices, pipeline, settings = self.pipeline.alternatives, self.pipeline, self.pipeline.federated
        if choices is None:
            return ()
        clients = self.clients[: pipeline.k[-1]]
        able = [client for client in clients if any(map(min, zip(client.positives, client.negatives, strict=True)))]
        alone = able[1:] if 1 in pipeline.k and able[:1] == list(clients[:1]) else able  # the target alone is K=1
        parts = []
        if choices.own_data and alone:
            steps = sum(pipeline.pretrain.steps(client.rows) for client in alone)
            parts.append(PlannedAlternative("own data alone", len(alone), steps, len(alone) * settings.steps))
        if choices.fine_tuned is not None and able:
            passes = max(choices.fine_tuned.epochs) * len(choices.fine_tuned.lr_factors)
            steps = round(sum(passes * client.rows / settings.images_per_step for client in able))
            parts.append(PlannedAlternative("fine-tuned", len(able), 0, steps))
        if choices.centralized is not None:
            parts.append(PlannedAlternative("centralized", 1, 0, settings.steps * len(clients)))
        return tuple(parts)


def plan_study(label: str, pipeline: Pipeline, source: StudyTables | StudyData, timings: Timings) -> StudyPlan:
    """Count what this study would do; of hospitals labels are read, and a few images to time their decoding."""
    at_hospitals, scored_tables, tested = 0, list[SiteTable](), 1
    if isinstance(source, StudyTables):
        clients = [Counted.of(name, part.labels(), part.frame["repeats"].to_numpy()) for name, part in source.clients]
        scored = np.concatenate([table.labels() for table in source.tests])
        seconds = _decode_seconds(source, pipeline.preprocess)
        scored_tables = [own for own in source.hospitals.values() if (own,) != source.tests]
        at_hospitals, tested = sum(len(own.frame) for own in scored_tables), len(source.tests)
    else:
        clients = [Counted.of(client.name, client.labels, client.repeats) for client in source.clients]
        scored, seconds = source.test.labels, Span()
    test = Counted.of("test set", scored, np.ones(len(scored), np.int64))
    with_target = isinstance(source, StudyTables) and source.tests[0] in scored_tables
    given = (label, pipeline, tuple(clients), test, source.origin, seconds, timings)
    return StudyPlan(*given, at_hospitals, len(scored_tables), with_target, tested)


def time_steps(pipeline: Pipeline, machine: Machine) -> Timings:
    """Run a few training steps on images without content, after one that is not counted."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None
    network = new_network(pipeline, machine)
    size, tasks = pipeline.preprocess.size, len(pipeline.tasks)

    def step(images: int, training: bool) -> None:
        blank = np.zeros((images, tasks), np.float32)
        batch = TrainBatches(
            _Blank(images, size),
            blank,
            np.ones(images, np.int64),
            batch_size=images,
            seed=0,
            name="timing",
            augment=pipeline.augment,
            workers=0,
            device=machine.device,
        ).next()
        network.module.train(training)
        with (
            seeded(0, machine.device),
            torch.set_grad_enabled(training),
            torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast),
        ):
            loss = network.module(batch.images).float().square().mean()
        if training:
            loss.backward()
        loss.item()  # waits for the device

    def per_image(images: int, training: bool) -> Span:
        few = min(images, 2 if training else 1)  # one image may be too few to normalize a batch
        step(few, training)  # allocates, and loads what is loaded once
        (first,) = _seconds(lambda: step(few, training), time.perf_counter, 0)
        fits = max(few, min(images, int(few * _TIMED_SECONDS / first)))  # a large network is timed on fewer images
        return _span(lambda: step(fits, training), machine, load or 0.0) * (1 / fits)

    of_batch = cache(lambda images: per_image(images, training=True) * images)
    return Timings(
        network.size,
        network.buffers().numel(),
        of_batch(pipeline.pretrain.batch_size),
        of_batch(pipeline.federated.images_per_step),
        per_image(pipeline.evaluation.batch_size, training=False),
        load,
        machine.compile,
    )


@dataclass(frozen=True)
class _Blank:
    count: int
    size: int

    @property
    def records(self) -> np.ndarray:
        return np.zeros(self.count, np.int64)

    @property
    def digests(self) -> np.ndarray:
        return np.zeros(self.count, "V16")

    def read(self, rows: Rows) -> np.ndarray:
        return np.zeros((len(rows), self.size, self.size), np.uint8)


def _span(action: Callable[[], object], machine: Machine, load: float) -> Span:
    """How long it takes alone, and now; on a CPU alone is its time on one processor, shared by all threads.

    That does not count waiting for other processes, or of threads for each other. Now is the median, at most twice what
    a fair share of the cores makes of it: a moment in which the threads wait for each other is not typical.
    """
    action()
    found = _seconds(action, time.perf_counter)
    if machine.device.type != "cpu":
        return Span(min(found), max(found))
    torch.set_num_threads(1)
    try:
        alone = min(_seconds(action, time.process_time)) / machine.threads
    finally:
        torch.set_num_threads(machine.threads)
    now = min(float(np.median(found)), 2 * alone * (1 + load))
    return Span(min(alone, now), now)


def _seconds(action: Callable[[], object], clock: Callable[[], float], enough: float = _TIMED_SECONDS) -> list[float]:
    """How long it takes by a clock, again and again until that is long enough."""
    found, started = list[float](), time.perf_counter()
    while not found or time.perf_counter() - started < enough:
        before = clock()
        action()
        found.append(clock() - before)
    return found


def bytes_per_client_round(pipeline: Pipeline, parameters: int, buffers: int, k: int) -> tuple[int, int]:
    """Bytes (up, down) of one of `k` clients in one round: the algorithm's own messages, of zeros.

    Without a server: what a node sends to its neighbors, on average, and 0. One local step is taken, not a window of
    them: messages are as long after one.
    """
    settings, count = pipeline.federated, len(pipeline.tasks)
    population = Population(torch.full((count,), 0.5), torch.full((k, count), 0.5))
    objective = objective_of(settings, population)
    ratios = ratio_of_duals(objective, population)
    primal = torch.zeros(parameters + objective.extra_size)
    graph = graph_of(settings, k)
    if graph is not None:
        peer, one = rule_of_stage(settings, 0, ratios, graph.nodes, graph), torch.zeros(1)
        node = peer.start_node(Point(primal, primal[:0]), one, one)
        synchronous = getattr(settings.algorithm, "exchange", "synchronous") == "synchronous"
        edges = len(graph.edges) if synchronous else min(1, len(graph.edges))
        return 2 * edges * byte_count(peer.message(node, 0)) // graph.nodes, 0
    if settings.spec.pooled:
        return 0, 0
    algorithm = rule_of_stage(settings.model_copy(update={"window": 1}), 0, ratios, k)
    point = Point(primal, torch.zeros(objective.dual_size))
    message = algorithm.message(algorithm.start_stage(point))
    composed = SimpleNamespace(inner=lambda x: x, outer=lambda h, y: (h, y), pull_back=lambda q: q)
    oracle = composed if settings.objective_spec.kind == "compositional" else lambda v, alpha: (v, alpha)
    update, _ = algorithm.local_round(message, algorithm.start_client(point), oracle)
    return byte_count(update) + 4 * buffers, byte_count(message) + 4 * buffers


def _decode_seconds(tables: StudyTables, preprocess: Preprocess) -> Span:
    """To decode everything, from a few images per site; unreadable ones count 0. At best by all cores, else by one."""
    total, at_once = Span(), cores()
    for table in dict.fromkeys(table for table, _ in tables.parts):
        rows = table.frame.iloc[np.linspace(0, len(table.frame) - 1, _TIMED_IMAGES + 1).astype(int)]
        found = []
        for image, stored in zip(rows["image"], table.with_frame(rows).stored(), strict=True):
            started = time.perf_counter()
            try:
                prepared(table.root / image, stored, preprocess)
            except (ImageError, OSError):
                continue  # the study itself reports it
            found.append(time.perf_counter() - started)
        if found[1:]:  # the first may load what is loaded once
            total += Span(min(found[1:]) / at_once, float(np.mean(found[1:]))) * len(table.frame)
    return total


def render(plan: StudyPlan, machine: Machine) -> RenderableType:
    """One study: images and labels of each client and of the test set, and its parts."""
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
    columns = ["clients", "steps per client", "images", "rounds", "sent up", "sent down", "time"]
    total = plan.decode_seconds + plan.training_seconds
    facts = (
        f"{_facts(plan, machine)}, evaluated {plural(len(plan.pipeline.evaluated_rounds), 'time')}{_elsewhere(plan)}. "
        f"{_headline(plan)}"
        f"{estimated(total, plan.timings)}, without start-up and MLflow. Nothing was written."
    )
    parts = text_table("What would run", ["part"], columns, _parts(plan))
    return Group(clients, *map(Text, _remarks(plan)), parts, Text(facts))


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
                str(plan.training_seconds),
            ]
            for plan in plans
        ),
        f"positives/negatives per disease of the images that are scored: of each held-out site {images} "
        f"({first.pipeline.evaluation.protocol}); the rest is missing. None of them trains.",
    )
    most = sum((plan.training_seconds for plan in plans), Span())
    facts = (
        f"{len(plans)} studies, one for each site that is held out; stage 1 is shared by those that start on the same "
        f"site. {_facts(first, machine)}. {estimated(most, first.timings)}, with stage 1 counted for every study, "
        "without decoding, start-up and MLflow. Nothing was written."
    )
    return Group(shown, Text(facts))


def _remarks(plan: StudyPlan) -> list[str]:
    """Unusual clients, and what the test set can show at all."""
    pipeline = plan.pipeline
    remarks = unusual_clients(
        plan.influence, pipeline.tasks, adds_hospitals=bool(pipeline.sites) and not pipeline.held_out
    )
    error = power.difference_error(zip(plan.test.positives, plan.test.negatives, strict=True))
    if error is not None:
        remarks.append(
            f"With these {plan.test.images:,} test images a difference of mean AUC below about "
            f"{power.detectable_difference(error):.3f} is likely to be missed (80% power, 5% level; assuming AUCs of "
            f"{power.AUC} and scores of two models with a correlation of {power.CORRELATION}; other training seeds "
            "come on top)"
        )
    return remarks


def _parts(plan: StudyPlan) -> Iterable[Sequence[str]]:
    """Steps, images, bytes and time of decoding, stage 1, and stage 2 of each K."""
    pipeline, settings, steps = plan.pipeline, plan.pipeline.federated, plan.pretrain_steps
    images = sum(client.images for client in plan.clients) + plan.test.images + plan.at_hospitals
    yield ["decode what is not cached", "", "", f"{images:,}", "", "", "", str(plan.decode_seconds)]
    trained = f"{steps * pipeline.pretrain.batch_size:,}"
    yield ["stage 1", "1", f"{steps:,}", trained, "", "", "", str(plan.stage_1_seconds)]
    for k in pipeline.k:
        up, down = bytes_per_client_round(pipeline, plan.timings.parameters, plan.timings.buffers, k)
        clients = settings.taking_part(k)
        yield [
            f"stage 2, K={k}",
            str(k),
            f"{settings.steps:,}",
            f"{settings.steps * clients * settings.images_per_step:,}",
            f"{settings.rounds:,}",
            size_text(settings.rounds * clients * up),
            size_text(settings.rounds * clients * down),
            str(plan.stage_2_seconds(k)),
        ]
    for part in plan.alternatives:
        images = part.pretrain_steps * pipeline.pretrain.batch_size + part.federated_steps * settings.images_per_step
        count, seconds = part.pretrain_steps + part.federated_steps, plan.timings.alternative_seconds(part)
        name = f"{part.name}, {plural(part.models, 'model')}"
        yield [name, "1", f"{count:,}", f"{images:,}", "", "", "", str(seconds)]


def _facts(plan: StudyPlan, machine: Machine) -> str:
    pipeline, settings = plan.pipeline, plan.pipeline.federated
    length = f"{plural(len(settings.schedule), 'stage')}, {plural(settings.rounds, 'round')}{whole_rounds(settings)}"
    return (
        f"{title_of(pipeline.model)}, {plan.timings.parameters:,} parameters, on {machine.name}. {settings.spec.name}, "
        f"window {settings.window}, {length}"
    )


def _elsewhere(plan: StudyPlan) -> str:
    if not plan.at_hospitals:
        return ""
    whose = plural(plan.hospitals, "hospital") + (
        ", the target included" if plan.with_target else " besides the target"
    )
    return f"; every K then on {plan.at_hospitals:,} held-out images of {whose}"


def _headline(plan: StudyPlan) -> str:
    """What the AUC is over if the test set has images of several hospitals; else empty."""
    text = describe_hospitals(plan.tested, plan.pipeline.evaluation.over_hospitals).removeprefix(", ")
    return f"AUC: {text}. " if text else ""


def estimated(total: Span, timings: Timings) -> str:
    """The whole time, and on a busy machine that it is one."""
    said = f"Estimated total: {total}, from steps timed just now{' without torch.compile' * timings.uncompiled}"
    if timings.load is None or timings.load < _BUSY:
        return said
    return f"{said} on a BUSY machine ({timings.load:.1f} processes per core): the lower end is for an idle machine"


def _tasks(plan: StudyPlan) -> list[str]:
    return [disease_title(task) for task in plan.pipeline.tasks]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
