"""Every named interval: against its definition, against SciPy, and where it ends."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from chestfed.results.evaluation.comparison import compare
from chestfed.results.evaluation.estimates import auc_estimates
from chestfed.results.evaluation.intervals import bootstrap
from chestfed.results.evaluation.intervals.delong import auc_covariance
from chestfed.results.evaluation.intervals.interval import bca_interval, clopper_lower, quantile_interval
from chestfed.results.evaluation.intervals.methods import METHODS, Intervals, MethodName
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.tables.sentences import number_references
from chestfed.results.tables.views import make_auc_cell

NAMES: tuple[MethodName, ...] = get_args(MethodName)


def clustered(seed: int = 0) -> Scored:
    """Two diseases, 120 images of about 40 patients, labels that change within patients, ties."""
    rng = np.random.default_rng(seed)
    patients = rng.integers(0, 40, 120)
    labels = (rng.random((120, 2)) < 0.4).astype(float)
    labels[rng.random((120, 2)) < 0.1] = np.nan
    scores = np.round(np.nan_to_num(labels) + rng.normal(size=(40, 2))[patients] + rng.normal(size=(120, 2)), 1)
    return Scored(scores, labels, patients, ["edema", "atelectasis"])


def obuchowski(score: np.ndarray, label: np.ndarray, patient: np.ndarray) -> float:
    """Her variance, patient by patient: Biometrics 53 (1997), section 2."""
    x, y = score[label == 1], score[label == 0]
    psi = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    of_x, of_y, theta = patient[label == 1], patient[label == 0], psi.mean()
    s10 = s01 = s11 = 0.0
    for name in np.unique(patient):
        v10 = sum(psi[i].mean() - theta for i in np.flatnonzero(of_x == name))
        v01 = sum(psi[:, k].mean() - theta for k in np.flatnonzero(of_y == name))
        s10, s01, s11 = s10 + v10**2, s01 + v01**2, s11 + v10 * v01
    i10, i01, i = (len(np.unique(part)) for part in (of_x, of_y, patient))
    m, n = len(x), len(y)
    return i10 / (i10 - 1) * s10 / m**2 + i01 / (i01 - 1) * s01 / n**2 + 2 * i / (i - 1) * s11 / (m * n)


@pytest.mark.parametrize("seed", range(5))
def test_clustered_variance_is_obuchowskis(seed: int) -> None:
    data = clustered(seed)
    for column, (scores, labels) in zip(
        data.columns(), ((data.scores[:, [j]], data.labels[:, [j]]) for j in range(2)), strict=True
    ):
        estimate = auc_covariance([scores], labels, np.ones((1, 1)), data.patients)
        assert estimate is not None
        expected = obuchowski(column.score, column.positive, column.patient)
        assert estimate[1][0, 0] == pytest.approx(expected, rel=1e-10)


def test_jackknife_leaves_out_whole_patients() -> None:
    data = clustered()
    aucs = bootstrap.jackknifed_aucs(data.scores, data.labels, data.patients)[0]
    for place, name in enumerate(np.unique(data.patients)):
        for j, column in enumerate(data.where(data.patients != name).columns()):
            assert aucs[place, j] == pytest.approx(roc_auc_score(column.positive, column.score), abs=1e-12)


def test_bca_interval_is_scipys() -> None:
    rng = np.random.default_rng(3)
    positive, negative = rng.normal(1.2, 1, 15), rng.normal(0, 1, 45)

    def auc(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        assert axis == -1
        return (x[..., :, None] > y[..., None, :]).mean(axis=(-1, -2))

    theirs = stats.bootstrap(
        (positive, negative), auc, n_resamples=999, method="BCa", vectorized=True, rng=np.random.default_rng(1)
    )
    scores, labels = np.r_[positive, negative][:, None], np.repeat([1.0, 0.0], [15, 45])[:, None]
    left_out = bootstrap.jackknifed_aucs(scores, labels, np.arange(60))[0, :, 0]
    value = float(auc(positive, negative))
    ours = bca_interval(value, theirs.bootstrap_distribution, [left_out[:15], left_out[15:]])
    assert ours is not None
    assert ours[0] == pytest.approx(tuple(theirs.confidence_interval), abs=1e-9)


@given(
    st.integers(0, 10_000),
    st.floats(-3, 3),
    st.sampled_from([0.0, 0.2, -0.3]),
    st.sampled_from([0.0, 0.05, -0.05]),
    st.booleans(),
)
def test_p_small_where_quantiles_leave_out_0(
    seed: int, middle: float, bias: float, acceleration: float, whole: bool
) -> None:
    values = np.random.default_rng(seed).normal(middle, 1, 400)
    estimate = quantile_interval(np.round(values, 1) if whole else values, bias=bias, acceleration=acceleration)
    assert estimate is not None
    interval, p = estimate
    assert 2 / 401 <= p <= 1
    if abs(p - 0.05) > 1e-6:
        assert (p < 0.05) == (interval.low > 1e-12 or interval.high < -1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_perfect_auc_has_the_exact_bound(name: MethodName) -> None:
    labels = np.repeat([1.0, 0.0], [7, 30])[:, None]
    for scores, ends in ((labels, (clopper_lower(7, 0.95), 1.0)), (-labels, (0.0, 1 - clopper_lower(7, 0.95)))):
        (estimate, mean) = auc_estimates(Scored(scores, labels, np.arange(37), ["edema"]), Intervals(name, 200))
        assert estimate.interval == pytest.approx(ends)
        assert make_auc_cell({**estimate.record("auc"), "sd": None}, 2).below == (
            "[0.59, 1.00]" if estimate.value == 1 else "[0.00, 0.41]",
        )
        assert mean.value is None  # of seven patients
    nearly = labels + np.linspace(0, 1.01, 37)[:, None]  # one pair of 210 is wrong
    (edema, _) = auc_estimates(Scored(nearly, labels, np.arange(37), ["edema"]), Intervals(name, 200))
    if edema.interval is not None:
        low, high = make_auc_cell({**edema.record("auc"), "sd": None}, 2).below[0].strip("[]").split(", ")
        assert low != high


@pytest.mark.parametrize("name", NAMES)
def test_interval_and_p_agree_and_swap_sign(name: MethodName) -> None:
    a = clustered()
    b = Scored(a.scores + 0.7 * np.nan_to_num(a.labels), a.labels, a.patients, a.diseases)
    for difference, other in zip(*(compare([x], [y], 500, interval=name) for x, y in ((a, b), (b, a))), strict=True):
        assert difference.interval is not None
        assert other.interval is not None
        assert difference.p is not None
        assert difference.p == pytest.approx(other.p)
        assert difference.interval.low == pytest.approx(-other.interval.high)
        assert (difference.p < 0.05) == (difference.interval.low > 0 or difference.interval.high < 0)


def test_methods_have_a_text_and_a_reference() -> None:
    assert tuple(METHODS) == NAMES
    for method in METHODS.values():
        assert method.about.startswith("95%")
        assert "p" in method.of_difference.split()
        assert all(any(year in reference for year in ("19", "20")) for reference in method.references)


def test_paragraph_numbers_its_references() -> None:
    result = number_references([("One", ["b"]), ("Two", ["a", "b"]), ("Three", ())])
    assert result.paragraph == "One [1]. Two [2, 1]. Three."
    assert result.references == ("b", "a")
    assert str(result).endswith("1. b.\n2. a.\n")
