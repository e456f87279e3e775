"""From the names in a pipeline to an algorithm with the hyper-parameters of a stage, and its objective."""

from __future__ import annotations

import torch
from torch import Tensor

from chestfed.algorithms.coda import Coda
from chestfed.algorithms.coda_plus import CodaPlus
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.codasca_minimal import CodascaMinimal
from chestfed.algorithms.variables import Algorithm
from chestfed.objectives import Objective
from chestfed.objectives.auc_margin import AucMargin
from chestfed.randomness import numpy_stream
from chestfed.study.pipeline import Federated


def objective_of(settings: Federated, p: Tensor) -> Objective:
    """The objective of the clients; `p` is the common positive ratio per disease `[J]`."""
    return AucMargin(p)


def algorithm_of_stage(settings: Federated, number: int, p: Tensor, clients: int) -> Algorithm:
    """The algorithm with the hyper-parameters of a stage, counted from 0, for this number of clients."""
    stage = settings.stage(number)
    local_lr = settings.local_lr * stage.lr_factor
    dual_lr: float | Tensor = (settings.dual_lr or settings.local_lr) * stage.lr_factor
    if settings.dual_step == "preconditioned":
        curvature = p * (1 - p) / p.numel()
        dual_lr = dual_lr / torch.where(curvature > 0, curvature, 1.0)
    if settings.algorithm == "codasca":
        server_lr = clients**0.5 if settings.server_lr == "sqrt_k" else settings.server_lr
        rule = Codasca(stage.window, local_lr, dual_lr, server_lr, settings.prox)
        return CodascaMinimal(rule) if settings.communication == "minimal" else rule
    output = "average" if settings.returned in (None, "average") else "last"
    kind = Coda if settings.algorithm == "coda" else CodaPlus
    return kind(stage.window, local_lr, dual_lr, settings.prox, output)


def returned_round(settings: Federated, seed: int, number: int) -> int | None:
    """The round of a stage, counted from 1, whose point the stage returns; None: as the algorithm says."""
    if settings.returned != "random_round":
        return None
    return int(numpy_stream(seed, "returned round", number).integers(1, settings.stage(number).rounds + 1))
