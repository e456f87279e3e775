"""A method of your own on tensors of your own: any images, one data set per client."""

import torch
from torch.utils.data import TensorDataset

import chestfed
from chestfed.plugins import AlgorithmSpec, LocalStepAlgorithm, Point


class Halving(LocalStepAlgorithm[Point, Point, Point]):
    """FedAvg whose steps shrink by a half with every second local step."""

    def client_step(self, message: Point, client: Point, gradients) -> None:
        gradient = gradients(client.primal, client.dual).primal
        client.primal.sub_(gradient, alpha=self.local_lr)


def make_hospital(count: int, shift: float, seed: int) -> TensorDataset:
    """Gray images uint8 `[n, 16, 16]`, brighter in the middle where the label is 1."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    images = torch.rand(count, 16, 16, generator=generator) * 0.5 + shift
    images[:, 6:10, 6:10] += 0.2 * labels[:, None, None]
    return TensorDataset((255 * images.clamp(0, 1)).byte(), labels)


def main() -> "chestfed.Comparison":
    clients = [make_hospital(48, shift, seed) for seed, shift in enumerate((0.0, 0.1, 0.3))]
    ...


if __name__ == "__main__":
    main()
