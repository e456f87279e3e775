"""All metrics of a test set together."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from chestfed.evaluation.summary import Summary, summarize
from chestfed.evaluation.summary_files import as_json, metrics_csv, reliability_csv, subgroups_csv

NAMES = ("edema", "hernia")


def summary(method: str = "bootstrap", second: float | None = 0.0) -> tuple[Summary, np.ndarray, np.ndarray]:
    """Edema with both classes; hernia with one class, or none."""
    rng = np.random.default_rng(1)
    labels = np.stack([rng.integers(0, 2, 80), np.full(80, np.nan if second is None else second)], axis=1).astype(float)
    scores = np.clip(0.3 * np.nan_to_num(labels) + rng.random((80, 2)) * 0.7, 0, 1)
    columns = {"sex": pd.Categorical(["F", "M"] * 40)}
    found = summarize(
        scores,
        labels,
        np.arange(80) // 2,
        NAMES,
        "study-mean",
        method=method,  # type: ignore[arg-type]
        resamples=100,
        columns=columns,
    )
    return found, scores, labels


def test_the_numbers_are_those_of_scikit_learn() -> None:
    found, scores, labels = summary()
    edema = found.diseases[0].values()
    assert edema["auc"] == pytest.approx(roc_auc_score(labels[:, 0], scores[:, 0]))
    assert edema["auprc"] == pytest.approx(average_precision_score(labels[:, 0], scores[:, 0]))
    assert edema["brier"] == pytest.approx(brier_score_loss(labels[:, 0], scores[:, 0]))


def test_a_disease_of_one_class_is_null_with_its_reason_and_not_in_the_mean() -> None:
    found, _, _ = summary()
    plain = as_json(found)
    hernia = plain["diseases"]["hernia"]
    assert (hernia["auc"], hernia["auprc"], hernia["auc_interval"]) == (None, None, None)
    assert hernia["reason"] == "no positive image"
    assert (hernia["n"], hernia["positives"], hernia["negatives"]) == (80, 0, 80)
    assert (plain["mean"]["auc"]["diseases"], plain["mean"]["auc"]["of"]) == (1, 2)
    assert plain["mean"]["auc"]["value"] == plain["diseases"]["edema"]["auc"]


def test_a_disease_without_labels_says_so() -> None:
    found, _, _ = summary(second=None)
    assert found.diseases[1].reason == "no labeled image"
    assert as_json(found)["diseases"]["hernia"]["brier"] is None


def test_every_line_of_the_files_says_what_it_is_over() -> None:
    found, _, _ = summary()
    head = {"data": "synthetic", "site": "here"}
    for text in (metrics_csv(found, head), subgroups_csv(found, head), reliability_csv(found, head)):
        frame = pd.read_csv(io.StringIO(text))
        assert set(frame["data"]) == {"synthetic"}
        assert set(frame["protocol"]) == {"study-mean"}
        assert frame["n"].notna().all()
        assert frame.loc[frame["disease"] != "mean", ["positives", "negatives"]].notna().all(axis=None)
    json.dumps(as_json(found), allow_nan=False)


def test_subgroups_partition_the_images() -> None:
    found, _, _ = summary()
    assert [(group.value, group.images) for group in found.subgroups["sex"]] == [("F", 40), ("M", 40)]


def test_delongs_interval_is_an_option_and_says_its_name() -> None:
    bootstrap, delong = summary()[0], summary("delong")[0]
    assert bootstrap.diseases[0].interval("auc") != delong.diseases[0].interval("auc")
    assert bootstrap.means["auc"].bounds != delong.means["auc"].bounds
    assert delong.means["auc"].bounds == delong.diseases[0].bounds["auc"]  # of the one disease that has an AUC
    assert "DeLong" in as_json(delong)["interval"]
    assert "bootstrap" in as_json(delong)["interval_of_other_numbers"]
    assert bootstrap.diseases[0].interval("auprc") == delong.diseases[0].interval("auprc")


def test_every_number_but_the_ece_has_an_interval_around_it_in_the_files() -> None:
    found, _, _ = summary()
    frame = pd.read_csv(io.StringIO(metrics_csv(found, {})))
    edema = frame[frame["disease"] == "edema"].set_index("metric")
    plain = as_json(found)["diseases"]["edema"]
    for name, value in found.diseases[0].values().items():
        low, high = edema.loc[name, ["low", "high"]]
        if name.startswith("ece"):
            assert np.isnan([low, high]).all()
        else:
            assert 0 <= low < value < high <= 1  # type: ignore[operator]
            assert plain[f"{name}_interval"] == [low, high]
    groups = pd.read_csv(io.StringIO(subgroups_csv(found, {})))
    groups = groups[groups["disease"] != "hernia"]
    assert ((groups["low"] < groups["auc"]) & (groups["auc"] < groups["high"])).all()


def test_an_interval_that_lacks_says_why() -> None:
    labels = np.zeros((30, 2))
    labels[:3, 0] = 1
    patients = np.append([0, 0, 0], np.arange(27))
    found = summarize(np.random.default_rng(0).random((30, 2)), labels, patients, NAMES, "frontal-image", resamples=20)
    frame = pd.read_csv(io.StringIO(metrics_csv(found, {}))).set_index(["disease", "metric"])
    assert frame["low"].isna().all()
    for metric in ("auc", "auprc", "sensitivity_at_specificity_0.9", "brier"):
        assert frame.loc[("edema", metric), "reason"] == "one patient with an image of a class: no interval"
    assert frame.loc[("mean", "auc"), "reason"] == "one patient with an image of a class: no interval"
    assert frame.loc[("hernia", "auprc"), "reason"] == "no positive image"
    assert frame.loc[("hernia", "brier"), "reason"] == "no positive image: no interval"


def test_a_perfect_ranking_has_an_auprc_of_one_and_its_interval() -> None:
    """Sums of precisions come to 1 up to rounding only."""
    for positives in range(2, 31):
        labels = np.r_[np.ones(positives), np.zeros(30)][:, None]
        scores = np.linspace(1, 0, len(labels))[:, None]
        found = summarize(scores, labels, np.arange(len(labels)), ["edema"], "frontal-image", resamples=50).diseases[0]
        assert found.auprc is not None
        assert 1 - 1e-12 < found.auprc <= 1
        interval = found.interval("auprc")
        assert interval is not None
        assert (interval.high, interval.low > 0.1) == (1.0, True)


@pytest.mark.parametrize("method", ["bootstrap", "delong"])
def test_one_patient_of_a_class_has_no_interval_by_either_method(method: str) -> None:
    rng = np.random.default_rng(2)
    labels, patients = np.r_[1, 1, np.zeros(40)][:, None], np.r_[0, 0, np.arange(1, 41)]
    found = summarize(rng.random((42, 1)), labels, patients, ["edema"], "frontal-image", method=method)  # type: ignore[arg-type]
    assert found.diseases[0].interval("auc") is None
    assert "one patient" in found.diseases[0].bounds["auc"].reason
    assert found.means["auc"].bounds.interval is None
