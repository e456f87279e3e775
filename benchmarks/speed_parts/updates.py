"""The algorithm's own arithmetic at the size of DenseNet121."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.speed_parts.pairs import paired
from chestfed.algorithms.codasca import Codasca
from chestfed.algorithms.variables import Point

NUMBERS, CLIENTS, WINDOW = 6_958_981, 5, 4


def measure() -> dict[str, Any]:
    """CODASCA's local step without the gradient, and the server's step."""
    torch.set_num_threads(1)
    point = Point(torch.randn(NUMBERS), torch.zeros(5))
    rule = Codasca(WINDOW, 0.1, 0.1, server_lr=1.0, prox=1e-3)
    server, client = rule.start_stage(point), rule.start_client(point)
    gradient, flat, control = torch.randn(NUMBERS), torch.zeros(5), torch.zeros(NUMBERS)
    update, _ = rule.local_round(server, client, lambda v, alpha: (gradient, flat))
    updates, v = [update] * CLIENTS, point.primal.clone()
    mine, slopes, references, shifts = ([torch.randn(part) for part in [NUMBERS // 364] * 364] for _ in range(4))

    def published() -> None:  # a loop over parameters, each with temporary tensors
        for part, slope, reference, shift in zip(mine, slopes, references, shifts, strict=True):
            part.copy_(part - 0.1 * (slope + 1e-3 * (part - reference) + shift))

    step = paired(
        {
            "CODASCA": lambda: rule.local_round(server, client, lambda v, alpha: (gradient, flat)),
            "plain gradient descent": lambda: [v.sub_(gradient, alpha=0.1) for _ in range(WINDOW)],
            "one expression": lambda: [
                v - 0.1 * (gradient + 1e-3 * (v - point.primal) + control) for _ in range(WINDOW)
            ],
            "a loop over parameters": lambda: [published() for _ in range(WINDOW)],
        },
        count=WINDOW,
        unit="local step",
    )
    moved = [torch.empty(NUMBERS) for _ in range(CLIENTS)]
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
