"""Probabilities of logits: exact to rounding, and never a tie that the logits have not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation.probabilities import probabilities

LOGITS = st.one_of(
    st.floats(-1e6, 1e6, width=32),
    st.floats(-40, 40, width=32),
    st.floats(-1e-18, 1e-18),
    st.sampled_from([0.0, -0.0, 36.7, 36.8, 37.0, 40.0, 800.0, -745.2, -745.1, -800.0]),
)


@given(st.lists(LOGITS, min_size=1, max_size=60))
def test_order_is_of_logits_values_sigmoids(logits: list[float]) -> None:
    values = np.array(logits)
    result = probabilities(values[:, None])[:, 0]
    assert (np.sign(result[:, None] - result) == np.sign(values[:, None] - values)).all()
    assert 0 <= result.min() <= result.max() <= 1
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(result, 1 / (1 + np.exp(-values)), rtol=0, atol=1e-13)


def test_ordinary_logits_keep_their_sigmoid() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 5, (2000, 3)).astype(np.float32)
    result = probabilities(logits)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, 1 / (1 + np.exp(-logits.astype(np.float64))))


@pytest.mark.parametrize("shift", [-700.0, 50.0, 1e4])
def test_saturated_logits_stay_apart(shift: float) -> None:
    logits = np.linspace(0, 1, 1000)[:, None] + shift
    result = probabilities(logits)
    assert (np.diff(result[:, 0]) > 0).all()
