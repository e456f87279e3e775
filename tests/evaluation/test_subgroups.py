"""AUC per subgroup."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from chestfed.evaluation.auc import auc_per_disease
from chestfed.evaluation.intervals.auc_intervals import Method, auc_intervals
from chestfed.evaluation.intervals.interval import Bounds
from chestfed.evaluation.subgroups import age_bands, auc_per_subgroup


def test_each_value_is_judged_on_its_own_images_and_the_missing_come_last() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(60, 2)), (rng.random((60, 2)) < 0.5).astype(float)
    sex = np.array(["M", "F", None], dtype=object)[rng.integers(0, 3, 60)]
    found = auc_per_subgroup(scores, labels, ["edema", "atelectasis"], sex, np.arange(60), resamples=20)
    assert [group.value for group in found] == ["F", "M", "missing"]
    for group, rows in zip(found, [sex == "F", sex == "M", pd.isna(sex)], strict=True):
        assert group.images == rows.sum()
        assert list(group.diseases) == auc_per_disease(scores[rows], labels[rows], ["edema", "atelectasis"])
        assert group.mean == np.mean([result.auc for result in group.diseases])


def test_a_subgroup_with_one_class_is_null_with_a_reason() -> None:
    labels = np.array([[1], [1], [0], [np.nan], [1.0]])
    found = auc_per_subgroup(np.arange(5.0)[:, None], labels, ["edema"], ["pa", "ap", "ap", "ap", "pa"], np.arange(5))
    ap, pa = (group.diseases[0] for group in found)
    assert (ap.auc, ap.positives, ap.negatives, ap.missing, ap.reason) == (0, 1, 1, 1, "")
    assert (pa.auc, pa.positives, pa.negatives, pa.missing, pa.reason) == (None, 2, 0, 0, "no negative image")
    assert found[1].mean is None


@pytest.mark.parametrize("method", ["bootstrap", "delong"])
def test_a_subgroups_intervals_are_those_of_its_images_alone(method: Method) -> None:
    rng = np.random.default_rng(0)
    labels, names = (rng.random((90, 2)) < 0.4).astype(float), ["edema", "atelectasis"]
    scores, patients, sex = labels + rng.normal(size=(90, 2)), rng.integers(0, 50, 90), np.repeat(["F", "M"], 45)
    women, _ = auc_per_subgroup(scores, labels, names, sex, patients, method=method, resamples=50, seed=3)
    alone = (scores[:45], labels[:45])
    expected = auc_intervals(auc_per_disease(*alone, names), *alone, patients[:45], method, 50, 3)
    assert women.intervals == expected
    for auc, bounds in zip(women.diseases, women.intervals.diseases, strict=True):
        assert auc.auc is not None
        assert bounds.interval is not None
        assert bounds.interval.low < auc.auc < bounds.interval.high
    assert women.mean is not None
    assert expected.mean.interval is not None
    assert expected.mean.interval.low < women.mean < expected.mean.interval.high


def test_a_subgroup_with_one_positive_patient_says_why_it_has_no_interval() -> None:
    labels = np.array([[1], [1], [0], [0], [0.0]])
    (found,) = auc_per_subgroup(np.arange(5.0)[:, None], labels, ["edema"], ["F"] * 5, np.array([1, 1, 2, 3, 4]))
    assert found.intervals.diseases == (Bounds(None, "one patient with an image of a class: no interval"),)
    assert found.intervals.mean == found.intervals.diseases[0]


def test_age_bands_keep_their_order_and_begin_at_their_edge() -> None:
    bands = age_bands(np.array([80, 39.9, 40, np.nan, 59, 100]))
    assert list(bands.categories) == ["<40", "40-59", "60-79", ">=80"]
    assert bands.tolist()[:3] == [">=80", "<40", "40-59"]
    groups = auc_per_subgroup(np.zeros((6, 1)), np.zeros((6, 1)), ["edema"], bands, np.arange(6))
    assert [(group.value, group.images) for group in groups] == [("<40", 1), ("40-59", 2), (">=80", 2), ("missing", 1)]


def test_a_column_of_another_length_and_edges_that_do_not_rise_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values do not fit 3 images"):
        auc_per_subgroup(np.zeros((3, 1)), np.zeros((3, 1)), ["edema"], ["F", "M"], np.arange(3))
    with pytest.raises(ValueError, match="must rise"):
        age_bands(np.array([1.0]), (60, 40))
