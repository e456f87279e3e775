"""FedExP. Jhunjhunwala, Wang, Joshi: "FedExP", ICLR 2023, Algorithm 1: the server extrapolates beyond the mean."""

from dataclasses import dataclass

from pydantic import Field

from chestfed.plugins import AlgorithmSpec, LocalStepAlgorithm, Options, Point, weighted_mean


class FedExPOptions(Options):
    epsilon: float = Field(
        1e-3, gt=0, description="limits the extrapolation", json_schema_extra={"search": [1e-4, 1.0, "log"]}
    )


@dataclass(frozen=True)
class FedExP(LocalStepAlgorithm):
    window: int
    local_lr: float
    epsilon: float

    def client_step(self, local, message, client, gradients):
        gradient, _ = gradients(local.primal, message.dual)
        local.primal.sub_(gradient, alpha=self.local_lr)

    def server_round(self, server, updates, weights):
        changes = [update.primal - server.primal for update in updates]
        mean = weighted_mean(changes, weights)  # 1/M is the weight of a client
        squares = weighted_mean([change.square().sum() for change in changes], weights)
        step = (squares / (2 * (mean.square().sum() + self.epsilon))).clamp(min=1)  # eq. 5
        return Point(server.primal + step * mean, server.dual)


FEDEXP = AlgorithmSpec(
    name="fedexp",
    title="FedExP",
    paper="Jhunjhunwala et al., ICLR 2023",
    where="Algorithm 1",
    options=FedExPOptions,
    build=lambda options, setting: FedExP(setting.window, setting.local_lr, options.epsilon),
    rule=FedExP,
)
