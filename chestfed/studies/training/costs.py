"""Costs of a step: time on this machine, measured on images without content, and bytes of an algorithm's messages."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch

from chestfed.data.images.batches import Batch, Rows, TrainBatches
from chestfed.learning.algorithms.variables import Point, Preparing, byte_count
from chestfed.learning.engines.messages.shapes import make_blank
from chestfed.learning.models import FeatureOptions, NetworkGroups, load_frozen, seeded
from chestfed.learning.objectives.declaration import Population, count_shared, shape_shared
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.rules import build_layout, build_objective, ratio_of_duals
from chestfed.studies.training.data.features import check_features
from chestfed.studies.training.pretrain import new_network

#: Seconds that a kind of step is timed for.
_TIMED_SECONDS = 0.1
#: A step that is expected to take at most this is run as it is; of a longer one a part is timed.
_WHOLE_SECONDS = 2.0
#: Side of the images that a step is timed on, if theirs are larger: time grows with their pixels.
_TIMED_SIZE = 128
#: Images whose features are taken together.
_FEATURES_AT_ONCE = 4
#: A machine is busy if more than this share of its cores had work already.
_BUSY = 0.5


@dataclass(frozen=True)
class Timings:
    """Times of a network on this machine, measured a moment ago: seconds per step, and per image that is scored.

    On a processor they are its own time, over the threads that share it: what others compute meanwhile adds nothing.
    `feature` is per image whose features a frozen network takes, once. `load` is how many processes wanted a core
    before that, per core; None where the system does not say it.
    """

    parameters: int
    buffers: int
    pretrain_step: float
    federated_step: float
    scored_image: float
    load: float | None
    uncompiled: bool = False  #: although training will be compiled
    feature: float = 0.0
    memory: int = 0  #: bytes, the most that this process had until then; 0: the system does not say
    absent: str = ""  #: the device of the study, if this machine does not have it and its processor was timed


def time_steps(pipeline: Pipeline, machine: Machine) -> Timings:
    """Run a few training steps on images without content, after one that is not counted.

    On this machine's processor, if it does not have the device of the study.
    """
    absent, machine = "" if machine.is_here else str(machine.device), machine.or_processor()
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None
    check_features(pipeline)
    network = new_network(pipeline, machine)
    weights = network.parameters()
    whole, model = pipeline.preprocess.size, pipeline.model
    width = load_frozen(model).count_features(whole) if isinstance(model, FeatureOptions) else None
    seconds = partial(_seconds, threads=machine.threads if machine.device.type == "cpu" else 0)

    def step(images: int, training: bool, size: int) -> None:
        blank = _Blank(images, (size, size), np.uint8) if width is None else _Blank(images, (width,), np.float32)
        batch = _make_batch(blank, images, pipeline, machine)
        network.module.train(training)
        network.bind(weights, bf16=training and machine.autocast)
        with (
            seeded(0, machine.device),
            torch.set_grad_enabled(training),
            torch.autocast(machine.device.type, torch.bfloat16, enabled=machine.autocast),
        ):
            loss = network.module(batch.images).float().square().mean()
        if training:
            network.differentiate(loss)
        loss.item()  # waits for the device

    def per_image(images: int, training: bool) -> float:
        few = min(images, 2 if training else 1)  # one image may be too few to normalize a batch
        size = _choose_size(lambda size: step(few, training, size), whole)
        first = seconds(lambda: step(few, training, size), 0)
        if first / few * images * (whole / size) ** 2 <= _WHOLE_SECONDS:  # what a step costs beside its pixels counts
            step(images, training, whole)
            return seconds(lambda: step(images, training, whole)) / images
        fits = max(few, min(images, int(few * _TIMED_SECONDS / first)))  # a large network is timed on fewer images
        if fits == few:
            return first / few * (whole / size) ** 2
        step(fits, training, size)
        return seconds(lambda: step(fits, training, size)) / fits * (whole / size) ** 2

    of_batch = cache(lambda images: per_image(images, training=True) * images)
    return Timings(
        network.size,
        network.buffers().numel(),
        of_batch(pipeline.pretrain.batch_size),
        of_batch(pipeline.federated.images_per_step),
        per_image(pipeline.evaluation.batch_size, training=False),
        load,
        machine.compile,
        _time_features(model, whole, machine, seconds) if isinstance(model, FeatureOptions) else 0.0,
        _peak_memory(),
        absent,
    )


def _make_batch(blank: _Blank, images: int, pipeline: Pipeline, machine: Machine) -> Batch:
    """A training batch of images without content, augmented as the study's."""
    labels = np.zeros((images, len(pipeline.tasks)), np.float32)
    return TrainBatches(
        blank,
        labels,
        np.ones(images, np.int64),
        batch_size=images,
        seed=0,
        name="timing",
        augment=pipeline.augment,
        workers=0,
        device=machine.device,
    ).next()


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _time_features(
    model: FeatureOptions, size: int, machine: Machine, seconds: Callable[[Callable[[], object]], float]
) -> float:
    """Seconds in which a frozen network takes the features of an image."""
    frozen = load_frozen(model)

    def extract(images: int) -> None:
        frozen.extract(torch.zeros((images, 3, size, size), device=machine.device)).sum().item()

    extract(1)  # which loads what is loaded once
    return seconds(lambda: extract(_FEATURES_AT_ONCE)) / _FEATURES_AT_ONCE


