"""Clients of every algorithm with a small network, on a CPU or beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from chestfed.algorithms import ALGORITHMS
from chestfed.algorithms.variables import Point
from chestfed.core.bundled import bundled
from chestfed.engines.client import NetworkClient
from chestfed.engines.fleet import LocalFleet
from chestfed.engines.host import Host
from chestfed.engines.server import ClassMonitor
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.variants import list_variants
from chestfed.images.augment import Augment
from chestfed.images.batches import CPU, TrainBatches, Uploads
from chestfed.models import FlatModule, build_model, network_options
from chestfed.training.assemble import Cohort, Facts, Team


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


def team_of(
    pipeline: Pipeline,
    device: torch.device = CPU,
    *,
    place: Callable[[torch.nn.Module], torch.nn.Module] = lambda module: module,
    mark: Callable[[], Any] | None = Done,
) -> Team:
    """Two clients that train on the device, one after the other; `place` brings a module there if it has to."""
    rng = np.random.default_rng(0)
    facts = [Facts(f"c{i}", 24, rng.uniform(0.1, 0.5, 5), torch.full((5,), 0.9).double()) for i in range(2)]
    pool = facts[0] if pipeline.federated.spec.pooled else None
    cohort = Cohort.of(pipeline, facts, device, pool)
    norm = "batch" if cohort.graph is None else "group"
    module = build_model(network_options("small", init_features=4, growth_rate=4, blocks=[1], norm=norm, pool=1), 5, 0)
    network = FlatModule(place(module), device, channels_last=True)
    kind = cohort.settings.objective_spec.kind
    clients = [
        NetworkClient(
            name,
            batches(name, device, mark),
            network,
            cohort.objective(number),
            device=device,
            inner_batches=batches(f"{name}, inner", device, mark) if kind == "compositional" else None,
            weight_decay=cohort.settings.weight_decay,
        )
        for number, name in enumerate(cohort.names)
    ]
    hosts = [Host(client, cohort.rule, cohort.graph, number) for number, client in enumerate(clients)]
    primal = torch.cat([network.parameters(), network.grad.new_zeros(cohort.objective().extra_size)])
    start = Point(primal, network.grad.new_zeros(cohort.objective().dual_size))
    monitor = None
    if kind == "server-weighted":
        batch = batches("auxiliary", device, mark).next()
        monitor = ClassMonitor(network, batch.images, batch.labels)
    return Team(cohort, network, LocalFleet(hosts), start, monitor)


def pipelines(window: int) -> dict[str, Pipeline]:
    """Every algorithm on the sample hospitals, by name."""
    path = bundled("pipelines") / "source_addition_samples.yaml"
    names = list(ALGORITHMS.built_in)
    variants = list_variants(load_pipeline(path, [f"federated.window={window}"], methods=names), path)
    within = "methods.codasca.objective={name: auc, pairs: within_site}"
    pairs = load_pipeline(path, [f"federated.window={window}", within]).resolve()
    return dict(zip(names, [one.pipeline for one in variants], strict=True)) | {"codasca, within sites": pairs}
