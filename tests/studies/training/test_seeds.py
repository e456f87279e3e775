"""Every K with several training seeds, through the command: tables, test, page, record, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
import submitit
from filelock import FileLock
from mlflow import MlflowClient

from chestfed.core.errors import ChestfedError
from chestfed.leaves.slurm import executor as cluster
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.evaluation.training_seeds import seeds_test
from chestfed.results.tables.predictions import load_predictions
from chestfed.studies import jobs
from chestfed.studies.training.data.experiment import Experiment
from tests.cases import assert_refused
from tests.command_line import Called
from tests.studies.training.tiny_studies import Forks, command, run, study


def list_folders(home: Path) -> list[Path]:
    """The run folders of seeds 1 and 2."""
    folders = (home / "runs").glob("synthetic-source_addition_samples-*")
    return sorted(folders, key=lambda folder: json.loads((folder / "study.json").read_text())["configuration"]["seed"])


@pytest.fixture(scope="module")
def alone(home: Path) -> Path:
    """The run folder of seed 2, run by itself."""
    assert run(home, command("runs", "--no-tracking", "--seed", "2")).code == 0
    (folder,) = list_folders(home)
    return folder


@pytest.fixture(scope="module")
def both_seeds(home: Path, alone: Path) -> Called:
    """What the command with both seeds printed."""
    assert alone.is_dir()
    called = run(home, command("runs", "--seeds", "2"))
    assert called.code == 0, called.err
    return called


@pytest.mark.slow
def test_parallel_seeds_have_same_tables(home: Path, both_seeds: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "WorkerContext", Forks)
    called = run(home, command("at_once", "--no-tracking", "--seeds", "2", "--jobs", "2"))
    assert called.code == 0, called.err
    for name in ("table.csv", "k2/predictions.parquet", "k2/model.safetensors"):
        one_by_one, at_once = (
            [file.read_bytes() for file in sorted((home / runs).glob(f"synthetic-source_addition_samples-*/{name}"))]
            for runs in ("runs", "at_once")
        )
        assert one_by_one == at_once
        assert len(at_once) == 2


def test_parallel_ks_have_same_tables(home: Path, both_seeds: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "WorkerContext", Forks)
    called = run(home, command("several_k", "--no-tracking", "--jobs", "2"))
    assert called.code == 0, called.err
    (several,) = (home / "several_k").glob("synthetic-source_addition_samples-*")
    for name in ("table.csv", "significance.csv", "k1/rounds.jsonl", "k2/rounds.jsonl", "k2/model.safetensors"):
        assert (several / name).read_bytes() == (home / "runs" / several.name / name).read_bytes(), name
    assert "2 K, 2 at a time" in called.out + called.err
    alone = run(home, study("--no-tracking", "--jobs", "2", "--k", "2"))
    assert "this is a single run" in alone.err


@pytest.mark.slow
def test_seeds_as_cluster_jobs(home: Path, both_seeds: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "cluster.yaml").write_text("scheduler: local\nparameters: {timeout_min: 10}\n")
    with FileLock(list_folders(home)[1] / ".lock"):
        called = run(home, command("runs", "--seeds", "1,2", "--cluster", "cluster.yaml"))
    assert "not recorded in MLflow" in called.err + called.out
    assert len(list((home / "runs" / "jobs").glob("*_0_log.out"))) == 2
    assert not (home / "runs" / "jobs" / "%j").exists()
    assert called.code == 1
    assert "1 of 2 jobs failed" in called.err
    assert re.search(r"seed 2, K=1, 2: .*another process is running this study", called.err)
    assert "seed 1, K=1, 2: " not in called.err
    in_processes = submitit.AutoExecutor
    with monkeypatch.context() as patch:
        patch.setattr(submitit, "AutoExecutor", lambda folder, cluster: in_processes(folder, cluster="debug"))
        called = run(home, command("runs", "--seeds", "1,2", "--cluster", "cluster.yaml"))
        assert (called.code, "2/2: " in called.out) == (0, True), called.err
    for wrong in ("no_such_parameter: 1", "timeout_min: x"):
        (home / "cluster.yaml").write_text(f"scheduler: local\nparameters: {{{wrong}}}\n")
        err = run(home, command("runs", "--seeds", "1,2", "--cluster", "cluster.yaml")).err
        assert re.search(f"error: cluster.yaml: .*{wrong.partition(':')[0]}", err)


def test_stopped_cluster_job_is_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "prepare_machine", lambda runtime: None)
    monkeypatch.setattr(cluster, "run_study", lambda *given: os.kill(os.getpid(), signal.SIGTERM))
    with assert_refused(ChestfedError, "stopped"):
        cluster.JobTraining()(MagicMock(experiment=Experiment(MagicMock(), MagicMock())), None)


@pytest.fixture(scope="module")
def summary(home: Path, both_seeds: Called) -> Path:
    """The folder of both seeds."""
    assert both_seeds.code == 0
    (folder,) = (home / "runs").glob("synthetic-comparison-*")
    return folder


@pytest.mark.slow
def test_finished_seeds_are_reused(home: Path, alone: Path, both_seeds: Called) -> None:
    assert both_seeds.out.count("from the earlier run") == 2
    folders = list_folders(home)
    assert len(folders) == 2
    assert alone == folders[1]
    assert all((folder / f"k{k}" / "result.json").is_file() for folder in folders for k in (1, 2))
    assert len(list((home / "runs").glob("synthetic-pretrained-*"))) == 2
    again = run(home, command("runs", "--no-tracking", "--seeds", "1,2"))
    assert (again.code, again.out.count("from the earlier run")) == (0, 4)
    assert len(list((home / "runs").glob("synthetic-comparison-*"))) == 1


def test_table_over_seeds(home: Path, summary: Path) -> None:
    table = pd.read_csv(summary / "table.csv").set_index(["model", "disease"])
    aucs = pd.concat([pd.read_csv(folder / "table.csv") for folder in list_folders(home)])
    expected = aucs.groupby(["k", "disease"])["auc"].agg(["mean", "std"])
    assert len(table) == len(expected) == 12
    for (k, disease), (mean, spread) in zip(expected.index, expected.to_numpy(), strict=True):
        row = table.loc[(f"K={k}", disease)]
        assert (row["auc"], row["sd"]) == (pytest.approx(mean), pytest.approx(spread))
        assert (row["seeds"], row["data"]) == (2, "synthetic")


def test_differences_over_seeds(home: Path, summary: Path) -> None:
    table = pd.read_csv(summary / "significance.csv").set_index("disease")
    runs = {k: [load_predictions(folder, k) for folder in list_folders(home)] for k in (1, 2)}
    diseases = list(runs[1][0].diseases)
    scored: dict[int, list[Scored]] = {k: [run.scored(diseases)[0] for run in seeds] for k, seeds in runs.items()}
    first = scored[1][0]
    for name, row in table.iterrows():
        columns = [diseases.index(str(name))] if name in diseases else list(range(len(diseases)))
        few, many = ([np.asarray(data.scores[:, columns]) for data in scored[k]] for k in (1, 2))
        expected = seeds_test(few, many, first.labels[:, columns], np.asarray(first.patients))
        assert row["difference"] == pytest.approx(expected.difference)
        assert expected.interval is not None
        low, high = max(expected.interval.low, -1), min(expected.interval.high, 1)
        assert (row["low"], row["high"], row["p"]) == pytest.approx((low, high, expected.p))


def test_compare_equals_study(home: Path, summary: Path) -> None:
    first, second = list_folders(home)
    pairs = [str(folder / f"k{k}") for folder in (second, first) for k in (1, 2)]  # in any order of the seeds
    called = run(home, ["", "", "", "compare", "--group-seeds", "--out", "paired", *pairs])
    assert called.code == 0, called.err
    columns = ["disease", "difference", "low", "high", "p", "p_holm", "seed_sd_model"]
    ours, theirs = (
        pd.read_csv(file)[columns] for file in (home / "paired/differences.csv", summary / "significance.csv")
    )
    pd.testing.assert_frame_equal(ours, theirs)
    called = run(home, ["", "", "", "compare", "--out", "single", str(second / "k1"), str(second / "k2")])
    assert called.code == 0, called.err
    columns = ["disease", "difference", "p", "reason"]
    ours, theirs = (pd.read_csv(f)[columns] for f in (home / "single/differences.csv", second / "significance.csv"))
    pd.testing.assert_frame_equal(ours, theirs)
    assert ours["p"].isna().all()
    assert ours["reason"].str.contains("one training seed").all()


def test_headline_over_seeds(home: Path, both_seeds: Called, summary: Path) -> None:
    headline = json.loads((summary / "comparison.json").read_text())["verdict"]
    mean = pd.read_csv(summary / "significance.csv").set_index("disease").loc["mean"]
    for part in ("two training runs", f"{abs(mean['difference']):.3f}", "of them"):
        assert part in headline
    assert " ".join(headline.replace("−", "-").split()) in " ".join(both_seeds.out.split())
    assert run(home, ["", "", "", "report", str(summary)]).code == 0
    page = (summary / "report.html").read_text()
    assert headline.partition("? ")[2] in page
    assert all(folder.name in page for folder in list_folders(home))
    assert "seed 2" in page


@pytest.mark.slow
def test_one_seed_has_no_p_value(home: Path, alone: Path) -> None:
    called = run(home, command("runs", "--no-tracking", "--seed", "2"))
    assert run(home, ["", "", "", "report", str(alone)]).code == 0
    page = (alone / "report.html").read_text()
    for text in (called.out, page):
        assert "one training run" in " ".join(text.split())
        assert " p 0." not in text
        assert "p &lt; 0" not in text
        assert "Holm" not in re.sub(r"base64,[^\"]*", "", text)  # pictures may have any letters
    assert pd.read_csv(alone / "significance.csv").filter(regex="(^|_)p(_|$)").isna().all(axis=None)


def test_mlflow_has_run_of_seeds(home: Path, summary: Path) -> None:
    client = MlflowClient(f"sqlite:///{home / 'runs' / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(experiments, "tags.kind = 'summary'")
    for member in [run, *client.search_runs(experiments, "tags.kind = 'study'")]:
        assert "report.html" not in {file.path for file in client.list_artifacts(member.info.run_id)}
    mean = pd.read_csv(summary / "significance.csv").set_index("disease").loc["mean"]
    assert run.data.metrics["gain"] == pytest.approx(mean["difference"], abs=0.00005)
    assert run.data.metrics["p_value"] == pytest.approx(mean["p"], abs=0.00005)
    assert {"mean_auc/K1", "mean_auc/K2", "mean_auc_sd/K2"} <= set(run.data.metrics)
    assert {"table.csv", "significance.csv"} <= {file.path for file in client.list_artifacts(run.info.run_id)}


@pytest.mark.slow
def test_a_dry_run_says_what_is_finished(home: Path, alone: Path) -> None:
    called = run(home, command("runs", "--dry-run", "--seeds", "2,3"))
    lines = [line for line in called.out.splitlines() if "finished" in line]
    assert len(lines) == 1
    assert re.search(rf"seed 2, .*K=1, 2 finished in runs/{alone.name}, if no image has changed", lines[0])


def test_dry_run_counts_all_runs(home: Path) -> None:
    called = run(home, command("nowhere", "--dry-run", "--seeds", "4,9-10"))
    assert called.code == 0, called.err
    output = " ".join(called.out.split())
    assert "3 studies" in output
    assert "6 runs" in output
    assert all(f"seed {seed}, K=1, 2" in output for seed in (4, 9, 10))
    assert not (home / "nowhere").exists()


@pytest.mark.parametrize(
    "options",
    [
        *(("--seeds", text) for text in ("0", "-2", "a", "1,1", "3,", "1.5", "", "6-2", "1-", "1,1-2", "1-9999999999")),
        ("--seeds", "3,4", "--seed", "3"),
    ],
)
def test_wrong_seeds_are_a_usage_error(home: Path, options: tuple[str, ...]) -> None:
    called = run(home, command("nowhere", *options))
    assert called.code == 2
    assert "--seeds" in called.err
    assert not (home / "nowhere").exists()


def test_hospitals_over_seeds(home: Path, summary: Path) -> None:
    hospitals, gains = (pd.read_csv(summary / name) for name in ("hospitals.csv", "hospital_gains.csv"))
    each = pd.concat(pd.read_csv(folder / "hospitals.csv") for folder in list_folders(home))
    keys = ["hospital", "k", "disease"]
    of_seeds = each.groupby(keys)["auc"].agg(["mean", "std"])
    np.testing.assert_allclose(hospitals.set_index(keys)[["auc", "sd"]].loc[of_seeds.index], of_seeds, equal_nan=True)
    assert (hospitals["seeds"] == 2).all()
    means = gains.query("disease == 'mean'")
    assert means["hospital"].tolist() == ["chexpert", "chestxray8"]
    assert means["p"].notna().all()
    assert (means["p_holm"] >= means["p"]).all()
