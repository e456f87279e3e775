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
from sklearn.metrics import roc_auc_score

from chestfed.core.errors import ConfigError
from chestfed.evaluation.comparison import ONE_SEED, compare, holm
from chestfed.evaluation.labeled import Scored
from chestfed.evaluation.training_seeds import seeds_test
from chestfed.results.methods_text import of_differences
from chestfed.results.predictions import group_seeds, read_run
from chestfed.results.run_folder import RunFolder
from chestfed.results.significance import (
    compare_with_first,
    describe_resolution,
    from_json,
    of_study,
    seeds_grid,
    stored,
    verdict,
    write,
)
from tests.results.finished_runs import NAMES, labels_and_patients, write_run


def test_a_run_is_compared_at_its_largest_k_or_the_k_that_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    assert "K=2" in read_run(folder).name
    assert "K=1" in read_run(folder, 1).name
    assert "K=1" in read_run(folder / "k1").name
    with chdir(folder / "k1"):
        assert read_run(Path()).name == read_run(Path("predictions.parquet")).name == read_run(folder / "k1").name
    with pytest.raises(ConfigError, match="finished: K=1, K=2"):
        read_run(folder, 3)
    for part in (folder / "k1", folder / "k1" / "predictions.parquet"):
        assert "K=1" in read_run(part, 1).name
        with pytest.raises(ConfigError, match="is of K=1, not of K=2"):
            read_run(part, 2)


def test_the_numbers_are_those_of_the_paired_comparison(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    found = compare_with_first([read_run(folder, 1), read_run(folder, 2)], 50)
    labels, patients = labels_and_patients()
    runs = []
    for k in (1, 2):
        frame = pd.read_parquet(folder / f"k{k}" / "predictions.parquet")
        scores = frame[[f"score_{name}" for name in NAMES]].to_numpy(np.float64)
        runs.append([Scored(scores, labels.astype(np.float64), patients, NAMES)])
    assert found.comparisons == (compare(*runs, 50, untested=ONE_SEED),)
    with_p = compare(*runs, 50)
    for one, tested in zip(found.comparisons[0], with_p, strict=True):
        assert (one.difference, one.interval) == (tested.difference, tested.interval)
        assert tested.p is not None
        assert (one.p, one.p_holm) == (None, None)


def test_every_k_of_several_seeds_is_compared_with_the_smallest_and_corrected_together(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"a{seed}", seed=seed, ks=(1, 2, 3)) for seed in (4, 2, 3)]
    folder = tmp_path
    found = of_study(folders, (1, 2, 3), 50)
    assert found is not None
    assert (found.reference, found.others) == ("K=1", ("K=2", "K=3"))
    every = [one for comparison in found.comparisons for one in comparison[:-1]]
    assert [one.p_holm for one in every] == holm([one.p for one in every])
    write(found, folder, "significance")
    frame = pd.read_csv(folder / "significance.csv")
    assert set(frame["data"]) == {"synthetic"}
    assert frame["disease"].tolist() == [*NAMES, "mean"] * 2
    assert frame["n"].tolist() == [39, 40, 40] * 2
    means = [comparison[-1] for comparison in found.comparisons]
    assert [one.p_holm for one in means] == holm([one.p for one in means])
    assert of_study(folders, (2,), 50) is None
    assert from_json(json.loads((folder / "significance.json").read_text())) == found


