"""Degrees of freedom of an interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation.intervals.degrees_of_freedom import (
    freedom_of_mean,
    freedom_per_disease,
    units_of_mean,
    units_per_disease,
)


def test_by_hand() -> None:
    # Four positives beat 4, 4, 4 and 0 of four negatives: components 1, 1, 1, 0, less their mean 1/4, 1/4, 1/4, -3/4.
    # Kurtosis 4 (3/256 + 81/256) / (3/16 + 9/16)^2 = 7/3 is below 3: 4 - 1.
    scores = np.array([[2], [3], [4], [0], [1], [1], [1], [1], [1.0]])
    labels = np.array([[1], [1], [1], [1], [0], [0], [0], [0], [0.0]])
    assert freedom_per_disease(scores, labels, np.arange(9)).tolist() == [3]
    # Nine of ten: 10 (9 / 10^4 + 9^4 / 10^4) / (9 / 10^2 + 81 / 10^2)^2 - 3 = 5.1111; 2 / (2 / 9 + 5.1111 / 10).
    scores, labels = np.append(np.arange(2.0, 11), [0, *[1] * 12])[:, None], np.repeat([1.0, 0.0], [10, 12])[:, None]
    (found,) = freedom_per_disease(scores, labels, np.arange(22))
    assert found == pytest.approx(2 / (2 / 9 + 0.51111), rel=1e-4)
    # The negatives are fewer: the same from the other side.
    (mirrored,) = freedom_per_disease(-scores, 1 - labels, np.arange(22))
    assert mirrored == pytest.approx(found)


def test_images_of_a_patient_count_as_one_value() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(40, 1)), np.repeat([1.0, 0.0], [12, 28])[:, None]
    twice, patients = np.concatenate([scores, scores]), np.tile(np.arange(40), 2)
    (alone,) = freedom_per_disease(scores, labels, np.arange(40))
    (found,) = freedom_per_disease(twice, np.concatenate([labels, labels]), patients)
    assert found == pytest.approx(alone)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(-2, 6))
def test_there_are_at_most_as_many_as_patients_less_one(seed: int, gain: float) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random((60, 3)) < rng.uniform(0.05, 0.5)).astype(float)
    labels[rng.random((60, 3)) < 0.1] = np.nan
    labels[:2], labels[2:4] = 1, 0
    scores, patients = rng.normal(size=(60, 3)) + gain * np.nan_to_num(labels), rng.integers(0, 50, 60)
    units, freedom = units_per_disease(labels, patients), freedom_per_disease(scores, labels, patients)
    assert (freedom <= np.maximum(units - 1, 0) + 1e-9).all()
    assert (freedom[units >= 2] >= 1).all()
    assert (freedom[units < 2] == 0).all()
    of_mean = units_of_mean(labels, patients)
    assert freedom_of_mean(scores, labels, patients) <= max(of_mean - 1, 0) + 1e-9


def test_a_disease_of_one_class_does_not_count_in_the_mean_and_one_patient_leaves_nothing() -> None:
    rng = np.random.default_rng(1)
    scores, labels = rng.normal(size=(50, 2)), np.zeros((50, 2))
    labels[:20, 0] = 1
    (one, none) = freedom_per_disease(scores, labels, np.arange(50))
    assert none == 0
    assert freedom_of_mean(scores, labels, np.arange(50)) == pytest.approx(one)
    labels[5, 1] = 1
    assert freedom_of_mean(scores, labels, np.arange(50)) == 0
    assert freedom_of_mean(scores, np.zeros((50, 2)), np.arange(50)) == 0
