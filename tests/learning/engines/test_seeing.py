"""Objectives that see features and other models, the examples: MOON, FedDecorr and FedProto, against plain loops."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from chestfed.core.errors import ConfigError
from chestfed.learning.algorithms.variables import Point
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.engines.messages.requests import NOTHING
from chestfed.learning.models import FlatModule
from chestfed.learning.objectives.declaration import Population
from chestfed.testing import check_objective

ROOT = Path(__file__).parents[3]
LR = 0.3


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/examples/own_method/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Batch:
    images: Tensor
    labels: Tensor
    rows: Tensor


@dataclass
class Batches:
    """The same six batches again and again."""

    position: int = 0
    batches: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = torch.Generator().manual_seed(3)
        for _ in range(6):
            images = torch.randn(5, 4, generator=draw, dtype=torch.float64)
            labels = (torch.rand(5, 2, generator=draw) < 0.5).double()
            self.batches.append(Batch(images, labels, torch.arange(5)))

    def next(self) -> Batch:
        self.position += 1
        return self.batches[(self.position - 1) % 6]

    def seek(self, position: int) -> None:
        self.position = position

    def whole(self) -> Iterator[Batch]:
        return iter(self.batches)

    def close(self) -> None:
        pass


def make_network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def build(declaration: Any, **options: float) -> Any:
    ratio = torch.full((2,), 0.5, dtype=torch.float64)
    return declaration.build(declaration.options(**options), Population(ratio, ratio[None]))


def train(objective: Any, rounds: int, kind: type[NetworkClient] = NetworkClient) -> tuple[list[Tensor], NetworkClient]:
    """Weights after each round of two local steps; rounds start from the last one's end plus 0.01."""
    network = FlatModule(make_network())
    client = kind("c", Batches(), network, objective, device=torch.device("cpu"), samples=5, loss_draws=False)
    ends = [network.parameters()]
    for _ in range(rounds):
        v = ends[-1] + 0.01
        with client.training(torch.zeros(0), NOTHING):
            for _ in range(2):
                gradient, _ = client(v, torch.zeros(0, dtype=torch.float64))
                v -= LR * gradient
        ends.append(v.clone())
    return ends[1:], client


