"""Heterogeneous clients: every row once, both labels everywhere, the skew that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError
from chestfed.data.collections.skews import add_noise, deal_dirichlet, deal_quantities, deal_shards, flip_labels

CLASSES = np.random.default_rng(0).integers(0, 10, 2000)
LABELS = (CLASSES >= 5).astype(np.float32)


@given(clients=st.integers(1, 6), seed=st.integers(0, 50), kind=st.sampled_from(["dirichlet", "shards", "quantity"]))
def test_every_row_is_at_one_client(clients: int, seed: int, kind: str) -> None:
    parts = {
        "dirichlet": lambda: deal_dirichlet(CLASSES, LABELS, clients, 0.5, seed),
        "shards": lambda: deal_shards(CLASSES, LABELS, clients, 2, seed),
        "quantity": lambda: deal_quantities(LABELS, clients, 0.5, seed),
    }[kind]()
    assert len(parts) == clients
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(LABELS)))
    assert all(set(LABELS[rows]) == {0, 1} for rows in parts)


def spread(parts: list[np.ndarray]) -> float:
    """Mean over clients of the largest share of a class among the client's rows."""
    return float(np.mean([np.bincount(CLASSES[rows], minlength=10).max() / len(rows) for rows in parts]))


def test_small_alpha_gives_few_classes() -> None:
    few, many = (deal_dirichlet(CLASSES, LABELS, 5, alpha, 1) for alpha in (0.1, 100.0))
    assert spread(many) < 0.15 < 0.3 < spread(few)


def test_shards_limit_a_clients_classes() -> None:
    parts = deal_shards(CLASSES, LABELS, 5, 1, 0)
    assert max(len(np.unique(CLASSES[rows])) for rows in parts) <= 4  # two neighbours of each label


def test_quantities_differ_and_shares_do_not() -> None:
    parts = deal_quantities(LABELS, 5, 0.5, 3)
    sizes = [len(rows) for rows in parts]
    assert max(sizes) > 4 * min(sizes)
    rates = [LABELS[rows].mean() for rows in parts if len(rows) > 50]
    assert max(rates) - min(rates) < 0.05
    assert max(len(rows) for rows in deal_quantities(LABELS, 5, 1e4, 3)) < 420


def test_other_seeds_deal_otherwise() -> None:
    first, again, other = (deal_dirichlet(CLASSES, LABELS, 3, 0.5, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_share_of_labels_is_flipped() -> None:
    noisy = flip_labels(LABELS, 0.1, 0, "a")
    assert (noisy != LABELS).sum() == 200
    assert not np.array_equal(noisy, flip_labels(LABELS, 0.1, 0, "b"))
    assert np.array_equal(flip_labels(LABELS, 0, 0, "a"), LABELS)


def test_noise_grows_by_client() -> None:
    image = np.full((64, 64), 128, np.uint8)
    deviations = [add_noise(image, 0.01, client, 4, 0, b"x").astype(float).std() for client in (1, 4)]
    assert deviations == pytest.approx([255 * 0.0025**0.5, 255 * 0.01**0.5], rel=0.05)
    assert np.array_equal(add_noise(image, 0.01, 1, 4, 0, b"x"), add_noise(image, 0.01, 1, 4, 0, b"x"))
    assert not np.array_equal(add_noise(image, 0.01, 1, 4, 0, b"x"), add_noise(image, 0.01, 1, 4, 0, b"y"))


def test_what_cannot_be_dealt_is_refused() -> None:
    for deal in (
        lambda: deal_dirichlet(CLASSES, LABELS, 3, 0.0, 0),
        lambda: deal_dirichlet(CLASSES[:9], LABELS[:9], 9, 0.1, 0),
        lambda: deal_shards(CLASSES[:9], LABELS[:9], 3, 4, 0),
        lambda: deal_quantities(LABELS[:5], 4, 1.0, 0),
        lambda: flip_labels(LABELS, 1.5, 0, "a"),
    ):
        with pytest.raises(ConfigError):
            deal()