def test_interval_p_and_the_sentence_of_several_seeds_are_those_of_the_test_over_seeds(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (3, 1, 2)]
    found = of_study(folders, (1, 2), 50)
    assert found is not None
    labels, patients = labels_and_patients()
    frames = {
        k: [pd.read_parquet(tmp_path / f"a{s}" / f"k{k}" / "predictions.parquet") for s in (1, 2, 3)] for k in (1, 2)
    }
    for names, one in zip([[NAMES[0]], [NAMES[1]], NAMES], found.comparisons[0], strict=True):
        columns, places = [f"score_{name}" for name in names], [NAMES.index(name) for name in names]
        runs = [[frame[columns].to_numpy(float) for frame in frames[k]] for k in (1, 2)]
        expected = seeds_test(*runs, labels.astype(float)[:, places], patients)
        assert expected.interval is not None
        assert one.auc_a is not None
        low, high = max(expected.interval.low, -one.auc_a), min(expected.interval.high, 1 - one.auc_a)
        assert (one.interval, one.p) == ((low, high), expected.p)
        assert one.of_seeds == pytest.approx(expected.of_seeds)
        assert one.difference == pytest.approx(expected.difference)
    assert found.trained == (1, 2, 3)
    by_seed = seeds_grid(found)
    assert by_seed is not None
    assert [line.head for line in by_seed.lines] == ["seed 1", "seed 2", "seed 3"]
    mean = found.comparisons[0][-1]
    higher = sum(one > 0 for one in mean.of_seeds if one is not None)
    said = verdict(found)
    assert f"{abs(mean.difference or 0):.3f}" in said
    assert f"in {higher} of 3 seeds" in said
    assert f"p {mean.p:.3f}" in said
    assert mean.detectable is not None
    assert f"{mean.detectable:.3f}" in describe_resolution(found)
    assert said.endswith(describe_resolution(found))
    more = of_study([write_run(tmp_path / f"b{seed}", seed=seed) for seed in range(5)], (1, 2), 50)
    assert more is not None
    enough = more.comparisons[0][-1]
    assert enough.seeds_needed is None
    shown = f"is detected with a power of 80% if it is {enough.detectable:.3f} or more."
    assert describe_resolution(more).endswith(f"5 training seeds a difference of the mean AUC {shown}")


def test_one_seed_shows_what_its_patients_show(tmp_path: Path) -> None:
    study = of_study([write_run(tmp_path / "a", ks=(1, 2))], (1, 2), 0, "obuchowski")
    assert study is not None
    *diseases, mean = study.comparisons[0]
    assert mean.interval is not None
    width = mean.interval.high - mean.interval.low
    assert mean.detectable == pytest.approx(width / 2 * (1.96 + 0.8416) / 1.96, rel=1e-4)
    assert all(one.detectable is None for one in diseases)
    assert verdict(study).endswith(f"if it is {mean.detectable:.3f} or more.")


