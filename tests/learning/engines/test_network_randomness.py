"""Networks that draw random numbers in training: the numbers are a function of the batch, not of what ran before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.cross_entropy import CrossEntropy

CPU = torch.device("cpu")
J = 2


@dataclass(frozen=True)
class Constant:
    """The same images in every batch, so that only the random numbers differ."""

    images: Tensor
    labels: Tensor
    rows: Tensor = field(default_factory=lambda: torch.arange(8))


class Sequence:
    """An endless sequence of one batch."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.batch = Constant(torch.randn(8, 3, 4, 4, generator=draw), torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 4))
        self.position = 0

    def next(self) -> Constant:
        self.position += 1
        return self.batch

    def seek(self, position: int) -> None:
        self.position = position

    def whole(self) -> Iterator[Constant]:
        yield self.batch

    def close(self) -> None: ...


class Depth(nn.Module):
    """Stochastic depth from NumPy's and Python's global generators."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (np.random.rand() + random.random()) if self.training else x  # noqa: NPY002


class Noisy(CrossEntropy):
    """A loss that draws."""

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        return super().loss(logits + torch.randn_like(logits), labels, extra, dual)


def make_client(
    name: str = "a", seed: int = 1, objective: object = None, layers: nn.Module | None = None, **more: Any
) -> NetworkClient:
    torch.manual_seed(0)
    layers = layers or nn.Sequential(
        nn.Flatten(), nn.Linear(48, 6), nn.Dropout(0.5), Depth(), nn.ReLU(), nn.Linear(6, J)
    )
    return NetworkClient(
        name,
        Sequence(),
        FlatModule(layers),
        objective or CrossEntropy(),
        device=CPU,
        seed=seed,  # type: ignore[arg-type]
        **more,
    )


def gradients(client: NetworkClient, count: int) -> list[Tensor]:
    start, none = torch.cat([client._network.parameters()]), torch.zeros(0)
    with client.training(client._network.buffers()):
        return [client(start, none)[0].clone() for _ in range(count)]


def test_draws_follow_seed_client_and_batch() -> None:
    whole = gradients(make_client(), 4)
    assert len({tuple(part.tolist()) for part in whole}) == 4
    resumed = make_client()
    resumed.seek([2])
    torch.rand(7)
    np.random.rand(7)  # noqa: NPY002
    assert all(torch.equal(a, b) for a, b in zip(gradients(resumed, 2), whole[2:], strict=True))
    assert not torch.equal(gradients(make_client("b"), 1)[0], whole[0])
    assert not torch.equal(gradients(make_client(seed=2), 1)[0], whole[0])


def test_training_keeps_global_generators() -> None:
    client = make_client()
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    expected = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    gradients(client, 2)
    assert (torch.rand(1), np.random.rand(), random.random()) == expected  # noqa: NPY002


def test_loss_that_says_so_draws_of_its_own() -> None:
    def ends(loss_draws: bool) -> list[Tensor]:
        layers = nn.Sequential(nn.Flatten(), nn.Linear(48, J))
        client = make_client(objective=Noisy(), layers=layers, loss_draws=loss_draws)
        first = gradients(client, 1)
        client.seek([0])
        return [*first, *gradients(client, 1)]

    first, again = ends(True)
    assert torch.equal(first, again)
    first, again = ends(False)
    assert not torch.equal(first, again)
