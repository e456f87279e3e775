"""From the names in a pipeline to an algorithm with the hyper-parameters of a stage, and its objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from chestfed.algorithms.coda import Coda
from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.codasca_minimal import CodascaMinimal
from chestfed.algorithms.edge_consensus import EdgeConsensus, tuning_free_eta
from chestfed.algorithms.fedprox import FedProx
from chestfed.algorithms.gossip import Gossip
from chestfed.algorithms.local_scgdam import LocalScgdam
from chestfed.algorithms.local_sgdam import LocalSgdam
from chestfed.algorithms.local_sgdm import LocalSgdm
from chestfed.algorithms.scaffold import Scaffold
from chestfed.algorithms.variables import Algorithm, PeerAlgorithm
from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream
from chestfed.engines.in_process import Client, InProcessEngine
from chestfed.engines.peers import PeerEngine
from chestfed.engines.topology import Graph, build_graph
from chestfed.experiment.stage_2 import PEER_ALGORITHMS, Federated
from chestfed.objectives import Objective
from chestfed.objectives.auc_margin import AucMargin
from chestfed.objectives.compositional import CompositionalAuc
from chestfed.objectives.cross_entropy import CrossEntropy
from chestfed.objectives.ratio_loss import RatioLoss


def objective_of(settings: Federated, p: Tensor) -> Objective:
    """The objective of a client; `p` is the positive ratio per disease `[J]`."""
    match settings.trains_on:
        case "auc":
            return AucMargin(p)
        case "compositional_auc":
            return CompositionalAuc(AucMargin(p), settings.inner_lr, settings.hvp)
        case "ratio_loss":
            return RatioLoss(p.numel(), settings.ratio_alpha, settings.ratio_beta)
    return CrossEntropy()


def engine_of_stage(
    settings: Federated,
    number: int,
    p: Tensor,
    clients: Sequence[Client],
    weights: Sequence[float],
    seed: int,
    monitor: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> InProcessEngine | PeerEngine:
    """The engine with the algorithm of a stage, counted from 0.

    Raises
    ------
    ConfigError
        If the graph is none, or eta has no tuning-free value.
    """
    if settings.algorithm not in PEER_ALGORITHMS:
        algorithm = algorithm_of_stage(settings, number, p, len(clients))
        sends = settings.algorithm != "centralised"
        return InProcessEngine(algorithm, clients, weights, monitor=monitor, sends=sends)
    graph = build_graph(settings.topology, len(clients))
    return PeerEngine(peer_algorithm(settings, graph), clients, graph, settings.exchange, seed)


def peer_algorithm(settings: Federated, graph: Graph) -> PeerAlgorithm:
    """The algorithm of the nodes of a graph.

    Raises
    ------
    ConfigError
        If eta has no tuning-free value.
    """
    if settings.algorithm == "gossip":
        return Gossip(settings.window, settings.local_lr, pairwise=settings.exchange != "synchronous")
    rule: Literal["pdmm", "admm"] = "pdmm" if settings.algorithm == "pdmm" else "admm"
    eta = settings.eta
    if eta == "auto":
        degree = max((graph.degree(node) for node in range(graph.nodes)), default=0)
        try:
            eta = tuning_free_eta(rule, settings.local_lr, settings.window, degree)
        except ValueError as error:
            raise ConfigError(f"eta: auto: {error}: set a number, or take a larger window") from None
    return EdgeConsensus(rule, settings.window, 1 / settings.local_lr, eta, settings.rho)


def algorithm_of_stage(settings: Federated, number: int, p: Tensor, clients: int) -> Algorithm:
    """The algorithm with a server, with the hyper-parameters of a stage, counted from 0, for this number of clients."""
    stage = settings.schedule[number]
    window, local_lr = stage.window, settings.local_lr * stage.lr_factor
    server_lr = clients**0.5 if settings.server_lr == "sqrt_k" else settings.server_lr
    dual_lr: float | Tensor = (settings.dual_lr or settings.local_lr) * stage.lr_factor
    if settings.dual_step == "preconditioned":
        curvature = p * (1 - p) / p.numel()
        dual_lr = dual_lr / torch.where(curvature > 0, curvature, 1.0)
    output = "average" if settings.returned in (None, "average") else "last"
    rate = settings.momentum_rate
    match settings.algorithm:
        case "codasca":
            rule = Codasca(window, local_lr, dual_lr, server_lr, settings.prox)
            return CodascaMinimal(rule) if settings.communication == "minimal" else rule
        case "coda_plus" | "npa" | "npa_large_batch":
            return CodaPlus(window, local_lr, dual_lr, settings.prox, output)
        case "coda":
            return Coda(window, local_lr, dual_lr, settings.prox, output)
        case "local_scgdam":
            return LocalScgdam(window, local_lr, dual_lr, settings.inner_rate, rate, rate)
        case "local_sgdam":
            return LocalSgdam(window, local_lr, dual_lr, rate, rate)
        case "local_sgda":
            return CodaPlus(window, local_lr, dual_lr, 0.0, "last")
        case "local_sgdm" | "local_sgdm_ratio":
            return LocalSgdm(window, local_lr, settings.momentum)
        case "scaffold":
            return Scaffold(window, local_lr, server_lr)
        case "fedprox":
            return FedProx(window, local_lr, settings.prox)
        case "centralised" if settings.trains_on == "auc":
            return CodaPlus(window, local_lr, dual_lr, settings.prox, "last")
        case "fedavg" | "centralised":
            return FedProx(window, local_lr)
    raise ConfigError(f"{settings.algorithm} has no server")


def returned_round(settings: Federated, seed: int, number: int) -> int | None:
    """The round of a stage, counted from 1, whose point the stage returns; None: as the algorithm says."""
    if settings.returned != "random_round":
        return None
    return int(numpy_stream(seed, "returned round", number).integers(1, settings.schedule[number].rounds + 1))
