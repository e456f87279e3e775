"""Degrees of freedom of an interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients, count_freedom
from chestfed.results.evaluation.intervals.delong import list_parts


def find_freedom(scores: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> float:
    """Of the mean over the columns."""
    return count_freedom(list_parts([scores], labels, patients), patients, count_effective_patients(labels, patients))


def test_by_hand() -> None:
    # Four positives beat 4, 4, 4 and 0 of four negatives: components 1, 1, 1, 0, less their mean 1/4, 1/4, 1/4, -3/4.
    # Kurtosis 4 (3/256 + 81/256) / (3/16 + 9/16)^2 = 7/3 is below 3: 4 - 1.
    scores = np.array([[2], [3], [4], [0], [1], [1], [1], [1], [1.0]])
    labels = np.array([[1], [1], [1], [1], [0], [0], [0], [0], [0.0]])
    assert find_freedom(scores, labels, np.arange(9)) == 3
    # Nine of ten: 10 (9 / 10^4 + 9^4 / 10^4) / (9 / 10^2 + 81 / 10^2)^2 - 3 = 5.1111; 2 / (2 / 9 + 5.1111 / 10).
    scores, labels = np.append(np.arange(2.0, 11), [0, *[1] * 12])[:, None], np.repeat([1.0, 0.0], [10, 12])[:, None]
    freedom = find_freedom(scores, labels, np.arange(22))
    assert freedom == pytest.approx(2 / (2 / 9 + 0.51111), rel=1e-4)
    # The negatives are fewer: the same from the other side.
    mirrored = find_freedom(-scores, 1 - labels, np.arange(22))
    assert mirrored == pytest.approx(freedom)


def test_images_of_a_patient_count_once() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(40, 1)), np.repeat([1.0, 0.0], [12, 28])[:, None]
    twice, patients = np.concatenate([scores, scores]), np.tile(np.arange(40), 2)
    alone = find_freedom(scores, labels, np.arange(40))
    freedom = find_freedom(twice, np.concatenate([labels, labels]), patients)
    assert freedom == pytest.approx(alone)


@given(st.integers(0, 10_000), st.floats(-2, 6))
def test_at_most_patients_minus_one(seed: int, gain: float) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random((60, 3)) < rng.uniform(0.05, 0.5)).astype(float)
    labels[rng.random((60, 3)) < 0.1] = np.nan
    labels[:2], labels[2:4] = 1, 0
    scores, patients = rng.normal(size=(60, 3)) + gain * np.nan_to_num(labels), rng.integers(0, 50, 60)
    for columns in ([0], [1], [2], [0, 1, 2]):
        units = count_effective_patients(labels[:, columns], patients)
        freedom = find_freedom(scores[:, columns], labels[:, columns], patients)
        assert (1 <= freedom <= units - 1 + 1e-9) if units >= 2 else freedom == 0


def test_one_class_does_not_count_in_mean() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=(50, 2)), np.zeros((50, 2))
    labels[:20, 0] = 1
    freedom, none = (find_freedom(scores[:, [j]], labels[:, [j]], np.arange(50)) for j in (0, 1))
    assert none == 0
    assert find_freedom(scores, labels, np.arange(50)) == pytest.approx(freedom)
    labels[5, 1] = 1
    assert find_freedom(scores, labels, np.arange(50)) == 0
    assert find_freedom(scores, np.zeros((50, 2)), np.arange(50)) == 0
