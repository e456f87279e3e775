"""Batch normalization of a batch that ranks share: a step of theirs is that of one process with the whole batch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chestfed.core.errors import TrainingError
from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import TrainBatches
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.parts import Parts
from chestfed.learning.engines.ranks.link import Link
from chestfed.learning.engines.ranks.parts import RankParts, make_parts
from chestfed.learning.models import FlatModule, ModelOptions, ModelSpec, convert_numbers
from tests.cases import assert_refused
from tests.learning.engines.forked_ranks import run_ranks
from tests.learning.engines.test_client import FilmsByRow
from tests.learning.engines.test_network_randomness import CPU, J
from tests.learning.engines.test_parts import Pairs, compute


class Activated(nn.BatchNorm2d):
    """Batch normalization with a step of its own."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).relu()


def build(options: ModelOptions, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), Activated(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, outputs))


ACTIVATED = ModelSpec("activated", "Activated", ModelOptions, build)


def share(link: Link) -> RankParts:
    parts = make_parts(16, link, range(link.size), synchronized=True)
    assert isinstance(parts, RankParts)
    return parts


def make_client(parts: Parts | None, dtype: torch.dtype, recomputed: str = "") -> NetworkClient:
    """Of batches of seven images; the last of all 24 has three."""
    labels = torch.rand(24, J, generator=torch.Generator().manual_seed(1)).round().numpy()
    select = parts.select if parts else None
    batches = TrainBatches(
        FilmsByRow(), labels, np.ones(24, np.int64), batch_size=7, seed=1, name="a", augment=Augment(), share=select
    )
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, momentum=None), nn.ReLU())
    first = nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), block
    last = nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, J)
    module = nn.Sequential(*first, *last)
    convert_numbers(module, dtype)
    network = FlatModule(module, channels_last=True, recomputed=recomputed)
    return NetworkClient("a", batches, network, Pairs(torch.full((J,), 0.5, dtype=dtype)), device=CPU, parts=parts)


def run(client: NetworkClient) -> list[Tensor]:
    """Gradients, losses and dual variables, and the running statistics after them and taken anew."""
    network, found = client._network, []
    primal = torch.cat([network.parameters(), network.grad.new_ones(2 * J)])
    with client.training(network.buffers()):
        found += [*client(primal, network.grad.new_ones(J)), network.buffers()]
        client.gather_statistics(primal, 2)
        found.append(network.buffers())
    assert all("forward" not in vars(part) for part in network.module.modules() if isinstance(part, nn.BatchNorm2d))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("dtype", "apart"), [(torch.float64, 1e-12), (torch.float32, 4e-6)])
def test_ranks_step_as_one_process(dtype: torch.dtype, apart: float, ranks: int, tmp_path: Path) -> None:
    """In float32 either is about 2e-6 from the gradient in float64."""

    def work(link: Link) -> list[Tensor]:
        return run(make_client(share(link), dtype))

    expected = run(make_client(None, dtype))
    first, *others = run_ranks(tmp_path, ranks, work)
    for other in others:
        assert all(map(torch.equal, first, other))
    for got, due in zip(first, expected, strict=True):
        assert float((got - due).norm()) < apart * max(1.0, float(due.norm()))


def pass_over_three(parts: Parts | None) -> list[Tensor]:
    """All calls of a client of three images, with activations that are computed twice if it has parts."""
    client = make_client(parts, torch.float64, "4" if parts else "")
    client.batches._rows = client.batches._rows[:3]  # type: ignore[attr-defined]
    return compute(client)


def test_passes_with_an_empty_share_are_right(tmp_path: Path) -> None:
    found = run_ranks(tmp_path, 4, lambda link: pass_over_three(share(link)))
    for got, due in zip(found[3], pass_over_three(None), strict=True):
        assert float((got - due).double().norm()) < 1e-12 * max(1.0, float(due.double().norm()))


def differentiate(link: Link | None, lengths: list[int], dtype: torch.dtype) -> list[Tensor]:
    """Output and gradients of this rank, and running statistics, of channels that lie far from 0."""
    numbers = torch.Generator().manual_seed(2)
    values, slope = (torch.randn(sum(lengths), 3, 2, 5, generator=numbers, dtype=torch.float64) for _ in range(2))
    values = values + torch.tensor([-300.0, 0.0, 1000.0])[:, None, None]
    norm = nn.BatchNorm2d(3).to(dtype)
    torch.nn.init.normal_(norm.weight, generator=numbers)
    if link is None:
        image = values.to(dtype).requires_grad_()
        result = norm(image)
    else:
        image, slope = values.split(lengths)[link.rank].to(dtype).requires_grad_(), slope.split(lengths)[link.rank]
        with share(link).synchronize(norm):
            result = norm(image)
    slopes = torch.autograd.grad((result * slope).sum(), [image, *norm.parameters()])
    return [result.detach(), *slopes, *(buffer.double() for buffer in norm.buffers())]


def test_layer_differentiates_as_undivided(tmp_path: Path) -> None:
    lengths = [5, 0, 2, 1]
    expected = differentiate(None, lengths, torch.float64)
    for dtype, apart in ((torch.float64, 1e-12), (torch.float32, 2e-4)):  # float32 holds 1000 to 6e-5
        found = run_ranks(tmp_path, 4, partial(differentiate, lengths=lengths, dtype=dtype))
        for number, due in enumerate(expected):
            parts = [found[rank][number] for rank in range(4)]
            got = torch.cat(parts) if number < 2 else sum(parts) if number < 4 else parts[1]
            assert float((got - due).abs().max()) < apart * max(1.0, float(due.abs().max()))


def test_one_value_per_channel_is_refused(tmp_path: Path) -> None:
    def work(link: Link) -> Any:
        client = make_client(share(link), torch.float32)
        client.batches._rows = client.batches._rows[:1]  # type: ignore[attr-defined]
        primal = torch.cat([client._network.parameters(), torch.ones(2 * J)])
        with client.training(client._network.buffers()):
            return client.full(primal, torch.ones(J))

    for error in run_ranks(tmp_path, 2, work):
        with assert_refused(TrainingError, "batches too small"):
            raise error
