"""Thresholds and probabilities at another hospital."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from chestfed.leaves.thresholds.transfer import judge_transfer, recalibrate
from chestfed.results.evaluation.labeled import Column


def hospital(shift: float, rate: float = 0.3, n: int = 1000, seed: int = 0) -> Column:
    """Scores that are true probabilities where `shift` is 0 and the rate is 0.3."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < rate
    # Two normal distributions two deviations apart: their log odds are 2 x - 2 + log(rate odds).
    x = rng.standard_normal(n) + 2 * positive
    return Column("edema", expit(2 * x - 2 + np.log(0.3 / 0.7) + shift), positive, np.repeat(np.arange(n // 2), 2), 0)


def test_threshold_holds_at_similar_hospital() -> None:
    table = judge_transfer(hospital(0), hospital(0, seed=1))
    assert table["way"].tolist() == ["transferred", "recalibrated", "recalibrated", "recalibrated"]
    assert table["specificity"].iloc[0] == pytest.approx(0.9, abs=0.03)
    assert table["ece"].iloc[0] < 0.05


def test_shift_is_repaired_by_local_images() -> None:
    table = judge_transfer(hospital(0), hospital(2.0, seed=1)).set_index("images")
    assert table.loc[0, "specificity"] < 0.7
    assert table.loc[200, "specificity"] == pytest.approx(0.9, abs=0.03)
    assert table.loc[200, "brier"] < table.loc[0, "brier"] - 0.02
    assert table.loc[200, "ece"] < table.loc[50, "ece"] < table.loc[0, "ece"]
    assert table.loc[200, "sd_specificity"] < table.loc[50, "sd_specificity"]


def test_recalibration_keeps_the_order() -> None:
    column = hospital(1.0)
    probability = recalibrate(column, column.score)
    assert (np.argsort(probability) == np.argsort(column.score)).all()
    assert probability.mean() == pytest.approx(column.positive.mean(), abs=0.01)


def test_no_patient_is_on_both_sides() -> None:
    column = hospital(0, n=60)
    same = Column("edema", column.score, column.positive, np.zeros(60), 0)
    assert judge_transfer(column, same)["way"].tolist() == ["transferred"]


def test_same_seed_gives_the_same_table() -> None:
    first, second = (judge_transfer(hospital(0), hospital(1), draws=3) for _ in range(2))
    assert first.equals(second)


def test_one_class_is_refused() -> None:
    column = hospital(0)
    positives = Column("edema", column.score, np.ones(1000, bool), column.patient, 0)
    with pytest.raises(ValueError, match="no negative image"):
        judge_transfer(column, positives)
    logits = Column("edema", column.score * 5, column.positive, column.patient, 0)
    with pytest.raises(ValueError, match="not probabilities"):
        judge_transfer(logits, column)
