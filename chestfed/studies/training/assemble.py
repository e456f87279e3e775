"""Who trains in stage 2 for one K, and where: the federation with the engine of each stage, and the clients' hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from chestfed.core.plugins import Options
from chestfed.data.images.batches import TrainBatches
from chestfed.learning.algorithms.declaration import ClientInfo, Groups, UnknownGroups
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.engine import Engine
from chestfed.learning.engines.fleet import Fleet, LocalFleet
from chestfed.learning.engines.host import Host
from chestfed.learning.engines.layout import Layout, Place
from chestfed.learning.engines.messages.shapes import Shapes, make_blank
from chestfed.learning.engines.parts import Parts
from chestfed.learning.engines.server import ClassMonitor, ServerEngine
from chestfed.learning.engines.weights import client_weights
from chestfed.learning.exchange.exchange import Exchange
from chestfed.learning.models import FlatModule, NetworkGroups, reset_classifier
from chestfed.learning.objectives.declaration import (
    Objective,
    Population,
    Seeing,
    ServerEstimate,
    count_remembered,
    count_shared,
    is_normalized,
    shape_shared,
)
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.options.sampling import check_classes
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.ranges import at_k
from chestfed.studies.experiment.rules import (
    build_layout,
    build_objective,
    make_participant_sampler,
    make_step_counts,
    ratio_of_duals,
)
from chestfed.studies.experiment.stage_2 import Federated
from chestfed.studies.training.client_summary import write_site_cards
from chestfed.studies.training.data.clients import ClientData, Outputs, TestSet, pool_clients, score
from chestfed.studies.training.data.experiment import Experiment
from chestfed.studies.training.pretrain import Pretrained, new_network, pretrain


@dataclass(frozen=True)
class Federation:
    """Who trains together: the first K clients and whoever leads them, without an image; the same wherever it is made.

    Beside each of `names` is its weight in a mean; `population` has the ratios of positives. `layout` is None with a
    server. `rows` are the training rows of each, `samples` those of its data set (if the images are here), `groups`
    those of the network's weights, `places` those of the clients in the order of addition. `images_per_step` are those
    of a local step of one client, or of the pool of all.
    """

    settings: Federated
    seed: int
    k: int
    names: tuple[str, ...]
    rows: tuple[int, ...]
    weights: tuple[float, ...]
    population: Population
    images_per_step: int
    layout: Layout | None
    groups: Groups = field(default_factory=UnknownGroups)
    samples: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        counts: Mapping[str, int],
        ratios: np.ndarray,
        labeled: Tensor,
        device: torch.device,
        k: int | None = None,
    ) -> Federation:
        """From counts alone.

        Parameters
        ----------
        counts
            Client -> training rows; if all images are in one place, the pool of `k` clients is the only one.
        ratios, labeled
            Share of positives among the labeled rows, NaN without any, and share of labeled rows: float64 `[K, J]`.

        Raises `ConfigError` if batches are to be drawn by class, and a client has no disease with both classes.
        """
        k = k or len(counts)
        settings = at_k(pipeline.federated, k)
        weights = client_weights(list(counts.values()), settings.weights)
        images = settings.images_per_step * (k if settings.spec.pooled else 1)
        if settings.sampling is not None:
            both = [bool(((shares > 0) & (shares < 1)).any()) for shares in ratios]
            check_classes(settings, dict(zip(counts, both, strict=True)))
            ratios, share = settings.sampling.change_counts(ratios, labeled.numpy(), images)
            labeled = torch.from_numpy(share)
        p = common_positive_ratio(ratios, weights).to(device, getattr(torch, pipeline.runtime.dtype))
        population = Population(p, torch.from_numpy(np.nan_to_num(ratios)).to(p), labeled=labeled.to(p))
        groups, rows = NetworkGroups(pipeline.model, len(pipeline.tasks)), tuple(counts.values())
        about = (
            tuple(counts),
            rows,
            tuple(weights),
            population,
            images,
            build_layout(settings, len(counts)),
            groups,
        )
        return cls(settings, pipeline.training_seed, k, *about, places=tuple(range(len(counts))))

    def objective(self, number: int = 0) -> Objective:
        """The loss of a client."""
        return build_objective(self.settings, replace(self.population, site=number))

    def place(self, number: int) -> Place | None:
        """Where a client stands among others without a server."""
        return None if self.layout is None else self.layout.place(number)

    def shapes(self, parameters: int, buffers: int, number: int) -> Shapes:
        """Shapes of requests to a client and of its replies, for a network with so many numbers."""
        objective, spec = self.objective(number), self.settings.objective_spec
        size, dual = parameters + objective.extra_size, objective.dual_size
        remembered = count_remembered(objective)
        memory = (self.samples[number], remembered) if remembered and self.samples else (0, 0)
        about = (size, dual, buffers, 1 + len(spec.streams), self.place(number))
        if isinstance(objective, Seeing) and "previous" in objective.models:
            memory = (1, parameters)
        dtype = self.population.positive_ratio.dtype
        oracle = make_blank(spec, objective, self.population.diseases)
        more: dict[str, Any] = {"exchange": self.exchange, "shared": count_shared(objective), "oracle": oracle}
        return Shapes(self.rule(0, number), *about, dtype=dtype, memory=memory, **more)

    def rule(self, stage: int, number: int | None = None, steps: int = 0) -> Any:
        """The algorithm's rule in a stage, counted from 0; after the last, that of the last.

        `number` is the client's; None: the rule is the server's. `steps` are local steps in place of the window.
        """
        last, objective = len(self.settings.schedule) - 1, self.objective()
        ratio = ratio_of_duals(objective, self.population)
        client = None if number is None else ClientInfo(number, self.rows[number], self.weights[number])
        more: dict[str, Any] = {"client": client, "groups": self.groups, "seed": self.seed}
        more |= {"shared": shape_shared(objective), "normalized": is_normalized(objective)}
        more |= {"window": steps} if steps else {}
        return self.settings.build_rule(min(stage, last), ratio, len(self.names), self.layout, **more)

    @property
    def exchange(self) -> Exchange:
        """The steps between the clients' local work and the server's own, the same in all stages."""
        return self.settings.exchange(self.seed)

    def start(self, network: FlatModule) -> Point:
        """The point of all at the beginning: the network's weights; a, b and alpha are 0."""
        objective = self.objective()
        extra, dual = (torch.zeros(size).to(network.grad) for size in (objective.extra_size, objective.dual_size))
        return Point(torch.cat([network.parameters(), extra]), dual)

    def start_shared(self, network: FlatModule) -> Tensor:
        """Numbers that the server sends for the objective in the first round, if it estimates nothing: zeros."""
        return torch.zeros(count_shared(self.objective())).to(network.grad)

    def engine(self, stage: int, fleet: Fleet, monitor: ClassMonitor | None = None) -> Engine[Any]:
        """The engine with the rule of a stage, counted from 0; after the last stage, that of the last."""
        settings = self.settings
        rule, number = self.rule(stage), min(stage, len(settings.schedule) - 1)
        if self.layout is not None:
            return self.layout.engine(rule, fleet, self.seed)
        return ServerEngine(
            rule,
            fleet,
            self.weights,
            stage=number,
            monitor=monitor,
            sends=not settings.spec.pooled,
            participants=make_participant_sampler(settings, self.seed, number, len(self.names)),
            exchange=self.exchange,
            absent=settings.absent,
            steps=make_step_counts(settings, self.seed, number, self.rows, self.places),
        )


