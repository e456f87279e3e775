"""From the parts that a pipeline names to the objective of a client and the rule of a stage."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from chestfed.algorithms.declaration import DecentralizedOptions, Setting
from chestfed.algorithms.topology import Graph, build_graph
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.experiment.stage_2 import Federated
from chestfed.objectives import Objective
from chestfed.objectives.declaration import Population


def objective_of(settings: Federated, common: Tensor, own: Tensor | None = None) -> Objective:
    """The objective of a client; `common` and `own` are positive ratios per disease `[J]`, the latter the client's."""
    population = Population(common, common if own is None else own)
    return settings.objective_spec.build(settings.objective, population)


def graph_of(settings: Federated, nodes: int) -> Graph | None:
    """The graph of a decentralized algorithm; None with a server.

    Raises
    ------
    ConfigError
        If it is not connected or has other nodes.
    """
    if not settings.spec.decentralized:
        return None
    if not isinstance(settings.algorithm, DecentralizedOptions):
        raise ConfigError(f"{settings.algorithm.name} is decentralized: its Options must be DecentralizedOptions")
    return build_graph(settings.algorithm.topology, nodes)


def rule_of_stage(settings: Federated, number: int, p: Tensor, clients: int, graph: Graph | None = None) -> Any:
    """The rule with the hyper-parameters of a stage, counted from 0: an `Algorithm`, or a `PeerAlgorithm`.

    Raises
    ------
    ConfigError
        If the options have no meaning for this stage and number of clients.
    """
    stage = settings.schedule[number]
    degrees = [] if graph is None else [graph.degree(node) for node in range(graph.nodes)]
    setting = Setting(
        window=stage.window,
        local_lr=settings.local_lr * stage.lr_factor,
        lr_factor=stage.lr_factor,
        clients=clients,
        positive_ratio=p,
        degree=max(degrees, default=0),
        returns_average=settings.stage_output == "algorithm",
    )
    return settings.spec.build(settings.algorithm, setting)


def returned_round(settings: Federated, seed: int, number: int) -> int | None:
    """The round of a stage, counted from 1, whose point the stage returns; None: as the algorithm says."""
    if settings.stage_output != "random_round":
        return None
    return int(numpy_stream(seed, "returned round", number).integers(1, settings.schedule[number].rounds + 1))
