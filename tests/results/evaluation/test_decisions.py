"""Confusion matrix and decision curve against sums that are written out in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from chestfed.results.evaluation.decisions import CURVE, decide, read_thresholds
from chestfed.results.evaluation.intervals.bootstrap import stratified_draws
from chestfed.results.evaluation.intervals.methods import Intervals
from tests.results.evaluation.test_auc import scored


def _net_benefit(score: np.ndarray, label: np.ndarray, threshold: float) -> float:
    """Vickers and Elkin's formula, image by image."""
    true = sum(1 for s, y in zip(score, label, strict=True) if s >= threshold and y == 1)
    false = sum(1 for s, y in zip(score, label, strict=True) if s >= threshold and y == 0)
    return true / len(score) - false / len(score) * threshold / (1 - threshold)


def _sample(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = np.append((rng.random(n) < 0.4).astype(float), [1.0, 0.0, 1.0, 0.0])
    score = np.round(np.clip(0.3 * label + 0.7 * rng.random(n + 4), 0, 1), 2)
    return score, label, np.append(rng.integers(0, 25, n), [90, 91, 92, 93])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.3, 0.5, 0.77]))
def test_numbers_are_those_written_out(seed: int, threshold: float) -> None:
    score, label, patients = _sample(seed)
    label[5] = np.nan
    known = ~np.isnan(label)
    found = decide(scored(score[:, None], label[:, None], patients), {"edema": threshold}, Intervals())
    row = found.confusion.iloc[0]
    called, positive = score[known] >= threshold, label[known] == 1
    counts = [int((called & positive).sum()), int((called & ~positive).sum())]
    counts += [int((~called & positive).sum()), int((~called & ~positive).sum())]
    names = ["true_positives", "false_positives", "false_negatives", "true_negatives"]
    assert [row[name] for name in names] == counts
    tp, fp, fn, tn = counts
    for name, above, below in (
        ("sensitivity", tp, tp + fn),
        ("specificity", tn, tn + fp),
        ("ppv", tp, tp + fp),
        ("npv", tn, tn + fn),
    ):
        if below:
            assert row[name] == pytest.approx(above / below, abs=1e-12)
        else:
            assert math.isnan(row[name])
    assert row["net_benefit"] == pytest.approx(_net_benefit(score[known], label[known], threshold), abs=1e-12)
    assert len(found.curve) == len(CURVE)
    for point in found.curve.to_dict("records"):
        expected = _net_benefit(score[known], label[known], point["threshold"])
        every = _net_benefit(np.ones(known.sum()), label[known], point["threshold"])
        assert point["net_benefit"] == pytest.approx(expected, abs=1e-12)
        assert point["net_benefit_all"] == pytest.approx(every, abs=1e-12)


def test_interval_is_that_of_clustered_ratios() -> None:
    score, label, patients = _sample(3)
    row = decide(scored(score[:, None], label[:, None], patients), {"edema": 0.4}, Intervals()).confusion.iloc[0]
    worth = [(y - (1 - y) * 0.4 / 0.6) * (s >= 0.4) for s, y in zip(score, label, strict=True)]
    value, images = sum(worth) / len(worth), len(worth)
    residual: dict[int, float] = {}
    for patient, part in zip(patients, worth, strict=True):
        residual[patient] = residual.get(patient, 0.0) + (part - value) / images
    with_positive = {patient for patient, y in zip(patients, label, strict=True) if y == 1}
    variance = 0.0
    for stratum in (with_positive, set(residual) - with_positive):
        parts = [residual[patient] for patient in stratum]
        mean = sum(parts) / len(parts)
        variance += len(parts) / (len(parts) - 1) * sum((part - mean) ** 2 for part in parts)
    half = stats.t.ppf(0.975, len(residual) - 1) * math.sqrt(variance)
    assert row["net_benefit_low"] == pytest.approx(value - half, abs=1e-12)
    assert row["net_benefit_high"] == pytest.approx(value + half, abs=1e-12)


def test_percentile_interval_is_of_drawn_patients() -> None:
    score, label, patients = _sample(4)
    how = Intervals("percentile", 200, 7)
    row = decide(scored(score[:, None], label[:, None], patients), {"edema": 0.4}, how).confusion.iloc[0]
    numbers = np.unique(patients, return_inverse=True)[1]
    order = np.unique(numbers, return_index=True)[1]
    names = np.argsort(np.argsort(order))[numbers]  # as they first appear
    place, draws = stratified_draws(label == 1, names, 200, 7, 0)
    drawn = []
    for _, counts in draws:
        for count in counts:
            rows = np.repeat(np.arange(len(score)), count[place])
            drawn.append(_net_benefit(score[rows], label[rows], 0.4))
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (row["net_benefit_low"], row["net_benefit_high"]) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize("method", ["obuchowski", "bca", "percentile"])
def test_interval_covers_the_true_net_benefit(method: str) -> None:
    rng, hits, threshold = np.random.default_rng(1), 0, 0.35
    truth = 0.5 * 0.8 - 0.5 * 0.35 * threshold / (1 - threshold)  # 80% of the positives and 35% of the others
    for _ in range(120):
        of_patient = rng.random(80) < 0.5
        label = np.repeat(np.append(of_patient, [True, False]), 2).astype(float)
        called = np.repeat(rng.random(82) < np.where(label[::2] == 1, 0.8, 0.35), 2)  # both images of a patient alike
        score = np.where(called, 0.9, 0.1)
        data = scored(score[:, None], label[:, None], np.repeat(np.arange(82), 2))
        share = label.mean()
        row = decide(data, {"edema": threshold}, Intervals(method, 200)).confusion.iloc[0]  # type: ignore[arg-type]
        here = share * 0.8 - (1 - share) * 0.35 * threshold / (1 - threshold)  # at the share of these patients
        hits += row["net_benefit_low"] <= here <= row["net_benefit_high"]
    assert abs(truth - 0.3058) < 0.001
    assert 0.88 <= hits / 120 <= 1


def test_one_class_has_counts_and_no_benefit() -> None:
    found = decide(scored(np.array([[0.2], [0.9]]), np.zeros((2, 1))), {"edema": 0.5}, Intervals())
    row = found.confusion.iloc[0]
    assert (row["false_positives"], row["true_negatives"], row["specificity"]) == (1, 1, 0.5)
    assert np.isnan(row["sensitivity"])
    assert np.isnan(row["net_benefit"])


def test_all_right_has_the_exact_interval() -> None:
    score, label = np.array([[0.9], [0.8], [0.1], [0.2]]), np.array([[1], [1], [0], [0.0]])
    row = decide(scored(score, label), {"edema": 0.5}, Intervals()).confusion.iloc[0]
    assert (row["sensitivity"], row["sensitivity_high"]) == (1, 1)
    assert row["sensitivity_low"] == pytest.approx(0.025**0.5)


def test_thresholds_are_read_or_refused() -> None:
    assert read_thresholds(["edema=0.1", "0.3"], ("edema", "mass")) == {"edema": 0.1, "mass": 0.3}
    for text in ("1", "0", "nan", "x", "edema=2", "hernia=0.2"):
        with pytest.raises(ValueError, match=r"give a probability|the model has no"):
            read_thresholds([text], ("edema", "mass"))
    with pytest.raises(ValueError, match="threshold of mass"):
        decide(scored(np.zeros((2, 2)), np.zeros((2, 2)), None, "edema", "mass"), {"edema": 0.5}, Intervals())
