"""The two-stage study with five hospitals of the paper's size on images that are drawn (`benchmarks.gpu study`).

It runs stage 1 and stage 2 of pipelines/source_addition_densenet121.yaml as `chestfed study` does, input, scoring of
the test set and saved states included, until the time is up, and forecasts the whole study. The hospitals have as many
rows as in Table 2 of the source paper, which share 4096 images; labels are drawn. No file of real patients is read, and
the AUCs mean nothing. Weights are random, not ImageNet's: nothing is downloaded.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.scale import CHEXPERT_TEST, TABLES, table_2
from benchmarks.speed_parts.training import cached
from chestfed.core.bundled import bundled
from chestfed.data.images.cache import CachedImages
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.clients import ClientData, TestSet
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.loop import train_federated
from chestfed.studies.training.pretrain import CHECKPOINT_STEPS, Pretrained, new_network, pretrain

_SMALL = [
    "model={name: small, blocks: [1], pool: 8}",
    "pretrain.batch_size=2",
    "federated.batch_size=2",
    "federated.window=2",
]


class TimeIsUpError(Exception):
    """A stage has had its share of the minutes."""


class Clock:
    """When each part of a stage ended, until its time is up."""

    def __init__(self, seconds: float) -> None:
        self.times = [time.monotonic()]
        self._end = self.times[0] + seconds

    def tick(self, *_: object) -> None:
        """A part has ended. Raises when the time is up, and three parts are measured."""
        self.times.append(time.monotonic())
        if self.times[-1] > self._end and len(self.times) > 3:
            raise TimeIsUpError

    @property
    def parts(self) -> int:
        """How many were measured: the first is left out, because it also builds and warms up."""
        return len(self.times) - 2

    @property
    def seconds(self) -> float:
        """Mean over them."""
        return (self.times[-1] - self.times[1]) / self.parts


def measure_study(seconds: float, *, smoke: bool) -> dict[str, Any]:
    """Both stages for so long; a third of the time is for stage 1. With `smoke` a small network on the CPU."""
    keys = [*(_SMALL if smoke else []), "model.initial_weights=null", f"runtime.device={'cpu' if smoke else 'cuda'}"]
    pipeline = load_pipeline(bundled("pipelines") / f"{TABLES[4]}.yaml", keys).resolve()
    with cached(16 if smoke else 4096) as images, tempfile.TemporaryDirectory() as folder:
        experiment = draw_hospitals(images, pipeline, 1e-3 if smoke else 1.0)
        return measure(experiment, Path(folder), seconds)


def draw_hospitals(films: CachedImages, pipeline: Pipeline, share: float = 1.0) -> Experiment:
    """A share of five hospitals of the paper's size, and of CheXpert's validation set."""
    tasks = pipeline.tasks
    rng, tested = np.random.default_rng(1), round(max(0.05, share) * CHEXPERT_TEST)

    def rows(count: int) -> tuple[CachedImages, np.ndarray]:
        labels = (rng.random((count, len(tasks))) < 0.3).astype(np.float32)
        return films.take(np.arange(count) % len(films.records)), labels

    def client(name: str, count: int) -> ClientData:
        return ClientData(name, *rows(count), repeats=np.ones(count, np.int64))

    clients = tuple(client(name, round(share * count)) for name, count in table_2().items())
    names = tuple(map(str, range(tested)))
    test = TestSet(*rows(tested), np.arange(tested), tasks, names, names, key="")
    return Experiment(pipeline, prepare_machine(pipeline.runtime), clients=clients, test=test)


def measure(experiment: Experiment, folder: Path, seconds: float) -> dict[str, Any]:
    """Both stages for so long, and what they would take to their end."""
    pipeline, clients = experiment.pipeline, experiment.clients
    settings, k = pipeline.federated, len(clients)
    # Stage 2 begins with the first weights, for stage 1 is cut off: that takes as long.
    network = new_network(pipeline, experiment.machine)
    begun = Pretrained(network.parameters().cpu(), network.buffers().cpu(), [])
    first = Clock(seconds / 3)
    with suppress(TimeIsUpError):
        pretrain(experiment, folder, first.tick)
    second = Clock(2 * seconds / 3)
    with suppress(TimeIsUpError):
        train_federated(experiment, k, begun, folder / "k5", second.tick)
    steps = pipeline.pretrain.steps(clients[0].training_rows)
    per_round = settings.images_per_step * settings.window * k
    ends = sum(second.seconds * settings.rounds * number / k for number in pipeline.k)
    return {
        "stage 1, images a second": round(CHECKPOINT_STEPS * pipeline.pretrain.batch_size / first.seconds, 1),
        "stage 2, images a second": round(per_round / second.seconds, 1),
        "seconds of a round": round(second.seconds, 3),
        "parts measured": {"stage 1": first.parts, "stage 2": second.parts},
        "peak memory, MiB": torch.cuda.max_memory_allocated() >> 20 if torch.cuda.is_available() else None,
        "steps of the whole stage 1": steps,
        "rounds of the whole stage 2": settings.rounds,
        "hours of the whole stage 1": round(first.seconds * steps / CHECKPOINT_STEPS / 3600, 2),
        "hours of the whole stage 2, all K": round(ends / 3600, 2),
    }