def run_plainly(loss: Any, rounds: int) -> list[Tensor]:
    """The same with autograd alone; `loss(logits, labels, z, start z, previous z)`."""

    def forward(flat: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        parts = flat.split([12, 3, 6, 2])
        z = torch.tanh(images @ parts[0].view(3, 4).T + parts[1])
        return z @ parts[2].view(2, 3).T + parts[3], z

    batches = Batches()
    ends = [torch.cat([part.detach().reshape(-1) for part in make_network().parameters()])]
    previous = None
    for _ in range(rounds):
        v = ends[-1] + 0.01
        start = v.clone()
        for _ in range(2):
            batch = batches.next()
            w = v.clone().requires_grad_()
            logits, z = forward(w, batch.images)
            z_start = forward(start, batch.images)[1].detach()
            z_previous = z_start if previous is None else forward(previous, batch.images)[1].detach()
            loss(logits, batch.labels, z, z_start, z_previous).backward()
            assert w.grad is not None
            v = v - LR * w.grad
        previous = v
        ends.append(v)
    return ends[1:]


def moon(logits: Tensor, labels: Tensor, z: Tensor, start: Tensor, previous: Tensor) -> Tensor:
    def likeness(other: Tensor) -> Tensor:
        return (z * other).sum(1) / z.norm(dim=1) / other.norm(dim=1) / 0.5

    near, far = likeness(start).exp(), likeness(previous).exp()
    return functional.binary_cross_entropy_with_logits(logits, labels) + 2.0 * -(near / (near + far)).log().mean()


def feddecorr(logits: Tensor, labels: Tensor, z: Tensor, *_: Tensor) -> Tensor:
    covariance = torch.cov(z.T, correction=0)
    deviations = (covariance.diagonal() + 1e-8).sqrt()  # as published
    correlations = covariance / deviations[:, None] / deviations
    return functional.binary_cross_entropy_with_logits(logits, labels) + 0.7 * correlations.square().mean()


@pytest.mark.parametrize("name", ["moon", "feddecorr"])
def test_examples_keep_the_contract(name: str) -> None:
    assert len(check_objective(getattr(load(name), name.upper()))) == 12


def test_objective_that_ignores_features_breaks_it() -> None:
    from dataclasses import replace

    from chestfed.testing.contract import ContractError

    moon = load("moon")
    deaf = replace(moon.MOON, build=lambda options, population: build(moon.MOON, mu=0.0))
    with pytest.raises(ContractError, match="no difference"):
        check_objective(deaf)


def test_other_objectives_see_nothing() -> None:
    from chestfed.learning.objectives.cross_entropy import CrossEntropy

    ends, client = train(CrossEntropy(), 1)
    assert client._seeing is None
    expected = run_plainly(lambda logits, labels, *_: functional.binary_cross_entropy_with_logits(logits, labels), 1)
    torch.testing.assert_close(ends, expected, rtol=0, atol=1e-12)


def run_fedproto_plainly(rounds: int, weights: tuple[float, float], strength: float) -> list[Tensor]:
    """FedProto with autograd alone: each client's weights, then the prototypes `[2, J, f + 1]` of the last round."""

    def forward(flat: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        parts = flat.split([12, 3, 6, 2])
        z = torch.tanh(images @ parts[0].view(3, 4).T + parts[1])
        return z @ parts[2].view(2, 3).T + parts[3], z

    flat = torch.cat([part.detach().reshape(-1) for part in make_network().parameters()])
    own, prototypes = [flat.clone(), flat.clone()], dict[tuple[int, int], Tensor]()
    for number in range(rounds):
        sums, counts = dict[tuple[int, int], Tensor](), dict[tuple[int, int], float]()
        for client, weight in enumerate(weights):
            batches = make_batches(client)
            batches.position = 2 * number
            for _ in range(2):
                batch = batches.next()
                w = own[client].clone().requires_grad_()
                logits, z = forward(w, batch.images)
                loss = functional.binary_cross_entropy_with_logits(logits, batch.labels)
                for image in range(5):
                    for disease in range(2):
                        near = prototypes.get((int(batch.labels[image, disease]), disease))
                        if near is not None:  # mean over the f + 1 coordinates, of which the last are equal
                            loss = loss + strength * (z[image] - near).square().sum() / 4 / 10
                loss.backward()  # type: ignore[no-untyped-call]
                assert w.grad is not None
                own[client] = own[client] - LR * w.grad
            for batch in batches.whole():
                z = forward(own[client], batch.images)[1]
                for image in range(5):
                    for disease in range(2):
                        key = int(batch.labels[image, disease]), disease
                        sums[key] = sums.get(key, torch.zeros(3).double()) + weight * z[image]
                        counts[key] = counts.get(key, 0) + weight
        prototypes = {key: total / counts[key] for key, total in sums.items()}
    rows = [[torch.cat([prototypes[c, j], torch.ones(1)]) for j in range(2)] for c in (1, 0)]
    return [*own, torch.stack([torch.stack(of) for of in rows]).flatten()]


def make_batches(client: int) -> Batches:
    batches = Batches()
    for batch in batches.batches:
        batch.images = batch.images + client
        batch.labels = batch.labels if client else batch.labels.flip(1)
    return batches


def test_fedproto_equals_a_plain_loop() -> None:
    fedproto, weights, rounds = load("fedproto"), (0.3, 0.7), 3
    network = FlatModule(make_network())
    objective = build(fedproto.PROTOTYPES, features=3, weight=1.5)
    rule = fedproto.FedProto(2, LR, 2, objective.extra_size)
    server = Point(torch.cat([network.parameters(), torch.zeros(objective.extra_size)]), torch.zeros(0))
    clients = [
        NetworkClient("c", make_batches(k), network, objective, device=torch.device("cpu"), loss_draws=False)
        for k in range(2)
    ]
    states = [rule.start_client(server) for _ in clients]
    for _ in range(rounds):
        updates = []
        for k, client in enumerate(clients):
            with client.training(torch.zeros(0), NOTHING):
                update, states[k] = rule.local_round(rule.message(server), states[k], client)
            updates.append(update)
        server = rule.server_round(server, updates, weights)
    *own, prototypes = run_fedproto_plainly(rounds, weights, 1.5)
    for expected, state in zip(own, states, strict=True):
        torch.testing.assert_close(state.own, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(rule.local_point(server, state).primal[:23], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(server.primal[23:], prototypes, rtol=0, atol=1e-12)
    torch.testing.assert_close(server.primal[:23], network_start(), rtol=0, atol=0)  # no weights are sent


def test_class_that_nobody_has_keeps_no_prototype() -> None:
    fedproto = load("fedproto")
    rule = fedproto.FedProto(1, LR, 1, 2 * 3)
    update = fedproto.Message(torch.tensor([-2.0, -4.0, 2.0, 0.0, 0.0, 0.0]), torch.zeros(0))
    after = rule.server_round(Point(torch.zeros(6 + 1), torch.zeros(0)), [update], [1.0])
    assert after.primal[1:].tolist() == [1.0, 2.0, 1.0, 0.0, 0.0, 0.0]


def network_start() -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in make_network().parameters()])


def test_features_of_another_size_are_refused() -> None:
    with pytest.raises(ConfigError):
        train(build(load("fedproto").PROTOTYPES, features=5), 1)
