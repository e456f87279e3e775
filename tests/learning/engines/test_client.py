"""A client with a network: weight decay, and running statistics of other weights than those that were trained."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import nn

from chestfed.core.errors import TrainingError
from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import TrainBatches, normalize
from chestfed.learning.algorithms.declaration import Setting
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule, NetworkGroups, build_model, find_classifier, network_options
from chestfed.learning.objectives.auc_margin import AucMargin
from tests.cases import assert_refused
from tests.learning.engines.small_teams import Films
from tests.learning.engines.test_network_randomness import CPU, J, Sequence


class Numbered(Sequence):
    """Batches that differ: the second's images are twice the first's, and so on."""

    def next(self) -> object:  # type: ignore[override]
        batch = super().next()
        return type(batch)(batch.images * self.position, batch.labels)


def make_client(weight_decay: float = 0.0) -> NetworkClient:
    torch.manual_seed(0)
    network = FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.Linear(6, J)))
    objective = AucMargin(torch.full((J,), 0.5))
    return NetworkClient("a", Numbered(), network, objective, device=CPU, weight_decay=weight_decay)  # type: ignore[arg-type]


def test_weight_decay_acts_on_weights_only() -> None:
    plain, decayed = make_client(), make_client(0.3)
    primal = torch.cat([plain._network.parameters(), torch.ones(2 * J)])
    gradients = []
    for client in (plain, decayed):
        with client.training(client._network.buffers()):
            gradients.append(client(primal, torch.zeros(J))[0].clone())
    size = plain._network.size
    torch.testing.assert_close(gradients[1][:size], gradients[0][:size] + 0.3 * primal[:size])
    assert torch.equal(gradients[1][size:], gradients[0][size:])


def test_statistics_are_means_of_batches() -> None:
    client = make_client()
    norm = client._network.module[2]
    assert isinstance(norm, nn.BatchNorm1d)
    primal = 2 * client._network.parameters()  # not those that the network holds
    with client.training(torch.full_like(client._network.buffers(), 7.0)):
        client.gather_statistics(primal, 3)
        buffers = client.buffers()
    weight, bias = primal[: 48 * 6].view(6, 48), primal[48 * 6 : 49 * 6]
    batches = [client.batches.batch.images.flatten(1) * number @ weight.T + bias for number in (1, 2, 3)]  # type: ignore[attr-defined]
    expected = [torch.stack([part(batch) for batch in batches]).mean(dim=0) for part in (_mean, _variance)]
    torch.testing.assert_close(buffers, torch.cat(expected), rtol=1e-5, atol=1e-6)
    assert (client.images_seen, client.positions(), norm.momentum) == (3 * 8, [0], 0.1)


def test_batch_of_one_names_the_key() -> None:
    client = make_client()
    with client.training(client._network.buffers()), assert_refused(TrainingError, "batches too small"):
        client._logits(torch.zeros(1, 3, 4, 4))


def test_first_that_is_not_finite_is_named() -> None:
    client = make_client()
    primal, dual = torch.cat([client._network.parameters(), torch.ones(2 * J)]), torch.zeros(J)
    weights, variables = primal.clone(), primal.clone()
    weights[0], variables[-1] = torch.nan, torch.inf
    with client.training(client._network.buffers()):
        names = [client.find_not_finite(point, dual) for point in (primal, weights, variables)]
        client.batches.batch.images[0] = torch.nan  # type: ignore[attr-defined]
        names.append(client.find_not_finite(primal, dual))
    assert names == ["", "logits", "loss", "images"]


def _mean(batch: torch.Tensor) -> torch.Tensor:
    return batch.mean(dim=0)


def _variance(batch: torch.Tensor) -> torch.Tensor:
    return batch.var(dim=0)


def test_batch_is_repeated_or_averaged() -> None:
    client = make_client()
    primal, dual = torch.cat([client._network.parameters(), torch.ones(2 * J)]), torch.zeros(J)
    with client.training(client._network.buffers()):
        first, statistics = client(primal, dual)[0].clone(), client.buffers()
        assert torch.equal(client.again(primal, dual)[0], first)
        assert torch.equal(client.buffers(), statistics)  # they have seen the batch once
        parts = [client(primal, dual)[0].clone() for _ in range(2)]
        assert (client.gradients_computed, client.images_seen, client.positions()) == (4, 3 * 8, [3])
        client.seek([1])
        torch.testing.assert_close(client.over(primal, dual, 2)[0], (parts[0] + parts[1]) / 2)
    with client.training(client._network.buffers()), pytest.raises(TypeError, match="no batch was drawn"):
        client.again(primal, dual)


class FilmsByRow(Films):
    """An image depends on its row alone."""

    def read(self, rows: Iterable[int]) -> np.ndarray:
        return np.concatenate([super(FilmsByRow, self).read([row]) for row in rows])


def test_full_pass_takes_every_image_once() -> None:
    films, labels = FilmsByRow(), torch.rand(24, J, generator=torch.Generator().manual_seed(1)).round()
    batches = TrainBatches(
        films, labels.numpy(), np.ones(24, np.int64), batch_size=7, seed=1, name="a", augment=Augment(), workers=0
    )
    network = FlatModule(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, J)))
    client = NetworkClient("a", batches, network, AucMargin(torch.full((J,), 0.5)), device=CPU)
    primal, dual = torch.cat([network.parameters(), torch.ones(2 * J)]), torch.ones(J)
    with client.training(network.buffers()):
        gradient = client.full(primal, dual)[0]
        assert (client.gradients_computed, client.images_seen, client.positions()) == (4, 24, [0])
    assert client.rows.tolist() == list(range(18, 24))  # of the last part
    logits = network.call(primal.requires_grad_(), normalize(films.read(range(24))))
    loss = client._objective.loss(logits, labels, primal[network.size :], dual)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, primal)[0])


def test_streams_differ_by_purpose_and_batch() -> None:
    client = make_client()

    def draw(purpose: str) -> float:
        return float(torch.rand((), generator=client.stream(purpose)))

    first = draw("a")
    assert draw("a") == first != draw("b")
    client.batches.next()
    assert draw("a") != first
    client.seek([0])
    assert draw("a") == first


def test_groups_are_all_weights_once() -> None:
    for name, norms in (("resnet20", True), ("small", True)):
        options = network_options(name)
        groups = NetworkGroups(options, 3)
        network = FlatModule(build_model(options, 3, 0))
        marks = torch.zeros(network.size)
        for cuts in groups.values():
            for cut in cuts:
                marks[cut] += 1
        assert torch.equal(marks, torch.ones(network.size))
        assert bool(groups["normalization"]) == norms
        layer = find_classifier(network.module, options, 3)[1]
        flat = network.parameters()
        assert sum(cut.stop - cut.start for cut in groups["classifier"]) == sum(p.numel() for p in layer.parameters())
        assert torch.equal(flat[groups["classifier"][0]][: layer.weight.numel()], layer.weight.detach().reshape(-1))  # type: ignore[operator,union-attr,arg-type]
    with pytest.raises(TypeError, match="unknown network"):
        Setting(1, 0.1).groups["classifier"]