def test_a_study_of_one_seed_has_intervals_and_no_p_value(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", ks=(1, 2, 3))
    found = of_study([folder], (1, 2, 3), 50)
    assert found is not None
    write(found, folder, "significance")
    assert stored(RunFolder(folder)) == found
    assert pd.read_csv(folder / "significance.csv")[["p", "p_holm"]].isna().all(axis=None)
    assert all(one.p is None and one.interval for comparison in found.comparisons for one in comparison)
    assert (" p " in verdict(found), "one training seed" in verdict(found).lower()) == (False, True)
    assert ("--seeds" in verdict(found), "--seeds" in of_differences(found)[0][0]) == (True, False)


def test_a_model_is_the_same_as_itself(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a"))
    said = verdict(compare_with_first([run, run], 20))
    assert said.startswith(f"With {run.name} (2) the mean AUC is the same as with {run.name}")


def test_other_images_are_refused_with_their_number(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", images=7)
    with pytest.raises(ConfigError, match="7 of 40 and 7 of 40 differ"):
        compare_with_first([read_run(a), read_run(b)], 20)


@pytest.mark.usefixtures("unchecked")
def test_predictions_without_a_score_or_with_another_label_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    file = run / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    for column, value in (("score_edema", np.nan), ("label_edema", 2)):
        changed = frame.copy()
        changed.loc[5, column] = value
        changed.to_parquet(file, index=False)
        with pytest.raises(ConfigError, match=rf"k2.predictions\.parquet: {column} "):
            read_run(run)
    frame.drop(columns="label_edema").to_parquet(file, index=False)
    with pytest.raises(ConfigError, match="not predictions of chestfed"):
        read_run(run)


@pytest.mark.usefixtures("unchecked")
def test_a_mean_without_an_interval_says_why(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, seed=seed) for seed, name in ((1, "a"), (2, "b"))]
    for run in runs:
        file = run / "k2" / "predictions.parquet"
        frame = pd.read_parquet(file)
        frame.assign(label_edema=(frame.index == 7).astype(float)).to_parquet(file, index=False)
    found = compare_with_first([read_run(run) for run in runs], 20)
    write(found, tmp_path, "differences")
    mean = pd.read_csv(tmp_path / "differences.csv").set_index("disease").loc["mean"]
    assert not np.isnan(mean["difference"])
    assert np.isnan(mean["low"])
    assert mean["reason"] == "one patient with an image of a class, in a disease: no interval"


@pytest.mark.usefixtures("unchecked")
def test_the_order_of_the_images_does_not_matter(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=2)
    straight = compare_with_first([read_run(a), read_run(b)], 20)
    file = b / "k2" / "predictions.parquet"
    pd.read_parquet(file).sample(frac=1, random_state=0).to_parquet(file, index=False)
    assert compare_with_first([read_run(a), read_run(b)], 20).comparisons == straight.comparisons


@pytest.mark.usefixtures("unchecked")
def test_other_labels_are_refused(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    file = b / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    frame.assign(label_edema=1 - frame["label_edema"]).to_parquet(file, index=False)
    with pytest.raises(ConfigError, match="labels"):
        compare_with_first([read_run(a), read_run(b)], 20)


def test_seeds_of_the_same_settings_are_one_model(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (1, 2)]
    runs += [write_run(tmp_path / f"b{seed}", seed=seed, lr=0.5) for seed in (3, 4, 5)]
    grouped = group_seeds([read_run(run) for run in runs])
    assert [len(one.frames) for one in grouped] == [2, 3]
    found = compare_with_first(grouped, 20)
    assert found.seeds == (2, 3)
    assert "2 seeds" in found.reference
    assert all(one.p is None and "not the same training seeds" in one.reason for one in found.comparisons[0])
    assert all(one.interval is not None for one in found.comparisons[0])


def test_a_seed_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a"))
    with pytest.raises(ConfigError, match="seed 1: given twice"):
        group_seeds([run, run])


@pytest.mark.usefixtures("unchecked")
def test_seeds_with_other_labels_are_refused(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (1, 2)]
    file = runs[1] / "k2" / "predictions.parquet"
    frame = pd.read_parquet(file)
    frame.assign(label_edema=1 - frame["label_edema"]).to_parquet(file, index=False)
    with pytest.raises(ConfigError, match="labels differ"):
        group_seeds([read_run(run) for run in runs])


def test_the_spread_over_seeds_stands_apart_from_the_intervals(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
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
    found = pd.read_csv(tmp_path / "out" / "differences.csv").set_index("disease")
    assert found.loc["edema", "seed_sd_reference"] == pytest.approx(np.std(aucs, ddof=1))
    assert found["seed_sd_reference"].notna().all()
    assert found["seed_sd_model"].isna().all()


def test_the_command_prints_and_writes_the_differences(tmp_path: Path, chestfed: Callable[..., Any]) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=2)
    called = chestfed("compare", a, b, "--out", tmp_path / "out", "--resamples", 20)
    assert (called.code, "SYNTHETIC" in called.out) == (0, True)
    found = json.loads((tmp_path / "out" / "differences.json").read_text())
    assert found["synthetic"] is True
    assert (found["protocol"], found["n"]) == ("frontal-image", 40)
    assert (tmp_path / "out" / "differences.csv").exists()
    called = chestfed("compare", a)
    assert (called.code, "two models" in called.err) == (1, True)
