"""What trains in stage 2 for one K: what the clients have in common, their hosts, and the engine of each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from chestfed.algorithms.variables import Point
from chestfed.core.plugins import Options
from chestfed.engines.aggregation import client_weights
from chestfed.engines.client import NetworkClient
from chestfed.engines.engine import Engine
from chestfed.engines.fleet import Fleet, LocalFleet
from chestfed.engines.host import Host
from chestfed.engines.peers import PeerEngine
from chestfed.engines.server import ClassMonitor, ServerEngine
from chestfed.engines.shapes import Shapes
from chestfed.engines.topology import Graph
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.experiment.rules import graph_of, objective_of, participants_of, ratio_of_duals, rule_of_stage
from chestfed.experiment.stage_2 import Federated
from chestfed.images.batches import TrainBatches
from chestfed.models import FlatModule, reset_classifier
from chestfed.objectives.declaration import Objective, Population
from chestfed.training.client_summary import write_site_cards
from chestfed.training.clients import ClientData, Outputs, Setup, StudyData, TestSet, pooled, score
from chestfed.training.pretrain import Pretrained, new_network, pretrain


@dataclass(frozen=True)
class Facts:
    """What is known of a client beyond its own walls: no image, no patient. Ratios and shares float64 `[J]`."""

    name: str
    training_rows: int
    positive_ratios: np.ndarray
    labeled_share: Tensor

    @classmethod
    def of(cls, client: ClientData) -> Facts:
        """Those of a client whose images are here."""
        return cls(client.name, client.training_rows, client.positive_ratios(), client.labeled_share())


@dataclass(frozen=True)
class Cohort:
    """What the first K clients and whoever leads them have in common: made from facts, the same wherever it is made.

    `images_per_step` are those of a local step of one client, or of the pool of all.
    """

    settings: Federated
    seed: int
    k: int
    names: tuple[str, ...]
    weights: tuple[float, ...]
    population: Population
    images_per_step: int
    graph: Graph | None

    @classmethod
    def of(cls, pipeline: Pipeline, facts: Sequence[Facts], device: torch.device, pool: Facts | None = None) -> Cohort:
        """The clients with these facts; `pool`, if all their images are in one place, has those of all together."""
        settings, k = pipeline.federated, len(facts)
        weights = client_weights([fact.training_rows for fact in facts], settings.weights)
        members, images = facts, settings.images_per_step
        if pool is not None:
            members, weights, images = [pool], [1.0], images * k
        p = common_positive_ratio(members, weights).to(device, torch.float32)
        ratios = torch.from_numpy(np.nan_to_num([one.positive_ratios for one in members])).to(p)  # 0 without labels
        labeled = torch.stack([one.labeled_share for one in members]).to(p)
        population, names = Population(p, ratios, labeled=labeled), tuple(one.name for one in members)
        return cls(settings, pipeline.seed, k, names, tuple(weights), population, images, graph_of(settings, k))

    def objective(self, number: int = 0) -> Objective:
        """The loss of a client."""
        return objective_of(self.settings, replace(self.population, site=number))

    def shapes(self, parameters: int, buffers: int, number: int) -> Shapes:
        """What requests to a client and its replies look like, for a network with so many numbers."""
        objective, composed = self.objective(number), self.settings.objective_spec.kind == "compositional"
        size, dual = parameters + objective.extra_size, objective.dual_size
        return Shapes(self.rule(0), size, dual, buffers, composed, 1 + composed, self.graph, number)

    def rule(self, stage: int) -> Any:
        """The algorithm's rule in a stage, counted from 0; after the last, that of the last."""
        number, ratio = min(stage, len(self.settings.schedule) - 1), ratio_of_duals(self.objective(), self.population)
        return rule_of_stage(self.settings, number, ratio, len(self.names), self.graph)


@dataclass(frozen=True)
class Team:
    """A network to score with and the fleet that trains it; `start` is the point of all at the beginning."""

    cohort: Cohort
    network: FlatModule
    fleet: Fleet
    start: Point
    monitor: ClassMonitor | None

    @property
    def settings(self) -> Federated:
        return self.cohort.settings

    def engine_of(self, stage: int) -> Engine[Any]:
        """The engine with the rule of a stage, counted from 0; after the last stage, that of the last."""
        cohort, settings = self.cohort, self.settings
        rule, number = cohort.rule(stage), min(stage, len(settings.schedule) - 1)
        if cohort.graph is not None:
            exchange: Any = getattr(settings.algorithm, "exchange", "synchronous")
            return PeerEngine(rule, self.fleet, cohort.graph, exchange, cohort.seed)
        return ServerEngine(
            rule,
            self.fleet,
            cohort.weights,
            stage=number,
            monitor=self.monitor,
            sends=not settings.spec.pooled,
            participants=participants_of(settings, cohort.seed, number, len(cohort.names)),
            aggregation=settings.combination,
            absent=settings.absent,
            privacy=settings.noise(cohort.seed),
        )


