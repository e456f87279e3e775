"""CODA+: proximal stochastic descent ascent with local steps and plain averaging.

Yuan, Guo, Xu, Ying, Yang, ICML 2021, Algorithms 1 (stages) and 2 (one stage): CODASCA without control variates.
With heterogeneous clients and a window above 1 its fixed point is not the optimum. With a window of 1 it is the
naive parallel algorithm, NPA.

Algorithm 2 prints the dual average as the mean of alpha at t; the mean over the iterates is meant, as for v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from chestfed.learning.abilities import AVERAGING, Can
from chestfed.learning.algorithms.declaration import AlgorithmSpec, MinMaxOptions, ProximalOptions, Setting
from chestfed.learning.algorithms.variables import Algorithm, Gradients, Point, descend_, mean_of


@dataclass(frozen=True)
class Client:
    """v_ref, and the client's running sum of its iterates since the start of the stage."""

    reference: Tensor
    primal_sum: Tensor
    dual_sum: Tensor
    steps: Tensor


@dataclass(frozen=True)
class CodaPlus(Algorithm[Point, Point, Client]):
    """Hyper-parameters of one stage of CODA+; names as in `Codasca`.

    `output` is its own point: "average", over all iterates and clients (Algorithm 2), or "last".
    """

    window: int
    local_lr: float
    dual_lr: float | Tensor
    prox: float = 0.0
    output: str = "average"

    def start_client(self, point: Point) -> Client:
        """v_ref is the start of the stage."""
        steps = torch.zeros((), dtype=torch.int64)
        return Client(point.primal, torch.zeros_like(point.primal), torch.zeros_like(point.dual), steps)

    def local_round(self, message: Point, client: Client, gradients: Gradients) -> tuple[Point, Client]:
        """I local steps of proximal descent ascent (Algorithm 2, lines 3-5)."""
        v, alpha = message.primal.clone(), message.dual.clone()
        primal_sum, dual_sum = client.primal_sum.clone(), client.dual_sum.clone()

        for _ in range(self.window):
            grad_v, grad_alpha = gradients(v, alpha)
            descend_(v, self.local_lr, grad_v, prox=self.prox, reference=client.reference)
            alpha += self.dual_lr * grad_alpha
            primal_sum += v
            dual_sum += alpha

        steps = client.steps + self.window
        return Point(v, alpha), Client(client.reference, primal_sum, dual_sum, steps)

    def server_round(self, server: Point, updates: Sequence[Point], weights: Sequence[float]) -> Point:
        """Average v and alpha (Algorithm 2, line 6)."""
        return mean_of(updates, weights)

    def final_message(self, client: Client) -> Point | None:
        """The mean of the client's iterates, sent once per stage."""
        if self.output == "last":
            return None
        return Point(client.primal_sum / client.steps, client.dual_sum / client.steps)

    def stage_output(self, server: Point, finals: Sequence[Point | None], weights: Sequence[float]) -> Point:
        """The average over all iterates and clients, or the last iterate."""
        means = [final for final in finals if final is not None]
        return mean_of(means, weights) if means else server


def build(options: ProximalOptions, setting: Setting) -> CodaPlus:
    """The rule of one stage."""
    return CodaPlus(
        window=setting.window,
        local_lr=setting.local_lr,
        dual_lr=options.dual_step_size(setting),
        prox=options.prox,
        output="average" if setting.returns_average else "last",
    )


def build_sgda(options: MinMaxOptions, setting: Setting) -> CodaPlus:
    """Local descent ascent: no proximal term, no average."""
    return CodaPlus(setting.window, setting.local_lr, options.dual_step_size(setting), prox=0.0, output="last")


CODA_PLUS = AlgorithmSpec(
    name="coda_plus",
    title="CODA+",
    family="min-max AUC",
    paper="Yuan et al., ICML 2021",
    where="Algorithms 1, 2; eq. 2, 3",
    takes=("min-max",),
    objective="auc",
    sends="d + 3J",
    sent="v and alpha; their averages once a stage, if returned",
    exact="window 1",
    options=ProximalOptions,
    build=build,
    rule=CodaPlus,
    can=AVERAGING,
)

NPA = replace(
    CODA_PLUS,
    name="npa",
    title="NPA, small batch",
    where="section 6; Algorithm 2 with I = 1",
    variant="coda_plus, averaged after every step",
    sent="v and alpha after every step",
    exact="any window",
    rule=None,
    pace="every step",
    can=frozenset({Can.ROBUST, Can.SOME_CLIENTS}),
)

NPA_LARGE_BATCH = replace(
    NPA,
    name="npa_large_batch",
    title="NPA, large batch",
    variant="coda_plus, one step per round on `window` batches",
    sent="v and alpha after every step on `window` batches at once",
    pace="large batch",
)

LOCAL_SGDA = replace(
    CODA_PLUS,
    name="local_sgda",
    title="CoDA as Zhang et al. run it",
    family="compositional",
    paper="Zhang et al., NeurIPS 2023",
    where="baseline: local SGDA",
    variant="coda_plus, prox 0, last iterate",
    sent="x and y",
    options=MinMaxOptions,
    build=build_sgda,
    rule=None,
    can=AVERAGING,
)
