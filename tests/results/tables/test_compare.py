"""A comparison of algorithms on tiny synthetic hospitals."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import chestfed
from chestfed.core.provenance import Origin
from chestfed.learning.algorithms import ALGORITHMS
from chestfed.reports.pages.page import make_page
from chestfed.results.tables.answer import list_metrics
from chestfed.results.tables.collect import (
    Results,
    collect,
    find_largest_windows,
    read_comparison,
    write_comparison,
)
from chestfed.results.tables.frames import make_differences, make_estimates
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.views import render_tables
from tests.command_line import Called, call
from tests.results.tables.finished_runs import IMAGES, NAMES, write_run
from tests.studies.training.tiny_studies import command


def compare(home: Path, *options: str) -> Called:
    return call(*command("runs", "--no-tracking", *options)[3:], folder=home, drawn=True)


@pytest.mark.slow
def test_algorithms_share_stage_1_and_images(home: Path) -> None:
    result = compare(home, "--methods", "codasca,coda", "--seeds", "2")
    assert result.code == 0, result.err
    runs = home / "runs"
    assert len(list(runs.glob("synthetic-pretrained-*"))) == 2  # one per seed
    assert len(list(runs.glob("synthetic-source_addition_samples-*"))) == 4
    (folder,) = runs.glob("synthetic-comparison-*")
    for picture in ("curves.png", "curves.svg"):
        assert (folder / picture).stat().st_size > 5_000
    results = pd.read_csv(folder / "results.csv")
    assert set(results["data"]) == {"synthetic"}
    assert results.groupby(["algorithm", "seed"]).size().tolist() == [5] * 4
    curves = pd.read_csv(folder / "curves.csv").groupby(["algorithm", "seed"]).last()
    steps, clients, batch = 8, 2, 2  # 2 stages of 4 steps
    large_batches = (2 - 1) * clients * 8 * batch  # CODA's, between the stages
    images = curves["images"].unstack()
    assert images.loc["codasca"].tolist() == [steps * clients * batch] * 2
    assert images.loc["coda"].tolist() == [steps * clients * batch + large_batches] * 2
    assert curves["gradients"].tolist() == [steps * clients] * 4
    assert curves["round"].unstack().loc["codasca"].tolist() == [4] * 2
    assert (curves["bytes"] == curves["bytes_up"] + curves["bytes_down"]).all()
    again = compare(home, "--methods", "codasca,coda", "--seeds", "2")
    assert again.out.count("from the earlier run") == 4


@pytest.mark.slow
def test_every_algorithm_runs_in_the_study(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.results.evaluation.labeled.LEAST_PATIENTS", 1)  # the tiny hospitals have fewer
    names = [name for name in ALGORITHMS.built_in if name not in ("codasca", "coda")]
    result = compare(home, "--methods", ",".join(names), "--verbose")
    assert result.code == 0, result.err
    folder = next(
        f for f in (home / "runs").glob("synthetic-comparison-*") if "gossip" in (f / "results.csv").read_text()
    )
    curves = pd.read_csv(folder / "curves.csv").groupby("algorithm").last()
    assert set(curves.index) == set(names)
    steps, clients, batch = 8, 2, 2  # 2 stages of 4 steps
    passes = curves["images"][["mime", "mime_lite", "q_fedavg"]] - steps * clients * batch  # over all training images,
    assert passes.nunique() == 1  # one in every round
    assert passes["mime"] % curves["round"]["mime"] == 0
    assert passes["mime"] > steps * clients * batch
    heads = curves["round"]["fedrep"] * clients * 8 * batch  # 8 steps of the head in every round
    assert curves["images"]["fedrep"] == steps * clients * batch + heads
    alike = curves["images"].drop([*passes.index, "fedrep", "local_scgdam", "local_sgdam"])
    assert alike[alike != steps * clients * batch].to_dict() == {}
    starts = 2 * clients * batch  # one batch more per client and stage, to begin the averages with
    assert curves["images"]["local_sgdam"] == steps * clients * batch + starts
    assert curves["images"]["local_scgdam"] == 2 * (steps * clients * batch + starts)  # one for g and one for f
    assert curves["gradients"]["local_scgdam"] == 3 * (steps + 2) * clients  # of g, of f, and back through g
    assert (curves["round"]["npa"], curves["gradients"]["npa"]) == (steps, steps * clients)
    assert curves["gradients"]["npa_large_batch"] == steps * clients / 2
    sent = curves["bytes"]
    assert sent["scaffold"] == sent["local_sgdm"] == 2 * sent["fedavg"] == 2 * sent["fedprox"]
    assert sent["pdmm"] == sent["admm"] == sent["gossip"]  # rho = 0 there: y alone along every edge
    assert sent["centralized"] == 0
    assert curves["mean_auc"].between(0, 1).all()
    text = " ".join(result.out.split())
    groups = {name: set(re.split(", ", listed)) for name, listed in re.findall(r"(\w+) \(([\w, ]+)\)", text)}
    assert {"centralized", "pdmm", "fedavg", "scaffold"} <= groups["cross_entropy"]  # which objective each trained with
    settings = chestfed.Comparison.load(folder).settings()
    assert settings.index.tolist() == names
    assert settings["local_lr"][["fedavg", "local_sgdm", "gossip"]].tolist() == [0.2, 0.02, 0.1]
    assert set(settings["chosen"]) == {"by hand"}
    assert settings["MB sent"]["scaffold"] == 2 * settings["MB sent"]["fedavg"]
    assert settings["gradients per client"]["npa"] == steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["selected=[scaffold]", "methods.*.objective=ratio_loss"],
        ["selected=[centralized_auc]"],
        ["methods.*.objective.positive_ratio=client"],
        ["selected=[local_scgdam]", "methods.*.objective.hvp=drop"],
    ],
)
def test_other_objectives_run(home: Path, settings: list[str]) -> None:
    options = [part for setting in [*settings, "k=[2]"] for part in ("--set", setting)]
    result = compare(home, *options)
    assert result.code == 0, result.err


def test_gossip_refuses_running_statistics(home: Path) -> None:
    result = compare(home, "--methods", "pdmm", "--set", "model.norm=batch")
    assert result.code == 1
    assert "set model.norm: group" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "codasca,codas"], "no algorithm has the name 'codas'; did you mean coda"),
        (["--methods", "coda,coda"], "selected: name each once; found coda, coda"),
        (["--methods", "coda", "--set", "methods.coda.widow=3"], "unknown key .*widow"),
    ],
)
def test_senseless_comparison_refused_first(home: Path, options: list[str], message: str) -> None:
    result = compare(home, *options)
    assert result.code == 1
    assert pd.Series([result.err]).str.contains(message, regex=True).all(), result.err
    assert "Traceback" not in result.err


@pytest.mark.slow
def test_seeds_without_auc_table_and_page(tmp_path: Path) -> None:
    """A test set of one class."""
    labels = np.zeros((IMAGES, len(NAMES)), np.float32)
    runs = [RunFolder(write_run(tmp_path / f"run-{seed}", seed=seed, labels=labels)) for seed in (1, 2)]
    comparison = collect(runs, "Nothing")
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render_tables(comparison))
    assert "Edema: no positive image" in console.export_text()
    assert {value for key, value in list_metrics(comparison).items() if "auc" in key} == {None}
    page = make_page(read_comparison(write_comparison(comparison, tmp_path)))
    assert page.pictures
    assert not any("nan" in picture.alt for picture in page.pictures)


def test_largest_window_is_last_without_loss() -> None:
    rows = [
        {
            "view": "study",
            "model": f"{name}, I={window}",
            "algorithm": name,
            "window": window,
            "disease": "mean",
            "auc": auc,
        }
        for name, curve in {
            "codasca": {1: 0.900, 8: 0.902, 32: 0.896, 128: 0.80},
            "coda_plus": {1: 0.90, 8: 0.85, 32: 0.90},  # what recovers after a loss does not count
        }.items()
        for window, auc in curve.items()
    ]
    for part, expected in ((rows, {"codasca": 32, "coda_plus": 1}), (rows[:1] + rows[4:5], {})):
        about = {"published": None, "seeds": [1]}
        results = Results("t", Origin.REAL, about, make_estimates(part), make_differences([]))
        assert find_largest_windows(results) == expected
