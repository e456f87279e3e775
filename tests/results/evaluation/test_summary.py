"""All metrics of a test set together, and the AUC in its subgroups."""

from __future__ import annotations

import io
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from chestfed.results.evaluation.estimates import as_csv, auc_estimates
from chestfed.results.evaluation.intervals import DEFAULT
from chestfed.results.evaluation.intervals.interval import Interval
from chestfed.results.evaluation.intervals.methods import Intervals, MethodName
from chestfed.results.evaluation.labeled import LEAST_PATIENTS, NO_DISEASE_COUNTS, Scored
from chestfed.results.evaluation.summary import MAIN, Summary, age_bands, summarize

NAMES = ("edema", "hernia")
METHODS: list[MethodName] = list(get_args(MethodName))


def summary(method: MethodName = DEFAULT, second: float | None = 0.0) -> tuple[Summary, np.ndarray, np.ndarray]:
    """Edema with both classes; hernia with one class, or none."""
    rng = np.random.default_rng(1)
    labels = np.stack([rng.integers(0, 2, 80), np.full(80, np.nan if second is None else second)], axis=1).astype(float)
    scores = np.clip(0.3 * np.nan_to_num(labels) + rng.random((80, 2)) * 0.7, 0, 1)
    data = Scored(scores, labels, np.arange(80) // 2, NAMES)
    columns = {"sex": pd.Categorical(["F", "M"] * 40)}
    return summarize(data, "study-mean", Intervals(method, 100), columns), scores, labels


def summarize_groups(data: Scored, values: object, how: Intervals) -> pd.DataFrame:
    """The AUCs of subgroups."""
    return summarize(data, "all-image", how, {"by": values}, probabilities=False).subgroups  # type: ignore[dict-item]


def ends(row: pd.Series) -> Interval | None:
    return None if np.isnan(row["low"]) else Interval(row["low"], row["high"])


def test_numbers_are_those_of_scikit_learn() -> None:
    result, scores, labels = summary()
    for metric, theirs in (
        ("auc", roc_auc_score),
        ("auprc", average_precision_score),
        ("brier", brier_score_loss),
    ):
        assert result.row("edema", metric)["value"] == pytest.approx(theirs(labels[:, 0], scores[:, 0]))


def test_one_class_is_null_and_not_in_mean() -> None:
    result, _, _ = summary()
    hernia = result.row("hernia")
    assert hernia[["value", "low", "high"]].isna().all()
    assert hernia["reason"] == "no positive image"
    assert (hernia["n"], hernia["positives"], hernia["negatives"]) == (80, 0, 80)
    assert np.isnan(result.row("hernia", "auprc")["value"])
    assert result.row("mean")["over_diseases"] == 1
    assert result.row("mean")["value"] == result.row("edema")["value"]


def test_a_disease_without_labels_says_so() -> None:
    result, _, _ = summary(second=None)
    hernia = result.metrics[result.metrics["disease"] == "hernia"]
    assert hernia["value"].isna().all()
    assert set(hernia["reason"]) == {"no labeled image"}


def test_every_row_says_what_it_is_over() -> None:
    result, _, _ = summary()
    for frame in (result.metrics, result.subgroups, result.reliability):
        assert set(frame["protocol"]) == {"study-mean"}
        assert frame["n"].notna().all()
        assert frame.loc[frame["disease"] != "mean", ["positives", "negatives"]].notna().all(axis=None)
        read = pd.read_csv(io.StringIO(as_csv(frame)), keep_default_na=False, na_values={"value": "", "low": ""})
        assert len(read) == len(frame)
        assert list(read["n"]) == list(frame["n"])  # whole numbers


@pytest.mark.parametrize("second", [0.0, None])
def test_order_has_no_calibration_and_reason(second: float | None) -> None:
    scored = Scored(
        np.random.default_rng(0).normal(size=(40, 1)), np.repeat([[0.0], [1.0]], 20, 0), np.arange(40), ["a"]
    )
    result = summarize(scored, "all-image", Intervals(resamples=20), probabilities=False)
    for metric in ("brier", "ece", "brier.resolution"):
        assert np.isnan(result.row("a", metric)["value"])
        assert result.row("a", metric)["reason"] == "the scores are an order, not probabilities"
    assert len(result.reliability) == 0
    assert result.row("a", "auprc")["value"] > 0


def test_method_is_of_the_auc_alone() -> None:
    usual, other = summary()[0], summary("percentile")[0]
    assert ends(usual.row("edema")) != ends(other.row("edema"))
    assert ends(usual.row("mean")) == ends(usual.row("edema"))  # of the one disease that has an AUC
    assert ends(usual.row("edema", "auprc")) == ends(other.row("edema", "auprc"))


def test_every_number_but_ece_has_interval() -> None:
    result, _, _ = summary()
    for metric in MAIN:
        value, low, high = result.row("edema", metric)[["value", "low", "high"]]
        if metric.startswith("ece"):
            assert np.isnan([low, high]).all()
        else:
            assert 0 <= low < value < high <= 1
    groups = result.subgroups[result.subgroups["disease"] != "hernia"]
    assert ((groups["low"] < groups["auc"]) & (groups["auc"] < groups["high"])).all()


def test_an_interval_that_lacks_says_why() -> None:
    labels = np.zeros((30, 2))
    labels[:3, 0] = 1
    patients = np.append([0, 0, 0], np.arange(27))
    scored = Scored(np.random.default_rng(0).random((30, 2)), labels, patients, NAMES)
    result = summarize(scored, "frontal-image", Intervals(resamples=20))
    assert result.metrics["low"].isna().all()
    for metric in ("auc", "auprc", "sensitivity_at_specificity_0.9", "brier"):
        assert result.row("edema", metric)["reason"] == "one patient with an image of a class: no interval"
    assert result.row("mean")["reason"] == NO_DISEASE_COUNTS
    assert result.row("hernia", "auprc")["reason"] == "no positive image"
    assert result.row("hernia", "brier")["reason"] == "no positive image: no interval"


def test_perfect_ranking_no_interval_point() -> None:
    """Sums of precisions come to 1 up to rounding only."""
    for positives in (2, 3, LEAST_PATIENTS - 1, LEAST_PATIENTS, 20, 30):
        labels = np.r_[np.ones(positives), np.zeros(30)][:, None]
        scored = Scored(np.linspace(1, 0, len(labels))[:, None], labels, np.arange(len(labels)), ["edema"])
        result = summarize(scored, "frontal-image", Intervals(resamples=50))
        for metric in ("auc", "auprc"):
            value, low, high = result.row("edema", metric)[["value", "low", "high"]]
            assert 1 - 1e-12 < value <= 1
            assert 0.1 < low < 0.9
            assert high == 1
        if positives >= LEAST_PATIENTS:
            assert result.row("mean")["low"] == result.row("edema")["low"]


@pytest.mark.parametrize("method", METHODS)
def test_one_patient_of_class_no_interval(method: MethodName) -> None:
    rng = np.random.default_rng(2)
    labels, patients = np.r_[1, 1, np.zeros(40)][:, None], np.r_[0, 0, np.arange(1, 41)]
    result = summarize(Scored(rng.random((42, 1)), labels, patients, ["edema"]), "frontal-image", Intervals(method))
    for disease in ("edema", "mean"):
        assert ends(result.row(disease)) is None
    assert "one patient" in result.row("edema")["reason"]
    assert result.row("mean")["reason"] == NO_DISEASE_COUNTS


def test_groups_judged_alone_missing_last() -> None:
    rng = np.random.default_rng(0)
    scored = Scored(rng.normal(size=(120, 2)), (rng.random((120, 2)) < 0.5).astype(float), np.arange(120), NAMES)
    sex = np.array(["M", "F", None], dtype=object)[rng.integers(0, 3, 120)]
    table = summarize_groups(scored, sex, Intervals(resamples=20))
    assert list(table["group"].unique()) == ["F", "M", "missing", "within"]
    for name, rows in (("F", sex == "F"), ("M", sex == "M"), ("missing", pd.isna(sex))):
        group = table[table["group"] == name]
        aucs = [roc_auc_score(scored.labels[rows, j], scored.scores[rows, j]) for j in range(2)]
        assert set(group["group_n"]) == {rows.sum()}
        assert list(group["auc"]) == pytest.approx([*aucs, np.mean(aucs)], abs=1e-12)


def test_subgroup_without_number_has_reason() -> None:
    labels = np.array([[1], [1], [0], [np.nan], [1.0]])
    scored = Scored(np.arange(5.0)[:, None], labels, np.arange(5), ["edema"])
    table = summarize_groups(scored, ["pa", "ap", "ap", "ap", "pa"], Intervals()).set_index(["group", "disease"])
    over = ["positives", "negatives", "missing"]
    assert (table.loc[("ap", "edema"), "auc"], list(table.loc[("ap", "edema"), over])) == (0, [1, 1, 1])
    assert (np.isnan(table.loc[("pa", "edema"), "auc"]), list(table.loc[("pa", "edema"), over])) == (True, [2, 0, 0])
    assert table.loc[("pa", "edema"), "reason"] == "no negative image"
    assert table.loc[("pa", "mean"), "reason"] == NO_DISEASE_COUNTS
    data = Scored(np.arange(5.0)[:, None], np.array([[1], [1], [0], [0], [0.0]]), np.array([1, 1, 2, 3, 4]), ["edema"])
    assert set(summarize_groups(data, ["F"] * 5, Intervals())["reason"]) == {
        "one patient with an image of a class: no interval",
        NO_DISEASE_COUNTS,
    }


@pytest.mark.parametrize("method", METHODS)
def test_subgroup_intervals_are_of_images(method: MethodName) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random((90, 2)) < 0.4).astype(float)
    patients, sex = np.sort(rng.integers(0, 50, 90)), np.repeat(["F", "M"], 45)
    scored, how = Scored(labels + rng.normal(size=(90, 2)), labels, patients, NAMES), Intervals(method, 50, 3)
    women = summarize_groups(scored, sex, how).query("group == 'F'")
    expected = auc_estimates(scored.where(sex == "F"), how)
    assert [ends(row) for _, row in women.iterrows()] == [estimate.interval for estimate in expected]
    assert ((women["low"] < women["auc"]) & (women["auc"] < women["high"])).all()


def test_age_bands_keep_order_and_edges() -> None:
    bands = age_bands(np.array([80, 39.9, 40, np.nan, 59, 100]))
    assert list(bands.categories) == ["<40", "40-59", "60-79", ">=80"]
    assert list(bands)[:3] == [">=80", "<40", "40-59"]
    groups = summarize_groups(Scored(np.zeros((6, 1)), np.zeros((6, 1)), np.arange(6), ["edema"]), bands, Intervals())
    groups = groups[groups["disease"] == "mean"]
    named = list(zip(groups["group"], groups["group_n"], strict=True))
    assert named == [("<40", 1), ("40-59", 2), (">=80", 2), ("missing", 1)]


def test_column_of_another_length_is_refused() -> None:
    scored = Scored(np.zeros((3, 1)), np.zeros((3, 1)), np.arange(3), ["edema"])
    with pytest.raises(ValueError, match="2 values of by do not fit 3 images"):
        summarize_groups(scored, ["F", "M"], Intervals())
