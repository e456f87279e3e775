"""FedProx: local steps on F_k(w) + mu/2 |w - w_r|^2, then averaging; with mu = 0 it is FedAvg.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm
2, with a fixed number of local steps; all clients take part, or those that are drawn (`clients_per_round`). The paper
draws them in proportion to their images and averages evenly; here they are drawn evenly and averaged with
`federated.weights`. FedAvg: McMahan et al., AISTATS 2017. The reference is the server's point of the round, not of the
stage as in CODA+; nothing else is kept from round to round, so that stages only change the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import Field

from chestfed.core import plugins
from chestfed.learning.abilities import AVERAGING
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, Stateless, descend_


@dataclass(frozen=True)
class FedProx(LocalStepAlgorithm[Point, Point, Stateless]):
    """`window` steps of size `local_lr` between two averages; `mu` pulls towards the server's point."""

    window: int
    local_lr: float
    mu: float = 0.0

    def client_step(self, local: Point, message: Point, client: Stateless, gradients: Gradients) -> None:
        """A step on the proximal loss."""
        w = local.primal
        gradient, _ = gradients(w, message.dual)
        descend_(w, self.local_lr, gradient, prox=self.mu, reference=message.primal)


class Options(plugins.Options):
    """Options of FedProx."""

    prox: float = Field(
        1e-3,
        ge=0,
        description="coefficient of the proximal term towards the round's start [mu]",
        json_schema_extra={"search": [1e-3, 1.0, "log"]},
    )


def build(options: Options, setting: Setting) -> FedProx:
    """The rule of one stage."""
    return FedProx(window=setting.window, local_lr=setting.local_lr, mu=options.prox)


def build_fedavg(options: plugins.Options, setting: Setting) -> FedProx:
    """FedProx without the proximal term."""
    return FedProx(window=setting.window, local_lr=setting.local_lr)


FEDPROX = AlgorithmSpec(
    name="fedprox",
    title="FedProx",
    paper="Li et al., MLSys 2020",
    where="Algorithm 2",
    takes=("minimization", "server-weighted"),
    exact="window 1",
    options=Options,
    build=build,
    rule=FedProx,
    can=AVERAGING,
)

FEDAVG = replace(
    FEDPROX,
    name="fedavg",
    title="FedAvg",
    variant="fedprox, prox 0",
    paper="McMahan et al., AISTATS 2017",
    where="Algorithm 1",
    options=plugins.Options,
    build=build_fedavg,
    rule=None,
)
