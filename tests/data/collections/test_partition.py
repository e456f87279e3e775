"""The imbalanced heterogeneous construction and the other cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError
from chestfed.data.collections import partition
from tests.cases import assert_refused

CLASSES = np.random.default_rng(0).integers(0, 10, 2000)
LABELS = partition.binary_labels(CLASSES, np.arange(5, 10))


def test_half_of_the_classes_is_positive() -> None:
    assert partition.positive_classes(10, "first", 1).tolist() == [0, 1, 2, 3, 4]
    assert partition.positive_classes(10, "second", 1).tolist() == [5, 6, 7, 8, 9]
    assert [len(partition.positive_classes(9, half, 1)) for half in ("first", "second", "random")] == [5, 5, 5]  # type: ignore[arg-type]
    drawn = [tuple(partition.positive_classes(10, "random", seed)) for seed in range(20)]
    assert len(set(drawn)) > 10
    assert drawn[3] == tuple(partition.positive_classes(10, "random", 3))
    assert {len(set(classes)) for classes in drawn} == {5}
    assert {int(label) for c, label in zip(CLASSES, LABELS, strict=True) if c >= 5} == {1}
    assert LABELS.sum() == (CLASSES >= 5).sum()


@given(imratio=st.floats(0.02, 0.45), seed=st.integers(0, 5))
def test_positives_are_dropped_by_class(imratio: float, seed: int) -> None:
    rows = partition.drop_positives(CLASSES, LABELS, imratio, seed)
    assert len(set(rows)) == len(rows)
    assert (LABELS[rows] == 0).sum() == (LABELS == 0).sum()
    assert LABELS[rows].mean() == pytest.approx(imratio, abs=0.003)
    shares = [(CLASSES[rows] == c).sum() / (c == CLASSES).sum() for c in range(5, 10)]
    assert max(shares) - min(shares) < 0.01


def test_impossible_imratio_is_refused() -> None:
    with assert_refused(ConfigError, "imratio too high"):
        partition.drop_positives(CLASSES, LABELS, 0.7, 1)
    with assert_refused(ConfigError, "no positive image"):
        partition.drop_positives(CLASSES, LABELS, 1e-5, 1)


@pytest.mark.parametrize("clients", [1, 2, 4, 5])
def test_no_class_is_at_two_clients(clients: int) -> None:
    parts = partition.deal_classes(CLASSES, LABELS, clients)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(CLASSES)))
    seen = [set(CLASSES[part].tolist()) for part in parts]
    assert sum(map(len, seen)) == 10
    assert all(set(LABELS[part].tolist()) == {0, 1} for part in parts)
    with assert_refused(ConfigError, "too few classes", clients=6):
        partition.deal_classes(CLASSES, LABELS, 6)


@pytest.mark.parametrize("clients", [3, 16, 32])
def test_sorted_runs_are_even(clients: int) -> None:
    parts = partition.deal_sorted(CLASSES, LABELS, clients)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(CLASSES)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    most = 2 * (-(-5 // clients) + 1)  # of either label the classes of a run, and one more at its border
    assert max(len(set(CLASSES[part].tolist())) for part in parts) <= most


def test_random_parts_are_even_and_seeded() -> None:
    parts = partition.deal_at_random(LABELS, 7, 3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(CLASSES)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    positives = [int(LABELS[part].sum()) for part in parts]
    assert max(positives) - min(positives) <= 1
    assert not np.array_equal(parts[0], partition.deal_at_random(LABELS, 7, 4)[0])


def test_patients_stay_together() -> None:
    patients = np.array([f"p{number}" for number in np.random.default_rng(1).integers(0, 300, 2000)])
    number, positive = partition.index_patients(LABELS, patients)
    for name in set(patients):
        (client,) = set(number[patients == name])
        assert positive[client] == LABELS[patients == name].max()
    held = partition.hold_out_patients(LABELS, patients, 0.2, 1)
    assert not set(patients[held]) & set(patients[~held])
    assert len(set(patients[held])) == pytest.approx(0.2 * len(set(patients)), abs=2)


def test_held_out_share_is_equal_per_class() -> None:
    held = partition.hold_out(CLASSES, 0.25, 1)
    for c in range(10):
        assert held[c == CLASSES].mean() == pytest.approx(0.25, abs=0.003)


def test_given_clients_are_taken_by_name() -> None:
    holders = np.array(["b", "a", "b", "c"])
    assert [rows.tolist() for rows in partition.deal_given(holders, 3)] == [[1], [0, 2], [3]]
    with pytest.raises(ConfigError):
        partition.deal_given(holders, 2)
