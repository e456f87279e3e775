"""The algorithm's own arithmetic at the size of DenseNet121."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from benchmarks.speed_parts.pairs import paired
from chestfed.learning.algorithms.codasca import Codasca
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.models import build_model, network_options

CLIENTS, WINDOW = 5, 32


def measure() -> dict[str, Any]:
    """CODASCA's local step without the gradient, over the window of the papers' studies, and the server's step."""
    torch.set_num_threads(1)
    shapes = [part.shape for part in build_model(network_options("densenet121"), 5, 0).parameters()]
    numbers = sum(map(prod, shapes))
    point = Point(torch.randn(numbers), torch.zeros(5))
    rule = Codasca(WINDOW, 0.1, 0.1, server_lr=1.0, prox=1e-3)
    server, client = rule.start_stage(point), rule.start_client(point)
    gradient, flat, control = torch.randn(numbers), torch.zeros(5), torch.zeros(numbers)
    update, _ = rule.local_round(server, client, lambda v, alpha: (gradient, flat))
    updates, v = [update] * CLIENTS, point.primal.clone()
    weights, sums, slopes, references, own, common = ([torch.randn(shape) for shape in shapes] for _ in range(6))

    def published() -> None:
        """As the papers' scripts and LibAUC's PESG do it: per tensor, each term a tensor of its own."""
        for place, slope in enumerate(slopes):
            pulled = 1e-3 * (weights[place] - references[place]) + 1e-5 * weights[place]
            slope = torch.clamp(slope, -1.0, 1.0) + pulled - own[place] + common[place]
            weights[place] = weights[place] - 0.1 * slope
            sums[place] = sums[place] + weights[place]

    step = paired(
        {
            "CODASCA": lambda: rule.local_round(server, client, lambda v, alpha: (gradient, flat)),
            "plain gradient descent": lambda: [v.sub_(gradient, alpha=0.1) for _ in range(WINDOW)],
            "one expression": lambda: [
                v - 0.1 * (gradient + 1e-3 * (v - point.primal) + control) for _ in range(WINDOW)
            ],
            "the published scripts' loop": lambda: [published() for _ in range(WINDOW)],
        },
        count=WINDOW,
        unit="local step",
        repeats=5,
    )
    moved = [torch.empty(numbers) for _ in range(CLIENTS)]
    server_round = paired(
        {
            "server round": lambda: rule.server_round(server, updates, [1 / CLIENTS] * CLIENTS),
            "the updates copied once": lambda: [
                into.copy_(part) for into in moved for part in (update.primal, update.c_primal)
            ],
        },
        unit="round",
    )
    return {"local step": step, f"round of {CLIENTS}": server_round}