def _choose_size(step: Callable[[int], None], whole: int) -> int:
    """The side of the images that a network is timed on: small ones, unless it takes images of one size only.

    One step is run, which allocates and loads what is loaded once.
    """
    if whole > _TIMED_SIZE:
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):  # what networks of one size raise
            step(_TIMED_SIZE)
            return _TIMED_SIZE
    step(whole)
    return whole


@dataclass(frozen=True)
class _Blank:
    count: int
    shape: tuple[int, ...]
    dtype: type[np.generic]

    @property
    def records(self) -> np.ndarray:
        return np.zeros(self.count, np.int64)

    @property
    def digests(self) -> np.ndarray:
        return np.zeros(self.count, "V16")

    def read(self, rows: Rows) -> np.ndarray:
        return np.zeros((len(rows), *self.shape), self.dtype)


def _seconds(action: Callable[[], object], enough: float = _TIMED_SECONDS, threads: int = 0) -> float:
    """The least time that an action takes, repeated until all together took `enough` seconds: others only add to it.

    With `threads`, the processor time of one thread over their number: about that on an idle machine. Several threads
    would count the time in which they wait for each other, which on a busy machine is most of it. 0: on the clock.
    """
    clock = time.process_time if threads else time.perf_counter
    times, started = list[float](), time.perf_counter()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        while not times or time.perf_counter() - started < enough:
            before = clock()
            action()
            times.append((clock() - before) / max(1, threads))
    finally:
        if threads > 1:
            torch.set_num_threads(threads)
    return min(times)


def count_state_bytes(parameters: int, ks: int) -> int:
    """Bytes on disk, at least: per K the model, the last and the kept point; of stage 1 weights and moments."""
    return 12 * parameters * (ks + 1)


def bytes_per_client_round(pipeline: Pipeline, parameters: int, buffers: int, k: int) -> tuple[int, int]:
    """Bytes (up, down) of one of `k` clients in one round: the algorithm's own messages, of zeros.

    Without a server: what a node sends to its neighbors, on average, and 0. One local step is taken, not a window of
    them: messages are as long after one.
    """
    settings, count = pipeline.federated, len(pipeline.tasks)
    population = Population(torch.full((count,), 0.5), torch.full((k, count), 0.5))
    objective = build_objective(settings, population)
    ratios = ratio_of_duals(objective, population)
    primal = torch.zeros(parameters + objective.extra_size, dtype=getattr(torch, pipeline.runtime.dtype))
    layout = build_layout(settings, k)
    if layout is not None:
        return layout.count_bytes(settings.build_rule(0, ratios, k, layout), Point(primal, primal[:0])), 0
    if settings.spec.pooled:
        return 0, 0
    algorithm = settings.model_copy(update={"window": 1}).build_rule(
        0, ratios, k, groups=NetworkGroups(pipeline.model, count), shared=shape_shared(objective)
    )
    point, numbers = Point(primal, primal.new_zeros(objective.dual_size)), primal.element_size() * buffers
    sent_down = numbers + primal.element_size() * count_shared(objective)
    message, up, down = algorithm.message(algorithm.start_stage(point)), 0, 0
    exchange, oracle = settings.exchange(), make_blank(settings.objective_spec, objective, count)
    if isinstance(algorithm, Preparing):
        up, down = byte_count(algorithm.prepare(point, oracle)), byte_count(point) + sent_down
    update, _ = exchange.local_round(algorithm, message, exchange.start_client(algorithm, point), oracle)
    return up + byte_count(update) + numbers, down + byte_count(message) + sent_down


def estimated(total: float, timings: Timings) -> str:
    """The whole time, and that a busy machine takes longer, also to be timed."""
    uncompiled = " without torch.compile" * timings.uncompiled
    how = f"from the processor time of steps timed just now on one thread{uncompiled}"
    if timings.absent:
        how += f", because {timings.absent} is not on this machine: a GPU takes a small part of it"
    text = f"Estimated total: {duration(total)}, {how}"
    if timings.load is None or timings.load < _BUSY:
        return text
    return (
        f"{text}. This machine is BUSY ({timings.load:.1f} processes per core): the figure then comes out up to three "
        "times as long and varies, and training waits for the others besides"
    )


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
