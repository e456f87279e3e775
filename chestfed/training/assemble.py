"""What trains in stage 2 for one K: the network, the clients with their objectives, and the engine of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.algorithms.variables import Point
from chestfed.engines.client import NetworkClient
from chestfed.engines.engine import Engine
from chestfed.engines.in_process import ClassMonitor, InProcessEngine
from chestfed.engines.peers import PeerEngine
from chestfed.engines.topology import Graph
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import graph_of, objective_of, participants_of, ratio_of_duals, rule_of_stage
from chestfed.experiment.stage_2 import Federated
from chestfed.images.batches import TrainBatches
from chestfed.models import FlatModule, build_model, reset_classifier
from chestfed.objectives.declaration import Population
from chestfed.training.clients import ClientData, StudyData, pooled
from chestfed.training.pretrain import Pretrained


@dataclass(frozen=True)
class Team:
    """A network and the clients that train it in turn; `start` is the point of all of them at the beginning."""

    settings: Federated
    network: FlatModule
    clients: tuple[NetworkClient, ...]
    weights: tuple[float, ...]
    positive_ratio: Tensor
    start: Point
    graph: Graph | None
    monitor: ClassMonitor | None
    seed: int

    def engine_of(self, stage: int) -> Engine:
        """The engine with the rule of a stage, counted from 0; after the last stage, that of the last."""
        settings = self.settings
        number = min(stage, len(settings.schedule) - 1)
        rule = rule_of_stage(settings, number, self.positive_ratio, len(self.clients), self.graph)
        if self.graph is not None:
            exchange: Any = getattr(settings.algorithm, "exchange", "synchronous")
            return PeerEngine(rule, self.clients, self.graph, exchange, self.seed)
        return InProcessEngine(
            rule,
            self.clients,
            self.weights,
            monitor=self.monitor,
            sends=not settings.spec.pooled,
            participants=participants_of(settings, self.seed, number, len(self.clients)),
        )

    def close(self) -> None:
        """Let the batches' threads and files go."""
        for client in self.clients:
            client.close()


def assemble(pipeline: Pipeline, data: StudyData, machine: Machine, k: int, pretrained: Pretrained) -> Team:
    """The team of the first `k` clients, with the weights of stage 1 and a new classifier."""
    settings = pipeline.federated
    network = _network(pipeline, data, machine, pretrained)
    participants: Sequence[ClientData] = data.clients[:k]
    weights = client_weights(participants, settings.weights)
    p = common_positive_ratio(participants, weights).to(network.grad)
    monitor = None
    if settings.objective_spec.kind == "server-weighted":
        each = -(-getattr(settings.objective, "monitor_images", 16) // k)
        chosen = [client.some_of_each_class(each, pipeline.seed) for client in participants]
        images, labels = (torch.cat(parts) for parts in zip(*chosen, strict=True))
        monitor = ClassMonitor(network, images.to(machine.device), labels.to(machine.device), autocast=machine.autocast)
    images_per_step = settings.images_per_step
    if settings.spec.pooled:
        participants, weights, images_per_step = [pooled(participants)], [1.0], images_per_step * k
    ratios = torch.stack([own_ratio(client) for client in participants]).to(p)
    labeled = torch.stack([client.labeled_share() for client in participants]).to(p)
    population = Population(p, ratios, labeled=labeled)
    objective = objective_of(settings, population)
    composed = settings.objective_spec.kind == "compositional"

    def batches_of(client: ClientData, stream: str) -> TrainBatches:
        return client.train_batches(images_per_step, pipeline.seed, stream, pipeline.augment, machine)

    clients = tuple(
        NetworkClient(
            client.name,
            batches_of(client, client.name),
            network,
            objective_of(settings, replace(population, site=number)),
            device=machine.device,
            autocast=machine.autocast,
            inner_batches=batches_of(client, f"{client.name} inner") if composed else None,
            seed=pipeline.seed,
            weight_decay=settings.weight_decay,
        )
        for number, client in enumerate(participants)
    )
    extra, dual = torch.zeros(objective.extra_size).to(p), torch.zeros(objective.dual_size).to(p)
    start = Point(torch.cat([network.parameters(), extra]), dual)
    graph = graph_of(settings, k)
    ratio = ratio_of_duals(objective, population)
    return Team(settings, network, clients, tuple(weights), ratio, start, graph, monitor, pipeline.seed)


def client_weights(clients: Sequence[ClientData], mode: str) -> list[float]:
    """Aggregation weights: 1/K each, or the share of the training rows."""
    if mode == "uniform":
        return [1 / len(clients)] * len(clients)
    total = sum(client.training_rows for client in clients)
    return [client.training_rows / total for client in clients]


def common_positive_ratio(clients: Sequence[ClientData], weights: Sequence[float]) -> Tensor:
    """The one p per disease, float64 `[J]`: the clients' ratios, averaged with the aggregation weights.

    With these p the weighted sum of the clients' losses is the loss of the pooled (weighted) data. It takes a
    single exchange of J ratios. A client that does not label a disease is left out of that disease's mean.
    """
    ratios = np.stack([client.positive_ratios() for client in clients])
    share = np.where(np.isnan(ratios), 0.0, np.asarray(weights)[:, None])
    total = share.sum(axis=0)
    p = np.divide((np.nan_to_num(ratios) * share).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return torch.from_numpy(p)


def own_ratio(client: ClientData) -> Tensor:
    """The client's own positive ratio per disease, float64 `[J]`; 0 without labels."""
    return torch.from_numpy(np.nan_to_num(client.positive_ratios()))


def _network(pipeline: Pipeline, data: StudyData, machine: Machine, pretrained: Pretrained) -> FlatModule:
    network = FlatModule(build_model(pipeline.model, len(data.diseases), pipeline.seed), machine.device)
    network.bind(pretrained.weights.to(machine.device).clone())
    network.load_buffers(pretrained.buffers.to(machine.device))
    reset_classifier(network.module, pipeline.model, len(data.diseases), pipeline.seed)
    return network
