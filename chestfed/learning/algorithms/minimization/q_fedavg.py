"""q-FedAvg: clients with a large loss count more, so that their losses become alike.

Li, Sanjabi, Beirami, Smith: "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2: it minimizes
sum_k p_k F_k^(q+1) / (q+1). With L = 1 / local_lr, D_k = L (x - w_k) and F_k the client's loss at x over all its
images, x moves by -sum_k p_k F_k^q D_k / sum_k p_k h_k, h_k = q F_k^(q-1) |D_k|^2 + L F_k^q. The paper's clients are
drawn in proportion to p_k; here p_k is the weight. With q = 0 it is FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field
from torch import Tensor

from chestfed.core import plugins
from chestfed.learning.abilities import Can
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, Stateless, mean_of


@dataclass(frozen=True)
class Local:
    """The client's weights in a round, and its loss at the start `[1]`."""

    primal: Tensor
    dual: Tensor
    loss: Tensor


@dataclass(frozen=True)
class Update:
    """F_k^q D_k, and h_k `[1]`."""

    primal: Tensor
    scale: Tensor


@dataclass(frozen=True)
class QFedAvg(LocalStepAlgorithm[Point, Point, Stateless]):
    """`window` steps of size `local_lr`; `q` is 0 for the mean loss, large for the worst."""

    window: int
    local_lr: float
    q: float

    def client_init(self, message: Point, client: Stateless, gradients: Gradients) -> Local:  # type: ignore[override]
        """The loss at x, over all images."""
        gradients.full(message.primal, message.dual)
        loss = gradients.loss.to(message.primal).reshape(1)
        return Local(message.primal.clone(), message.dual, loss.clamp(min=1e-10))

    def client_step(self, local: Local, message: Point, client: Stateless, gradients: Gradients) -> None:  # type: ignore[override]
        """A step of gradient descent."""
        w = local.primal
        w -= self.local_lr * gradients(w, message.dual)[0]

    def client_final(self, local: Local, message: Point, client: Stateless) -> tuple[Update, Stateless]:  # type: ignore[override]
        """The weighted change and its scale."""
        change, share = (message.primal - local.primal) / self.local_lr, local.loss**self.q
        scale = self.q * local.loss ** (self.q - 1) * change.square().sum() + share / self.local_lr
        return Update(share * change, scale), client

    def server_round(self, server: Point, updates: Sequence[Update], weights: Sequence[float]) -> Point:  # type: ignore[override]
        """X minus the summed changes over the summed scales."""
        mean = mean_of(updates, weights)
        return Point(server.primal - mean.primal / mean.scale, server.dual)


class Options(plugins.Options):
    """Options of q-FedAvg."""

    q: float = Field(
        1.0,
        ge=0,
        description="how much clients with a large loss count; 0: as FedAvg [q]",
        json_schema_extra={"search": [0.01, 5.0, "log"]},
    )


def build(options: Options, setting: Setting) -> QFedAvg:
    """The rule of one stage."""
    return QFedAvg(setting.window, setting.local_lr, options.q)


Q_FEDAVG = AlgorithmSpec(
    name="q_fedavg",
    title="q-FedAvg",
    paper="Li et al., ICLR 2020",
    where="Algorithm 2",
    sends="d + 1",
    sent="the change of w weighted by the loss, and its scale",
    note="another objective than the mean loss",
    gradients="I + F",
    options=Options,
    build=build,
    rule=QFedAvg,
    can=frozenset({Can.SOME_CLIENTS}),
)
