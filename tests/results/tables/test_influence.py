"""Weights of clients, and the clients and courses of training that a reader is warned of."""

from __future__ import annotations

import pytest

from chestfed.learning.engines.weights import WeightMode, client_weights
from chestfed.results.evaluation.estimates import Estimate
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.tables.clients.influence import (
    ClientCounts,
    Influence,
    compute_influence,
    describe_loss,
    unusual_clients,
)


@pytest.mark.parametrize(
    ("mode", "weights"),
    [("uniform", [1 / 3, 1 / 3, 1 / 3]), ("sqrt", [0.1, 0.4, 0.5]), ("images", [1 / 42, 16 / 42, 25 / 42])],
)
def test_weights_follow_the_mode(mode: WeightMode, weights: list[float]) -> None:
    assert client_weights([1, 16, 25], mode) == pytest.approx(weights)


def counts(name: str, positives: int, negatives: int) -> ClientCounts:
    return ClientCounts(name, positives + negatives, (positives,), (negatives,))


CLIENTS = (counts("target", 100, 300), counts("large", 500, 1500), counts("small", 10, 20), counts("ill", 200, 0))


def influence(mode: WeightMode) -> tuple[Influence, ...]:
    return compute_influence(CLIENTS, client_weights([client.rows for client in CLIENTS], mode))


def test_weight_per_row_is_one_with_images() -> None:
    assert [share.per_row for share in influence("images")] == pytest.approx([1, 1, 1, 1])
    shares = influence("uniform")
    assert sum(share.per_row * share.client.rows for share in shares) == pytest.approx(2630)


def test_unusual_clients_are_named() -> None:
    sentences = unusual_clients(influence("uniform"), ["pneumonia"], adds_hospitals=True)
    assert [sentence.split(" ")[0] for sentence in sentences] == ["ill:", "small"]
    by_images = unusual_clients(influence("images"), ["pneumonia"], adds_hospitals=True)
    assert [sentence.split(" ")[0] for sentence in by_images] == ["ill:"]


def test_target_may_weigh_more_than_others() -> None:
    shares = compute_influence([counts("target", 5, 15), counts("large", 500, 1500)], [0.5, 0.5])
    assert not unusual_clients(shares, ["pneumonia"], adds_hospitals=True)
    assert len(unusual_clients(shares, ["pneumonia"], adds_hospitals=False)) == 1


def test_loss_beyond_noise_is_described() -> None:
    rounds = [{"round": n, "mean_auc": auc} for n, auc in ((1, None), (2, 0.79), (3, 0.6), (4, 0.5))]
    low = Estimate("mean", 0.5, Interval(0.4, 0.6))
    assert "0.790 after round 2 to 0.500" in describe_loss(rounds, low)
    assert not describe_loss(rounds, Estimate("mean", 0.72, Interval(0.6, 0.8)))
    assert not describe_loss(rounds[:2], low)
    assert not describe_loss(rounds, Estimate("mean", 0.5))
