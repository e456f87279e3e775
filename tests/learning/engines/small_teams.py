"""Clients of every algorithm with a small network, on a CPU or beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from chestfed.core.bundled import bundled
from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import CPU, TrainBatches, Uploads
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.fleet import LocalFleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.server import ClassMonitor
from chestfed.learning.models import FlatModule, build_model, network_options
from chestfed.learning.objectives.declaration import ServerEstimate
from chestfed.studies.designs.design import list_variants
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.assemble import Federation
from chestfed.studies.training.loop import Training


class Films:
    """Images of noise."""

    records = np.arange(24)
    digests = np.zeros(24, "V16")

    def read(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """Pixels of some rows."""
        return np.random.default_rng(list(rows)).integers(0, 256, (len(rows), 32, 32), np.uint8)


class Done:
    """A copy that is done at once."""

    def synchronize(self) -> None:
        """Wait until it has come so far."""


def batches(name: str, device: torch.device, mark: Callable[[], Any] | None = Done) -> TrainBatches:
    """Of one client, prepared as for a GPU."""
    labels = (np.random.default_rng(1).random((24, 5)) < 0.4).astype(np.float32)
    made = TrainBatches(
        Films(), labels, np.ones(24, np.int64), batch_size=4, seed=1, name=name, augment=Augment(), workers=0
    )
    made._uploads = Uploads(2, device, mark)
    return made


def build_team(
    pipeline: Pipeline,
    device: torch.device = CPU,
    *,
    place: Callable[[torch.nn.Module], torch.nn.Module] = lambda module: module,
    mark: Callable[[], Any] | None = Done,
) -> Training:
    """Two clients that train on the device, one after the other; `place` brings a module there if it has to."""
    rng = np.random.default_rng(0)
    members = 1 if pipeline.federated.spec.pooled else 2
    ratios, labeled = rng.uniform(0.1, 0.5, (2, 5))[:members], torch.full((members, 5), 0.9).double()
    federation = Federation.of(pipeline, {f"c{i}": 24 for i in range(members)}, ratios, labeled, device, 2)
    norm = "batch" if federation.layout is None else "group"
    module = build_model(network_options("small", init_features=4, growth_rate=4, blocks=[1], norm=norm, pool=1), 5, 0)
    network = FlatModule(place(module), device, channels_last=True)
    spec = federation.settings.objective_spec
    clients = [
        NetworkClient(
            name,
            batches(name, device, mark),
            network,
            federation.objective(number),
            device=device,
            oracle=spec.oracle,
            further=[batches(f"{name}, {stream}", device, mark) for stream in spec.streams],
            weight_decay=federation.settings.weight_decay,
            samples=24,
        )
        for number, name in enumerate(federation.names)
    ]
    exchange = federation.exchange
    hosts = [Host(client, federation.rule, federation.place(number), exchange) for number, client in enumerate(clients)]
    monitor, objective = None, federation.objective()
    if isinstance(objective, ServerEstimate):
        batch = batches("auxiliary", device, mark).next()
        monitor = ClassMonitor(network, objective, batch.images, batch.labels)
    fleet, start, buffers = LocalFleet(hosts), federation.start(network), network.buffers()
    engine, shared = federation.engine(0, fleet, monitor), federation.start_shared(network)
    state = engine.start_stage(start, buffers, shared=shared)
    return Training(federation, network, fleet, monitor, engine, state, start, buffers, shared)


def pipelines(window: int) -> dict[str, Pipeline]:
    """Every algorithm on the sample hospitals, by name."""
    path = bundled("pipelines") / "source_addition_samples.yaml"
    names = list(ALGORITHMS.built_in)
    variants = list_variants(load_pipeline(path, [f"federated.window={window}"], methods=names), path)
    within = "methods.codasca.objective={name: auc, pairs: within_site}"
    pairs = load_pipeline(path, [f"federated.window={window}", within]).resolve()
    return dict(zip(names, [variant.pipeline for variant in variants], strict=True)) | {"codasca, within sites": pairs}
