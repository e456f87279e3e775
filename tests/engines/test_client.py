"""A client with a network: weight decay, and running statistics of other weights than those that were trained."""

from __future__ import annotations

import torch
from torch import nn

from chestfed.core.errors import TrainingError
from chestfed.engines.client import NetworkClient
from chestfed.models import FlatModule
from chestfed.objectives.auc_margin import AucMargin
from tests.cases import assert_refused
from tests.engines.test_network_randomness import CPU, J, Sequence


class Numbered(Sequence):
    """Batches that differ: the second's images are twice the first's, and so on."""

    def next(self) -> object:  # type: ignore[override]
        batch = super().next()
        return type(batch)(batch.images * self.position, batch.labels)


def client(weight_decay: float = 0.0) -> NetworkClient:
    torch.manual_seed(0)
    network = FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.Linear(6, J)))
    objective = AucMargin(torch.full((J,), 0.5))
    return NetworkClient("a", Numbered(), network, objective, device=CPU, weight_decay=weight_decay)  # type: ignore[arg-type]


def test_weight_decay_acts_on_weights_only() -> None:
    plain, decayed = client(), client(0.3)
    primal = torch.cat([plain._network.parameters(), torch.ones(2 * J)])
    found = []
    for one in (plain, decayed):
        with one.training(one._network.buffers()):
            found.append(one.gradients(primal, torch.zeros(J))[0].clone())
    size = plain._network.size
    torch.testing.assert_close(found[1][:size], found[0][:size] + 0.3 * primal[:size])
    assert torch.equal(found[1][size:], found[0][size:])


def test_statistics_are_means_of_batches() -> None:
    one = client()
    norm = one._network.module[2]
    assert isinstance(norm, nn.BatchNorm1d)
    primal = 2 * one._network.parameters()  # not those that the network holds
    with one.training(torch.full_like(one._network.buffers(), 7.0)):
        one.gather_statistics(primal, 3)
        found = one.buffers()
    weight, bias = primal[: 48 * 6].view(6, 48), primal[48 * 6 : 49 * 6]
    batches = [one.batches.batch.images.flatten(1) * number @ weight.T + bias for number in (1, 2, 3)]  # type: ignore[attr-defined]
    expected = [torch.stack([part(batch) for batch in batches]).mean(dim=0) for part in (_mean, _variance)]
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-5, atol=1e-6)
    assert (one.images_seen, one.positions(), norm.momentum) == (3 * 8, [0], 0.1)


def test_batch_of_one_names_the_key() -> None:
    one = client()
    with one.training(one._network.buffers()), assert_refused(TrainingError, "batches too small"):
        one._logits(torch.zeros(1, 3, 4, 4))


def _mean(batch: torch.Tensor) -> torch.Tensor:
    return batch.mean(dim=0)


def _variance(batch: torch.Tensor) -> torch.Tensor:
    return batch.var(dim=0)
