"""The imbalanced heterogeneous construction and the other cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ConfigError
from chestfed.public_datasets import binary

CLASSES = np.random.default_rng(0).integers(0, 10, 2000)
LABELS = binary.binary_labels(CLASSES, np.arange(5, 10))


def test_half_of_the_classes_is_positive_the_first_the_second_or_drawn_by_the_seed() -> None:
    assert binary.positive_classes(10, "first", 1).tolist() == [0, 1, 2, 3, 4]
    assert binary.positive_classes(10, "second", 1).tolist() == [5, 6, 7, 8, 9]
    assert [len(binary.positive_classes(9, half, 1)) for half in ("first", "second", "random")] == [5, 5, 5]  # type: ignore[arg-type]
    drawn = [tuple(binary.positive_classes(10, "random", seed)) for seed in range(20)]
    assert len(set(drawn)) > 10
    assert drawn[3] == tuple(binary.positive_classes(10, "random", 3))
    assert {len(set(one)) for one in drawn} == {5}
    assert {int(label) for c, label in zip(CLASSES, LABELS, strict=True) if c >= 5} == {1}
    assert LABELS.sum() == (CLASSES >= 5).sum()


@given(imratio=st.floats(0.02, 0.45), seed=st.integers(0, 5))
def test_positives_are_dropped_class_by_class_to_the_share_and_negatives_stay(imratio: float, seed: int) -> None:
    kept = binary.drop_positives(CLASSES, LABELS, imratio, seed)
    assert len(set(kept)) == len(kept)
    assert (LABELS[kept] == 0).sum() == (LABELS == 0).sum()
    assert LABELS[kept].mean() == pytest.approx(imratio, abs=0.003)
    shares = [(CLASSES[kept] == c).sum() / (c == CLASSES).sum() for c in range(5, 10)]
    assert max(shares) - min(shares) < 0.01


def test_more_positives_than_there_are_and_none_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="above the share of positives"):
        binary.drop_positives(CLASSES, LABELS, 0.7, 1)
    with pytest.raises(ConfigError, match="leaves no positive"):
        binary.drop_positives(CLASSES, LABELS, 1e-5, 1)


@pytest.mark.parametrize("clients", [1, 2, 4, 5])
def test_no_class_is_at_two_clients_and_every_client_has_both_labels(clients: int) -> None:
    parts = binary.deal_classes(CLASSES, LABELS, clients)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(CLASSES)))
    seen = [set(CLASSES[part].tolist()) for part in parts]
    assert sum(map(len, seen)) == 10
    assert all(set(LABELS[part].tolist()) == {0, 1} for part in parts)
    with pytest.raises(ConfigError, match="5 for 6 clients"):
        binary.deal_classes(CLASSES, LABELS, 6)


@pytest.mark.parametrize("clients", [3, 16, 32])
def test_sorted_runs_are_even_and_hold_few_classes(clients: int) -> None:
    parts = binary.deal_sorted(CLASSES, LABELS, clients)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(CLASSES)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    most = 2 * (-(-5 // clients) + 1)  # of either label the classes of a run, and one more at its border
    assert max(len(set(CLASSES[part].tolist())) for part in parts) <= most


def test_random_parts_are_even_in_number_and_label_and_depend_on_the_seed() -> None:
    parts = binary.deal_at_random(LABELS, 7, 3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(CLASSES)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2
    positives = [int(LABELS[part].sum()) for part in parts]
    assert max(positives) - min(positives) <= 1
    assert not np.array_equal(parts[0], binary.deal_at_random(LABELS, 7, 4)[0])


def test_no_patient_is_at_two_clients_or_on_both_sides() -> None:
    patients = np.array([f"p{number}" for number in np.random.default_rng(1).integers(0, 300, 2000)])
    parts = binary.deal_patients(LABELS, patients, 4, 1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(2000))
    assert sum(len(set(patients[part])) for part in parts) == len(set(patients))
    held = binary.hold_out_patients(LABELS, patients, 0.2, 1)
    assert not set(patients[held]) & set(patients[~held])
    assert len(set(patients[held])) == pytest.approx(0.2 * len(set(patients)), abs=2)


def test_held_out_rows_are_the_same_share_of_every_class() -> None:
    held = binary.hold_out(CLASSES, 0.25, 1)
    for c in range(10):
        assert held[c == CLASSES].mean() == pytest.approx(0.25, abs=0.003)
