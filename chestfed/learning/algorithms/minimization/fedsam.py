"""FedSAM: local steps along the gradient at the worst point nearby, on the same batch.

Qu, Li, Duan, Liu, Tang, Lu: "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022, Algorithm 1;
Caldarola, Caputo, Ciccone, ECCV 2022. A step takes two gradients on one batch; with rho = 0 it is FedAvg's.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from chestfed.core import plugins
from chestfed.learning.abilities import AVERAGING
from chestfed.learning.algorithms.declaration import AlgorithmSpec, Setting
from chestfed.learning.algorithms.variables import Gradients, LocalStepAlgorithm, Point, Stateless


@dataclass(frozen=True)
class FedSam(LocalStepAlgorithm[Point, Point, Stateless]):
    """`window` steps of size `local_lr`; `rho` is the radius of the neighborhood."""

    window: int
    local_lr: float
    rho: float

    def client_step(self, local: Point, message: Point, client: Stateless, gradients: Gradients) -> None:
        """W -= lr g(w + rho g(w) / |g(w)|)."""
        w = local.primal
        gradient, _ = gradients(w, message.dual)
        norm = gradient.norm().clamp(min=1e-12)  # at a stationary point of the batch there is no direction
        worst, _ = gradients.again(w + self.rho / norm * gradient, message.dual)
        w -= self.local_lr * worst


class Options(plugins.Options):
    """Options of FedSAM."""

    rho: float = Field(
        0.05,
        ge=0,
        description="radius of the neighborhood in which the gradient is taken at the worst point [rho]",
        json_schema_extra={"search": [1e-2, 0.5, "log"]},
    )


def build(options: Options, setting: Setting) -> FedSam:
    """The rule of one stage."""
    return FedSam(setting.window, setting.local_lr, options.rho)


FEDSAM = AlgorithmSpec(
    name="fedsam",
    title="FedSAM",
    paper="Qu et al., ICML 2022",
    where="Algorithm 1",
    takes=("minimization", "server-weighted"),
    gradients="2I",
    options=Options,
    build=build,
    rule=FedSam,
    can=AVERAGING,
)