def assemble(setup: Setup, k: int, pretrained: Pretrained, deployment: Deployment) -> Team:
    """The team of the first `k` clients, with the weights of stage 1 and a new classifier."""
    pipeline, machine = setup.pipeline, setup.machine
    settings, cohort = pipeline.federated, cohort_of(setup, k)
    network = starting_network(pipeline, machine, pretrained)
    objective = cohort.objective()
    extra = torch.zeros(objective.extra_size).to(network.grad)
    start = Point(torch.cat([network.parameters(), extra]), torch.zeros(objective.dual_size).to(network.grad))
    monitor = None
    if settings.objective_spec.kind == "server-weighted":
        each = -(-getattr(settings.objective, "monitor_images", 16) // k)
        chosen = [client.some_of_each_class(each, pipeline.seed) for client in setup.data.clients[:k]]
        images, labels = (torch.cat(parts) for parts in zip(*chosen, strict=True))
        monitor = ClassMonitor(network, images.to(machine.device), labels.to(machine.device), autocast=machine.autocast)
    return Team(cohort, network, deployment.fleet(setup, pretrained, cohort, network), start, monitor)


class Deployment:
    """Where the images of a study are and its clients compute; this one: all here, one after the other.

    An engine of the user's choice is a subclass that says what is done elsewhere.
    """

    def fleet(self, setup: Setup, pretrained: Pretrained, cohort: Cohort, network: FlatModule) -> Fleet:
        """The clients of the cohort, ready for the first stage; here they share the network."""
        members = enumerate(members_of(setup, cohort.k))
        return LocalFleet([host_of(setup, cohort, number, member, network) for number, member in members])

    def pretrain(self, setup: Setup, folder: Path, report: Callable[[int, float], None]) -> Pretrained:
        """Stage 1; see `chestfed.training.pretrain.pretrain`."""
        return pretrain(setup, folder, report)

    def score(self, setup: Setup, network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet) -> Outputs:
        """A model on a test set; see `chestfed.training.clients.score`."""
        return score(network, parameters, buffers, test, setup.pipeline.evaluation.batch_size, setup.machine)

    def describe(self, folder: Path, data: StudyData, pipeline: Pipeline) -> None:
        """Write what a report says of the sites; see `chestfed.training.client_summary`."""
        write_site_cards(folder, data, pipeline)

    leads = True  #: False in a process that does what another asks: it calls `serve` and nothing else

    def begin(self, studies: Sequence[Setup]) -> None:
        """The images of these studies, which come one after the other, are loaded."""

    def serve(self, load: Callable[[], Sequence[Setup]]) -> None:
        """Do what the leading process asks, until it is done; `load` reads the images, which it has decoded."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        pass


def in_process(options: Options, machine: Machine) -> Deployment:
    """The deployment of the engine `in-process`."""
    return Deployment()


def members_of(setup: Setup, k: int) -> tuple[ClientData, ...]:
    """Whose images are trained on in a place of their own: the first `k` clients, or the pool of them."""
    clients = setup.data.clients[:k]
    return (pooled(clients),) if setup.pipeline.federated.spec.pooled else clients


def cohort_of(setup: Setup, k: int) -> Cohort:
    """The cohort of clients whose images are here."""
    facts = [Facts.of(client) for client in setup.data.clients[:k]]
    pool = Facts.of(*members_of(setup, k)) if setup.pipeline.federated.spec.pooled else None
    return Cohort.of(setup.pipeline, facts, setup.machine.device, pool)


def host_of(setup: Setup, cohort: Cohort, number: int, member: ClientData, network: FlatModule) -> Host:
    """The host of a client of the cohort, whose images are here; `network` may be shared by hosts of one process."""
    pipeline, machine = setup.pipeline, setup.machine

    def batches(stream: str) -> TrainBatches:
        return member.train_batches(cohort.images_per_step, pipeline.seed, stream, pipeline.augment, machine)

    composed = cohort.settings.objective_spec.kind == "compositional"
    client = NetworkClient(
        member.name,
        batches(member.name),
        network,
        cohort.objective(number),
        device=machine.device,
        autocast=machine.autocast,
        inner_batches=batches(f"{member.name} inner") if composed else None,
        seed=pipeline.seed,
        weight_decay=cohort.settings.weight_decay,
    )
    return Host(client, cohort.rule, cohort.graph, number)


def common_positive_ratio(clients: Sequence[Facts], weights: Sequence[float]) -> Tensor:
    """The one p per disease, float64 `[J]`: the clients' ratios, averaged with the aggregation weights.

    With these p the weighted sum of the clients' losses is the loss of the pooled (weighted) data. It takes a
    single exchange of J ratios. A client that does not label a disease is left out of that disease's mean.
    """
    ratios = np.stack([client.positive_ratios for client in clients])
    share = np.where(np.isnan(ratios), 0.0, np.asarray(weights)[:, None])
    total = share.sum(axis=0)
    p = np.divide((np.nan_to_num(ratios) * share).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return torch.from_numpy(p)


def starting_network(pipeline: Pipeline, machine: Machine, pretrained: Pretrained) -> FlatModule:
    """The network with the weights of stage 1 and a new classifier."""
    network = new_network(pipeline, machine)
    network.bind(pretrained.weights.to(machine.device).clone())
    network.load_buffers(pretrained.buffers.to(machine.device))
    reset_classifier(network.module, pipeline.model, len(pipeline.tasks), pipeline.seed)
    return network
