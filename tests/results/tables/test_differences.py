"""Finished models compared on the same images."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from chestfed.core.errors import ConfigError
from chestfed.results.evaluation.comparison import ONE_SEED, compare, holm
from chestfed.results.evaluation.intervals import MethodName
from chestfed.results.evaluation.intervals.degrees_of_freedom import count_effective_patients
from chestfed.results.evaluation.joining.planning import find_seeds, learn
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.training_seeds import SeedsTest, seeds_test
from chestfed.results.tables.answer import compare_models, describe_resolution
from chestfed.results.tables.collect import collect
from chestfed.results.tables.differences import compare_with_first
from chestfed.results.tables.frames import list_records
from chestfed.results.tables.predictions import group_seeds, load_predictions
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.sentences import describe_comparison
from chestfed.results.tables.settings import summarize_hospitals
from chestfed.results.tables.views import make_seeds_grid
from tests.cases import assert_refused
from tests.results.tables.finished_runs import IMAGES, NAMES, labels_and_patients, write_run


def test_run_compared_at_largest_or_named_k(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    assert "K=2" in load_predictions(folder).name
    assert "K=1" in load_predictions(folder, 1).name
    assert "K=1" in load_predictions(folder / "k1").name
    with chdir(folder / "k1"):
        assert (
            load_predictions(Path()).name
            == load_predictions(Path("predictions.parquet")).name
            == load_predictions(folder / "k1").name
        )
    with assert_refused(ConfigError, "no such K", finished=(1, 2)):
        load_predictions(folder, 3)
    for part in (folder / "k1", folder / "k1" / "predictions.parquet"):
        assert "K=1" in load_predictions(part, 1).name
        with assert_refused(ConfigError, "another K", k=1):
            load_predictions(part, 2)


def compare_ks(folders: list[Path], interval: MethodName = "obuchowski") -> pd.DataFrame:
    """The stored form of every K minus the smallest."""
    results = collect([RunFolder(folder) for folder in folders], interval=interval)
    return results.gains("study")


def test_numbers_are_those_of_the_evaluation(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    rows = compare_with_first([load_predictions(folder, 1), load_predictions(folder, 2)], 50).to_dict("records")
    labels, patients = labels_and_patients()
    runs = []
    for k in (1, 2):
        frame = pd.read_parquet(folder / f"k{k}" / "predictions.parquet")
        scores = frame[[f"score_{name}" for name in NAMES]].to_numpy(np.float64)
        runs.append([Scored(scores, labels.astype(np.float64), patients, NAMES)])
    for row, difference, untested in zip(rows, compare(*runs, 50), compare(*runs, 50, untested=ONE_SEED), strict=True):
        assert (row["difference"], (row["low"], row["high"])) == (difference.difference, difference.interval)
        assert difference.p is not None
        assert np.isnan([row["p"], row["p_holm"]]).all()
        assert row["reason"] == untested.reason == ONE_SEED


@pytest.mark.slow
def test_every_k_of_seeds_corrected_together(tmp_path: Path) -> None:
    frame = compare_ks([write_run(tmp_path / f"a{seed}", seed=seed, ks=(1, 2, 3)) for seed in (4, 2, 3)])
    assert set(frame["data"]) == {"synthetic"}
    assert list(zip(frame["reference"], frame["model"], strict=True))[::3] == [("K=1", "K=2"), ("K=1", "K=3")]
    assert frame["disease"].tolist() == [*NAMES, "mean"] * 2
    assert frame["n"].tolist() == [IMAGES - 1, IMAGES, IMAGES] * 2
    for rows in (frame[frame["disease"] != "mean"], frame[frame["disease"] == "mean"]):
        assert rows["p_holm"].tolist() == holm(rows["p"].tolist())


def test_several_seeds_have_their_own_test(tmp_path: Path) -> None:
    frame = compare_ks([write_run(tmp_path / f"a{seed}", seed=seed) for seed in (3, 1, 2)])
    labels, patients = labels_and_patients()
    frames = {
        k: [pd.read_parquet(tmp_path / f"a{s}" / f"k{k}" / "predictions.parquet") for s in (1, 2, 3)] for k in (1, 2)
    }
    for names, row in zip([[NAMES[0]], [NAMES[1]], NAMES], frame.to_dict("records"), strict=True):
        columns, places = [f"score_{name}" for name in names], [NAMES.index(name) for name in names]
        runs = [[frame[columns].to_numpy(float) for frame in frames[k]] for k in (1, 2)]
        expected = seeds_test(*runs, labels.astype(float)[:, places], patients)
        assert expected.interval is not None
        low, high = max(expected.interval.low, -1.0), min(expected.interval.high, 1.0)
        assert (row["low"], row["high"], row["p"]) == (low, high, expected.p)
        assert list(json.loads(row["of_seeds"]).values()) == pytest.approx(expected.of_seeds)
    grid = make_seeds_grid(frame)
    assert grid is not None
    assert [line.head for line in grid.lines] == ["seed 1", "seed 2", "seed 3"]
    assert grid.caption == "K=2 minus K=1, by training seed"
    mean, resolution = frame.iloc[-1], describe_resolution(list_records(frame)[-1])
    assert f"{mean['detectable']:.3f}" in resolution
    test = SeedsTest(mean["difference"], expected.of_seeds, expected.error, expected.seeds_share, expected.freedom)
    needed = find_seeds(learn(test, ()), abs(mean["difference"]))
    assert needed is None or mean["seeds_needed"] == needed


def test_every_pair_has_a_line_per_seed(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a{seed}", seed=seed, ks=(1, 2, 3)) for seed in (1, 2)]
    grid = make_seeds_grid(compare_ks(runs))
    assert grid is not None
    assert [line.head for line in grid.lines] == [f"K={k}, seed {seed}" for k in (2, 3) for seed in (1, 2)]
    assert grid.caption == "AUC minus that of K=1, by training seed"


def test_one_seed_has_intervals_and_no_p(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", ks=(1, 2, 3))
    frame = compare_ks([folder])
    assert frame[["p", "p_holm"]].isna().all(axis=None)
    assert frame["low"].notna().all()
    assert "--seeds" not in describe_comparison(frame)[0][0]
    *diseases, mean = frame[frame["model"] == "K=2"].to_dict("records")
    labels, patients = labels_and_patients()
    freedom = count_effective_patients(labels.astype(float), patients) - 1
    limit = stats.t.ppf(0.975, freedom)
    error = (mean["high"] - mean["low"]) / 2 / limit
    assert stats.nct.sf(limit, freedom, mean["detectable"] / error) == pytest.approx(0.8)
    assert all(np.isnan(row["detectable"]) for row in diseases)
    assert compare_ks([write_run(tmp_path / "b", ks=(2,))]).empty


def test_a_model_is_the_same_as_itself(tmp_path: Path) -> None:
    run = load_predictions(write_run(tmp_path / "a"))
    text = compare_models(list_records(compare_with_first([run, run], 20)))
    assert f"{run.name} (2) gives the same scores as {run.name}" in text
    assert describe_resolution(list_records(compare_with_first([run, run], 20))[-1]) == ""


def test_other_images_refused_and_counted(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", images=7)
    with assert_refused(ConfigError, "other images", differ=(7, 7)):
        compare_with_first([load_predictions(a), load_predictions(b)], 20)


@pytest.mark.usefixtures("unchecked")
def test_damaged_predictions_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    file = run / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    for column, value, kind in (("score_edema", np.nan, "missing scores"), ("label_edema", 2, "invalid label")):
        changed = frame.copy()
        changed.loc[5, column] = value
        changed.to_parquet(file, index=False)
        with assert_refused(ConfigError, kind, file=file, disease="edema"):
            load_predictions(run)
    frame.drop(columns="label_edema").to_parquet(file, index=False)
    with assert_refused(ConfigError, "not predictions", file=file):
        load_predictions(run)


@pytest.mark.usefixtures("unchecked")
def test_one_rare_disease_takes_no_interval(tmp_path: Path) -> None:
    """A disease with one positive patient has no interval; the mean of the others keeps theirs."""
    runs = [write_run(tmp_path / name, seed=seed) for seed, name in ((1, "a"), (2, "b"))]
    for run in runs:
        file = run / "k2" / "predictions.parquet"
        frame = pd.read_parquet(file)
        frame.assign(label_edema=(frame.index == 7).astype(float)).to_parquet(file, index=False)
    table = compare_with_first([load_predictions(run) for run in runs], 20)
    edema, atelectasis, mean = table.to_dict("records")
    assert np.isnan(edema["low"])
    assert edema["reason"] == "one patient with an image of a class: no interval"
    assert not edema["in_mean"]
    assert [mean[name] for name in ("difference", "low", "high")] == [
        atelectasis[name] for name in ("difference", "low", "high")
    ]


@pytest.mark.usefixtures("unchecked")
def test_order_of_images_does_not_matter(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=2)
    straight = compare_with_first([load_predictions(a), load_predictions(b)], 20)
    file = b / "k2" / "predictions.parquet"
    pd.read_parquet(file).sample(frac=1, random_state=0).to_parquet(file, index=False)
    pd.testing.assert_frame_equal(compare_with_first([load_predictions(a), load_predictions(b)], 20), straight)


@pytest.mark.usefixtures("unchecked")
def test_other_labels_are_refused(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    file = b / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    frame.assign(label_edema=1 - frame["label_edema"]).to_parquet(file, index=False)
    with assert_refused(ConfigError, "other labels"):
        compare_with_first([load_predictions(a), load_predictions(b)], 20)


@pytest.mark.slow
def test_seeds_of_same_settings_one_model(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (1, 2)]
    runs += [write_run(tmp_path / f"b{seed}", seed=seed, lr=0.5) for seed in (3, 4, 5)]
    grouped = group_seeds([load_predictions(run) for run in runs])
    assert [len(group.frames) for group in grouped] == [2, 3]
    table = compare_with_first(grouped, 20)
    assert table[["seeds_reference", "seeds_model"]].iloc[0].tolist() == [2, 3]
    assert "2 seeds" in table["reference"].iloc[0]
    assert table["p"].isna().all()
    assert table["reason"].str.contains("not the same training seeds").all()
    assert table["low"].notna().all()


def test_repeated_seed_is_refused(tmp_path: Path) -> None:
    run = load_predictions(write_run(tmp_path / "a"))
    with assert_refused(ConfigError, "repeated seed", run=run.name):
        group_seeds([run, run])


@pytest.mark.usefixtures("unchecked")
def test_seeds_with_other_labels_are_refused(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (1, 2)]
    file = runs[1] / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    frame.assign(label_edema=1 - frame["label_edema"]).to_parquet(file, index=False)
    with assert_refused(ConfigError, "other labels"):
        group_seeds([load_predictions(run) for run in runs])


def test_seed_spread_is_beside_the_intervals(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    runs = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (1, 2, 3)]
    alone = write_run(tmp_path / "b", seed=4, lr=0.5)
    options = ["--k", 2, "--group-seeds", "--resamples", 20, "--out", tmp_path / "out"]
    printed = chestfed("compare", *runs, alone, *options).out
    assert "Standard deviation of the AUC over the seeds" in printed
    assert "one seed" in printed
    aucs = []
    for run in runs:
        frame = pd.read_parquet(run / "k2" / "predictions.parquet").dropna()
        aucs.append(roc_auc_score(frame["label_edema"], frame["score_edema"]))
    table = pd.read_csv(tmp_path / "out" / "differences.csv").set_index("disease")
    assert table.loc["edema", "seed_sd_reference"] == pytest.approx(np.std(aucs, ddof=1))
    assert table["seed_sd_reference"].notna().all()
    assert table["seed_sd_model"].isna().all()


def test_command_prints_writes_differences(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=2)
    called = chestfed("compare", a, b, "--out", tmp_path / "out", "--resamples", 20)
    assert (called.code, "SYNTHETIC" in called.out) == (0, True)
    row = pd.read_csv(tmp_path / "out" / "differences.csv").iloc[-1]
    assert (row["data"], row["protocol"], row["n"]) == ("synthetic", "frontal-image", IMAGES)
    called = chestfed("compare", a)
    assert (called.code, "two models" in called.err) == (1, True)


def test_a_share_of_hospitals_is_of_those_compared() -> None:
    """Own data were trained at two hospitals of three: one of the two is below."""
    rows = [
        {"model": "K=3", "place": place, "disease": "mean", "auc": auc}
        for place, auc in (("a", 0.8), ("b", 0.6), ("c", 0.7))
    ]
    summary = summarize_hospitals(pd.DataFrame(rows), "K=1", {"a": 0.7, "b": 0.65, "c": None})
    assert summary.loc["K=3", ["losing", "hospitals"]].tolist() == [0.5, 2]
