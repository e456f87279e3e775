"""A method of your own on tensors of your own: any images, one data set per client."""

import torch
from torch.utils.data import TensorDataset

import chestfed
from chestfed.plugins import AlgorithmSpec, LocalStepAlgorithm


class SignSGD(LocalStepAlgorithm):
    """Local steps along the sign of the gradient, then averaging."""

    def __init__(self, window: int, local_lr: float) -> None:
        self.window, self.local_lr = window, local_lr

    def client_step(self, local, message, client, gradients) -> None:
        gradient, _ = gradients(local.primal, message.dual)
        local.primal.sub_(self.local_lr * gradient.sign())


SIGN = AlgorithmSpec(
    name="sign_sgd", title="Sign SGD", paper="-", where="-", rule=SignSGD,
    build=lambda options, setting: SignSGD(setting.window, setting.local_lr / 100),
)  # fmt: skip


def make_hospital(count: int, seed: int) -> TensorDataset:
    """Gray images uint8 `[n, 16, 16]`, brighter in the middle where the label is 1."""
    labels = torch.arange(count) % 2
    images = torch.rand(count, 16, 16, generator=torch.Generator().manual_seed(seed)) * 0.7
    images[:, 5:11, 5:11] += 0.3 * labels[:, None, None]
    return TensorDataset((255 * images).byte(), labels)


if __name__ == "__main__":
    clients = [make_hospital(48, seed) for seed in range(3)]
    short = ["federated.stages=1", "federated.stage_steps=32", "federated.window=8", "federated.batch_size=16"]
    data = {"clients": clients, "test": make_hospital(200, 99), "tasks": ["bright"]}
    print(chestfed.run(methods=[SIGN, "fedavg"], **data, overrides=short, quiet=True).table(wide=True))
