"""LocalSCGDAM: compositional descent ascent with momentum and local steps.

Zhang, Zhang, Yang, Souvenir, Gao: "Federated Compositional Deep AUC Maximization", NeurIPS 2023, Algorithm 1, for
min over x, max over y of f(g(x), y), where g and f are means over the clients and their data. For deep AUC
maximization x = (w, a, b), g(x) = (w - rho grad L_CE(w), a, b) and f is the AUC square loss. h follows g(x) as a moving
average, because a batch's g(x) inside f would be biased.

In the paper's symbols: `local_lr` = gamma_x eta, `dual_lr` = gamma_y eta, `inner_rate` = alpha eta, `primal_rate` =
beta_x eta, `dual_rate` = beta_y eta. The printed algorithm's line on communication is garbled; its text says that h,
the model and the momentum are averaged, which is what is done. The gradient of f goes back through g exactly, with the
Hessian of the cross-entropy: LibAUC's PDSCA leaves that out and is another method. The paper has no stages: with
`stages` above 1 h, u and v start anew at each, as at the beginning. `stages: 1` is the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from chestfed.leaves.compositional import local_sgdam
from chestfed.leaves.compositional.local_sgdam import Client
from chestfed.plugins import Algorithm, AlgorithmSpec, Can, CompositionalGradients, Point, Setting, mean_of


@dataclass(frozen=True)
class State:
    """x, y, h and the moving averages u and v of the gradients: 3d + 8J numbers each way."""

    primal: Tensor
    dual: Tensor
    inner: Tensor
    primal_momentum: Tensor
    dual_momentum: Tensor


@dataclass(frozen=True)
class LocalScgdam(Algorithm[State, State, Client]):
    """`window` steps between two averages of everything."""

    window: int
    local_lr: float
    dual_lr: float | Tensor
    inner_rate: float = 0.9
    primal_rate: float = 0.1
    dual_rate: float = 0.1

    def start_stage(self, point: Point) -> State:
        """Start at the point; the averages are the clients' to begin."""
        zero, zero_dual = torch.zeros_like(point.primal), torch.zeros_like(point.dual)
        return State(point.primal, point.dual, point.primal, zero, zero_dual)

    def start_client(self, point: Point) -> Client:
        """No round yet."""
        return Client(torch.zeros((), dtype=torch.int64))

    def local_round(  # type: ignore[override]  # `compositional` objectives have another kind of gradients
        self, message: State, client: Client, oracle: CompositionalGradients
    ) -> tuple[State, Client]:
        """`window` steps along the averages; then h, and the gradients at h and the new y, are refreshed."""
        x, y, h = message.primal.clone(), message.dual.clone(), message.inner.clone()
        u, v = message.primal_momentum.clone(), message.dual_momentum.clone()
        if client.rounds == 0:
            h = oracle.inner(x).clone()
            grad_h, grad_y = oracle.outer(h, y)
            u, v = oracle.pull_back(grad_h).clone(), grad_y.clone()

        for _ in range(self.window):
            x -= self.local_lr * u
            y += self.dual_lr * v
            h = (1 - self.inner_rate) * h + self.inner_rate * oracle.inner(x)
            grad_h, grad_y = oracle.outer(h, y)
            u = (1 - self.primal_rate) * u + self.primal_rate * oracle.pull_back(grad_h)
            v = (1 - self.dual_rate) * v + self.dual_rate * grad_y

        return State(x, y, h, u, v), Client(client.rounds + 1)

    def server_round(self, server: State, updates: Sequence[State], weights: Sequence[float]) -> State:
        """Average points, h and gradient averages."""
        return mean_of(updates, weights)


class Options(local_sgdam.Options):
    """Options of LocalSCGDAM."""

    inner_rate: float = Field(
        0.9,
        gt=0,
        le=1,
        description="rate of the moving average h [alpha eta]",
        json_schema_extra={"search": [0.1, 0.95, "linear"]},
    )


def build(options: Options, setting: Setting) -> LocalScgdam:
    """The rule of one stage."""
    rate = options.momentum_rate
    return LocalScgdam(
        window=setting.window,
        local_lr=setting.local_lr,
        dual_lr=options.dual_step_size(setting),
        inner_rate=options.inner_rate,
        primal_rate=rate,
        dual_rate=rate,
    )


LOCAL_SCGDAM = AlgorithmSpec(
    name="local_scgdam",
    title="LocalSCGDAM",
    family="compositional",
    paper="Zhang et al., NeurIPS 2023",
    where="Algorithm 1, exact J'q",
    takes=("compositional",),
    objective="compositional_auc",
    sends="3d + 8J",
    sent="x, y, h and two gradient averages",
    exact="window 1",
    options=Options,
    build=build,
    rule=LocalScgdam,
    can=frozenset({Can.SOME_CLIENTS}),
    gradients="3I",
    note="off the optimum also where the clients' inner functions differ",
)
