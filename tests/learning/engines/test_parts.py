"""Parts of a batch: the loss of the whole, and gradients that differ from it in the last bits alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chestfed.core.errors import ConfigError
from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import TrainBatches
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.parts import Parts
from chestfed.learning.engines.ranks.link import Link
from chestfed.learning.engines.ranks.parts import find_team, make_parts
from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.auc_margin import AucMargin
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.pipeline import Runtime
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.experiment.rules import check_runs
from chestfed.studies.training.identity import identify_settings
from tests.cases import assert_refused
from tests.learning.engines.forked_ranks import run_ranks
from tests.learning.engines.test_client import FilmsByRow
from tests.learning.engines.test_network_randomness import CPU, J
from tests.studies.training.test_resume_algorithms import make_pipeline

MACHINE = prepare_machine(Runtime(device="cpu", threads=1))


class Pairs(AucMargin):
    """A loss of pairs of images, which is no mean over images."""

    def loss(self, logits: Tensor, labels: Tensor, extra: Tensor, dual: Tensor) -> Tensor:
        gaps = logits[:, None] - logits[None]
        return gaps.tanh().square().mean() + super().loss(logits, labels, extra, dual)


def make_client(parts: Parts | None, dropout: float = 0.0) -> NetworkClient:
    labels = torch.rand(24, J, generator=torch.Generator().manual_seed(1)).round().numpy()
    repeats, share = np.ones(24, np.int64), parts.select if parts else None
    batches = TrainBatches(
        FilmsByRow(), labels, repeats, batch_size=7, seed=1, name="a", augment=Augment(), share=share, workers=0
    )
    torch.manual_seed(0)
    network = FlatModule(nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(3 * 32 * 32, J)))
    return NetworkClient("a", batches, network, Pairs(torch.full((J,), 0.5)), device=CPU, parts=parts)


def compute(client: NetworkClient) -> list[Tensor]:
    """Gradients of two batches, of all images, and the best dual variables."""
    primal, dual = torch.cat([client._network.parameters(), torch.ones(2 * J)]), torch.ones(J)
    found = []
    with client.training(client._network.buffers()):
        for call in (client, client.again, client, client.full):
            found += [part.clone() for part in call(primal, dual)]
            found.append(client.loss.clone())
        found.append(client.best_dual(primal, dual, 2))
    return [*found, torch.tensor(client.images_seen)]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_parts_have_the_loss_of_the_batch(count: int) -> None:
    for part, whole in zip(compute(make_client(Parts(count))), compute(make_client(None)), strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("ranks", "count"), [(2, 2), (2, 3), (4, 7)])
def test_ranks_compute_the_bits_of_one(ranks: int, count: int, tmp_path: Path) -> None:
    """With dropout, which each part draws for itself; of three parts on two ranks one has two."""

    def work(link: Link) -> list[bytes]:
        return to_bytes(lambda: make_parts(count, link, range(ranks)))

    expected = to_bytes(lambda: Parts(count))
    assert run_ranks(tmp_path, ranks, work) == [expected] * ranks


def to_bytes(make: Callable[[], Parts | None]) -> list[bytes]:
    return [part.numpy().tobytes() for part in compute(make_client(make(), dropout=0.5))]


def test_more_parts_than_images_are_empty() -> None:
    parts = Parts(3)
    assert parts.lengths(2) == [1, 1, 0]
    client = make_client(parts)
    client.batches._rows = client.batches._rows[:2]  # type: ignore[attr-defined]
    primal, dual = torch.cat([client._network.parameters(), torch.ones(2 * J)]), torch.ones(J)
    with client.training(client._network.buffers()):
        assert client.full(primal, dual)[0].isfinite().all()


@pytest.mark.parametrize(("clients", "ranks", "parts"), [(5, 2, 4), (5, 5, 4), (5, 8, 4), (2, 8, 3), (1, 4, 4)])
def test_ranks_are_dealt_to_clients(clients: int, ranks: int, parts: int) -> None:
    teams = [find_team(number, clients, ranks, parts) for number in range(clients)]
    sizes = [len(team) for team in teams]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == min(parts, max(1, -(-ranks // clients)))
    taken = [rank for team in teams for rank in team]
    assert ranks < clients or len(set(taken)) == len(taken)
    assert all(team == sorted(team) for team in teams)


def test_parts_are_another_run() -> None:
    plain, parted = (make_pipeline("codasca", f"runtime.batch_parts={count}") for count in (1, 2))
    assert identity(plain) == identity(make_pipeline("codasca"))
    assert identity(parted) != identity(plain)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("coda", ["model.norm=batch", "runtime.batch_parts=2"]),
        ("codasca", ["model.norm=group", "runtime.batch_parts=5"]),
        ("codasca", ["model.norm=group", "runtime.batch_parts=2", "runtime.compile=true"]),
    ],
)
def test_parts_that_are_impossible_are_refused(method: str, settings: list[str]) -> None:
    with assert_refused(ConfigError, "invalid configuration", keys=["runtime.batch_parts"]):
        check_runs([make_pipeline(method, *settings)])


@pytest.mark.parametrize(
    "settings",
    [
        ["model.norm=batch"],
        ["model.norm=group", "runtime.batch_parts=2"],
        ["model={name: tests.learning.engines.test_rank_norms:ACTIVATED}", "runtime.batch_parts=2"],
    ],
)
def test_sync_batch_norm_without_use_is_refused(settings: list[str]) -> None:
    with assert_refused(ConfigError, "invalid configuration", keys=["runtime.sync_batch_norm"]):
        check_runs([make_pipeline("coda", "runtime.sync_batch_norm=true", *settings)])


def test_sync_batch_norm_keeps_batch_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["runtime.batch_parts=2", "runtime.sync_batch_norm=true"]
    pipeline = make_pipeline("coda", "model.norm=auto", *settings)
    check_runs([pipeline])
    assert getattr(pipeline.model, "norm", "") == "batch"
    alone = identify_settings(pipeline, MACHINE).settings
    for name, value in {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert identify_settings(pipeline, MACHINE).settings != alone
