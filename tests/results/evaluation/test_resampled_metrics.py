"""Metrics in every resample are those of the drawn images, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.results.evaluation import metrics
from chestfed.results.evaluation.calibration import calibration
from chestfed.results.evaluation.intervals import bootstrap
from chestfed.results.evaluation.intervals.interval import Interval, logit_interval
from chestfed.results.evaluation.resampled_metrics import resampled_metrics
from tests.results.evaluation.test_auc import make_column, scored


@given(st.integers(0, 10_000), st.sampled_from([4, 30, 10_000]), st.sampled_from([0.8, 0.9]))
def test_resample_numbers_those_written_out(seed: int, levels: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    positive = np.append(rng.random(33) < 0.3, [True, True, False, False])
    score = rng.integers(0, levels + 1, 37) / levels
    patients = np.append(rng.integers(0, 20, 33), [50, 51, 52, 53])
    # A second disease without one class, and a third that is the first with a missing label.
    labels = np.stack([positive, np.zeros(37), positive], axis=1).astype(float)
    labels[7, 2] = np.nan
    scores = np.stack([score] * 3, axis=1)
    columns = scored(scores, labels, patients, "edema", "hernia", "mass").columns()
    resamples = [resampled_metrics(column, j, 5, seed, share, 0.1) for j, column in enumerate(columns)]
    for j in (0, 2):
        known = ~np.isnan(labels[:, j])
        place, draws = bootstrap.stratified_draws(positive[known], patients[known], 5, seed, j)
        counts = np.concatenate([count for _, count in draws])
        for r in range(5):
            rows = np.repeat(np.flatnonzero(known), counts[r, place])
            drawn = make_column(score[rows], labels[rows, j])
            if drawn.reason:
                assert np.isnan(resamples[j][:, r]).all()
                continue
            points = (
                metrics.sensitivity_at_specificity(drawn, share),
                metrics.specificity_at_sensitivity(drawn, share),
            )
            calibrated = calibration(drawn)
            assert points[0] is not None
            assert points[1] is not None
            assert calibrated is not None
            expected = [metrics.average_precision(drawn), metrics.partial_auc(drawn, 0.1)]
            expected += [points[0].sensitivity, points[1].specificity, calibrated.brier]
            assert resamples[j][:, r].tolist() == pytest.approx(expected, abs=1e-12)
    assert np.isnan(resamples[1]).all()


def test_share_interval_formula_or_binomial() -> None:
    interval = logit_interval(0.8, np.array([0.7, 0.8, np.nan, 0.9]), units=5)
    assert interval is not None
    half = 2.7764451 * 0.1 * math.sqrt(5 / 4) / (0.8 * 0.2)  # t(0.975, 4)
    assert math.log(interval.high / (1 - interval.high)) == pytest.approx(math.log(4) + half)
    # Clopper and Pearson: 20 of 20 has a lower end of 0.8316.
    assert logit_interval(1.0, np.ones(9), units=20) == Interval(pytest.approx(0.8316, abs=1e-4), 1)
    assert logit_interval(0.0, np.zeros(9), units=20) == Interval(0, pytest.approx(1 - 0.8316, abs=1e-4))
    assert logit_interval(0.5, np.full(9, 0.5), units=20) is None
    assert logit_interval(0.5, np.array([0.4, 0.6]), units=1) is None
    assert logit_interval(0.5, np.array([0.4, np.nan]), units=20) is None


def test_many_images_get_fewer_resamples() -> None:
    assert bootstrap.enough_resamples(2000, 202) == 2000
    assert 200 < bootstrap.enough_resamples(2000, 5_000) < 2000
    assert bootstrap.enough_resamples(2000, 67_000) == 200
    assert bootstrap.enough_resamples(50, 67_000) == 50
