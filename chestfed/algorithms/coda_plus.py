"""CODA+: proximal stochastic descent ascent with local steps and plain averaging.

Yuan, Guo, Xu, Ying, Yang, ICML 2021, Algorithms 1 (stages) and 2 (one stage): CODASCA without control variates.
With heterogeneous clients and a window above 1 its fixed point is not the optimum. With a window of 1 it is the
naive parallel algorithm, NPA.

Algorithm 2 prints the dual average as the mean of alpha at t; the mean over the iterates is meant, as for v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from chestfed.algorithms.variables import Gradients, Point, weighted_mean


@dataclass(frozen=True)
class Client:
    """v_ref, and the client's running sum of its iterates since the start of the stage."""

    reference: Tensor
    primal_sum: Tensor
    dual_sum: Tensor
    steps: Tensor


@dataclass(frozen=True)
class CodaPlus:
    """Hyper-parameters of one stage of CODA+; names as in `Codasca`.

    `output` is what a stage returns: "average", over all iterates and clients (Algorithm 2), or "last".
    """

    window: int
    local_lr: float
    dual_lr: float | Tensor
    prox: float = 0.0
    output: str = "average"

    def start_stage(self, point: Point) -> Point:
        """The server keeps v and alpha."""
        return point

    def start_client(self, point: Point) -> Client:
        """v_ref is the start of the stage."""
        steps = torch.zeros((), dtype=torch.int64)
        return Client(point.primal, torch.zeros_like(point.primal), torch.zeros_like(point.dual), steps)

    def message(self, server: Point) -> Point:
        """Send v and alpha."""
        return server

    def local_round(self, message: Point, client: Client, gradients: Gradients) -> tuple[Point, Client]:
        """I local steps of proximal descent ascent (Algorithm 2, lines 3-5)."""
        v, alpha = message.primal.clone(), message.dual.clone()
        primal_sum, dual_sum = client.primal_sum.clone(), client.dual_sum.clone()

        for _ in range(self.window):
            grad_v, grad_alpha = gradients(v, alpha)
            v -= self.local_lr * (grad_v + self.prox * (v - client.reference))
            alpha += self.dual_lr * grad_alpha
            primal_sum += v
            dual_sum += alpha

        steps = client.steps + self.window
        return Point(v, alpha), Client(client.reference, primal_sum, dual_sum, steps)

    def server_round(self, server: Point, updates: Sequence[Point], weights: Sequence[float]) -> Point:
        """Average (Algorithm 2, line 6)."""
        return Point(
            weighted_mean([update.primal for update in updates], weights),
            weighted_mean([update.dual for update in updates], weights),
        )

    def current(self, server: Point) -> Point:
        """The server's v and alpha."""
        return server

    def final_message(self, client: Client) -> Point | None:
        """The mean of the client's iterates, sent once per stage."""
        if self.output == "last":
            return None
        return Point(client.primal_sum / client.steps, client.dual_sum / client.steps)

    def stage_output(self, server: Point, finals: Sequence[Point | None], weights: Sequence[float]) -> Point:
        """The average over all iterates and clients, or the last iterate."""
        means = [final for final in finals if final is not None]
        return self.server_round(server, means, weights) if means else server
