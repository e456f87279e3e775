"""Metrics in every resample are those of the drawn images, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chestfed.evaluation import metrics
from chestfed.evaluation.calibration import calibration_per_disease
from chestfed.evaluation.intervals import bootstrap
from chestfed.evaluation.intervals.interval import Interval
from chestfed.evaluation.resampled_metrics import resampled_metrics, share_interval


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([4, 30, 10_000]), st.sampled_from([0.8, 0.9]))
def test_each_resample_has_the_numbers_of_its_images_written_out(seed: int, levels: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    positive = np.append(rng.random(33) < 0.3, [True, True, False, False])
    score = rng.integers(0, levels + 1, 37) / levels
    patients = np.append(rng.integers(0, 20, 33), [50, 51, 52, 53])
    # A second disease without one class, and a third that is the first with a missing label.
    labels = np.stack([positive, np.zeros(37), positive], axis=1).astype(float)
    labels[7, 2] = np.nan
    scores = np.stack([score] * 3, axis=1)
    found = resampled_metrics(scores, labels, patients, 5, seed, share=share, max_fpr=0.1)
    for j in (0, 2):
        known = ~np.isnan(labels[:, j])
        place, draws = bootstrap.stratified_draws(positive[known], patients[known], 5, seed, j)
        counts = np.concatenate([count for _, count in draws])
        for r in range(5):
            rows = np.repeat(np.flatnonzero(known), counts[r, place])
            drawn = (score[rows, None], labels[rows, j, None], ["edema"])
            (auprc,) = metrics.average_precision_per_disease(*drawn)
            (partial,) = metrics.partial_auc_per_disease(*drawn, 0.1)
            (at_specificity,) = metrics.sensitivity_at_specificity(*drawn, share)
            (at_sensitivity,) = metrics.specificity_at_sensitivity(*drawn, share)
            (calibration,) = calibration_per_disease(*drawn)
            if auprc.value is None:
                assert np.isnan(found.auprc[r, j])
                continue
            assert found.auprc[r, j] == pytest.approx(auprc.value, abs=1e-12)
            assert found.partial_auc[r, j] == pytest.approx(partial.value, abs=1e-12)
            assert found.sensitivity[r, j] == pytest.approx(at_specificity.sensitivity, abs=1e-12)
            assert found.specificity[r, j] == pytest.approx(at_sensitivity.specificity, abs=1e-12)
            assert found.brier[r, j] == pytest.approx(calibration.brier, abs=1e-12)
    assert all(np.isnan(of_one[:, 1]).all() for of_one in vars(found).values())


def test_the_interval_of_a_share_is_the_formula_and_at_its_ends_the_exact_binomial_one() -> None:
    found = share_interval(0.8, np.array([0.7, 0.8, np.nan, 0.9]), units=5)
    assert found is not None
    half = 2.7764451 * 0.1 * math.sqrt(5 / 4) / (0.8 * 0.2)  # t(0.975, 4)
    assert math.log(found.high / (1 - found.high)) == pytest.approx(math.log(4) + half)
    # Clopper and Pearson: 20 of 20 has a lower end of 0.8316.
    assert share_interval(1.0, np.ones(9), units=20) == Interval(pytest.approx(0.8316, abs=1e-4), 1)
    assert share_interval(0.0, np.zeros(9), units=20) == Interval(0, pytest.approx(1 - 0.8316, abs=1e-4))
    assert share_interval(0.5, np.full(9, 0.5), units=20) is None
    assert share_interval(0.5, np.array([0.4, 0.6]), units=1) is None
    assert share_interval(0.5, np.array([0.4, np.nan]), units=20) is None


def test_many_images_get_fewer_resamples_but_not_too_few() -> None:
    assert bootstrap.enough_resamples(2000, 202) == 2000
    assert 200 < bootstrap.enough_resamples(2000, 5_000) < 2000
    assert bootstrap.enough_resamples(2000, 67_000) == 200
    assert bootstrap.enough_resamples(50, 67_000) == 50