class Deployment:
    """Where the images of a study are and its clients compute; this one: all here, one after the other.

    An engine of the user's choice is a subclass that says what is done elsewhere.
    """

    def fleet(
        self, experiment: Experiment, pretrained: Pretrained, federation: Federation, network: FlatModule
    ) -> Fleet:
        """The clients of the federation, ready for the first stage; here they share the network."""
        members = enumerate(list_members(experiment, federation.k))
        return LocalFleet(
            [make_member_host(experiment, federation, number, member, network) for number, member in members]
        )

    def pretrain(self, experiment: Experiment, folder: Path, report: Callable[[int, float], None]) -> Pretrained:
        """Stage 1; see `chestfed.studies.training.pretrain.pretrain`."""
        return pretrain(experiment, folder, report)

    def score(
        self, experiment: Experiment, network: FlatModule, parameters: Tensor, buffers: Tensor, test: TestSet
    ) -> Outputs:
        """A model on a test set; see `chestfed.studies.training.data.clients.score`."""
        return score(network, parameters, buffers, test, experiment.pipeline.evaluation.batch_size, experiment.machine)

    def describe(self, folder: Path, experiment: Experiment) -> None:
        """Write what a report says of the sites; see `chestfed.studies.training.client_summary`."""
        write_site_cards(folder, experiment)

    has_test_images = True  #: whether they are in this process, and not at a hospital
    leads = True  #: False in a process that does what another asks: it calls `serve` and nothing else

    def agree(self, pipelines: Mapping[str, Pipeline]) -> None:
        """Refuse other processes with other studies than these, by label; called first, before images are read."""

    def begin(self, studies: Sequence[Experiment]) -> None:
        """The images of these studies, which come one after the other, are loaded."""

    def serve(self, load: Callable[[], Sequence[Experiment]]) -> None:
        """Do what the leading process asks, until it is done; `load` reads the images, which it has decoded."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        pass


def in_process(options: Options, machine: Machine) -> Deployment:
    """The deployment of the engine `in-process`."""
    return Deployment()


def list_members(experiment: Experiment, k: int) -> tuple[ClientData, ...]:
    """Whose images are trained on in a place of their own: the clients of K, or the pool of them."""
    clients = experiment.list_clients(k)
    return (pool_clients(clients),) if experiment.pipeline.federated.spec.pooled else clients


def form_federation(experiment: Experiment, k: int) -> Federation:
    """The federation of the first `k` clients, whose images are here."""
    members = list_members(experiment, k)
    counts = {member.name: member.training_rows for member in members}
    ratios = np.stack([member.positive_ratios() for member in members])
    labeled = torch.stack([member.labeled_share() for member in members])
    federation = Federation.of(experiment.pipeline, counts, ratios, labeled, experiment.machine.device, k)
    places = [place for place, client in enumerate(experiment.clients) if client.name in counts] or [0]  # of a pool
    return replace(federation, samples=tuple(len(member.labels) for member in members), places=tuple(places))


def watch_classes(experiment: Experiment, federation: Federation, network: FlatModule) -> ClassMonitor | None:
    """Monitor of a server-weighted objective on some images of each class of every client; else None."""
    settings, machine, objective = experiment.pipeline.federated, experiment.machine, federation.objective()
    if not isinstance(objective, ServerEstimate):
        return None
    clients = experiment.list_clients(federation.k)
    each = -(-getattr(settings.objective, "monitor_images", 16) // len(clients))
    chosen = [client.some_of_each_class(each, experiment.pipeline.training_seed) for client in clients]
    images, labels = (torch.cat(parts) for parts in zip(*chosen, strict=True))
    here = (images.to(machine.device), labels.to(machine.device))
    return ClassMonitor(network, objective, *here, autocast=machine.autocast)


def make_member_host(
    experiment: Experiment,
    federation: Federation,
    number: int,
    member: ClientData,
    network: FlatModule,
    parts: Parts | None = None,
) -> Host:
    """The host of a client whose images are here; `network` may be shared by hosts of one process.

    `parts` are those of its batches that are computed in this process; None: all.
    """
    pipeline, machine = experiment.pipeline, experiment.machine
    parts = parts or Parts(pipeline.runtime.passes)

    def batches(stream: str) -> TrainBatches:
        images, sampling = federation.images_per_step, federation.settings.sampling
        positives = None if sampling is None else sampling.count(images)
        about = images, pipeline.training_seed, stream, pipeline.augment, machine
        return member.train_batches(*about, positives=positives, share=parts.select)

    spec = federation.settings.objective_spec
    client = NetworkClient(
        member.name,
        batches(member.name),
        network,
        federation.objective(number),
        device=machine.device,
        autocast=machine.autocast,
        oracle=spec.oracle,
        further=[batches(f"{member.name} {name}") for name in spec.streams],
        seed=pipeline.training_seed,
        weight_decay=federation.settings.weight_decay,
        samples=len(member.labels),
        loss_draws=spec.draws,
        parts=parts,
    )
    rule_of = partial(federation.rule, number=number)
    return Host(client, rule_of, federation.place(number), federation.exchange)


def common_positive_ratio(ratios: np.ndarray, weights: Sequence[float]) -> Tensor:
    """The one p per disease, float64 `[J]`: the clients' ratios `[K, J]`, averaged with the aggregation weights.

    With these p the weighted sum of the clients' losses is the loss of the pooled (weighted) data. It takes a
    single exchange of J ratios. A client that does not label a disease is left out of that disease's mean.
    """
    share = np.where(np.isnan(ratios), 0.0, np.asarray(weights)[:, None])
    total = share.sum(axis=0)
    p = np.divide((np.nan_to_num(ratios) * share).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return torch.from_numpy(p)


def starting_network(pipeline: Pipeline, machine: Machine, pretrained: Pretrained) -> FlatModule:
    """The network with the weights of stage 1 and a new classifier."""
    network = new_network(pipeline, machine)
    network.bind(pretrained.weights.to(machine.device).clone())
    network.load_buffers(pretrained.buffers.to(machine.device))
    reset_classifier(network.module, pipeline.model, len(pipeline.tasks), pipeline.training_seed)
    return network
