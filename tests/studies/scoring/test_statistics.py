"""Which batch-norm statistics `evaluate` scores with: those of the study that the model is from."""

from __future__ import annotations

import html
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.leaves.saliency import misjudged
from chestfed.reports.pages.page import make_report
from chestfed.results.evaluation.labeled import Scored
from chestfed.results.tables.clients.batch_norm import describe_statistics
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.run_folder import COMMON_FILE, RunFolder
from chestfed.results.tables.views import render_tables
from chestfed.studies.experiment.data import SiteEntry
from chestfed.studies.experiment.device import machine_with
from chestfed.studies.scoring.batch_norm import ChosenStatistics, choose_statistics, describe_stored
from chestfed.studies.scoring.scorers import Declared, Scorer, open_scorer
from chestfed.studies.scoring.study_of_model import StudyRecord, read_study
from tests.cases import assert_refused
from tests.command_line import call
from tests.results.tables.finished_runs import seal_run

SITES = bundled("site_configs") / "synthetic"
DATA = ["--data", "synthetic_hospitals", "--resamples", "20"]


@pytest.fixture
def run(tiny_study: Path) -> Path:
    (folder,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    return folder


def evaluate(
    tiny_study: Path, out: Path, model: object, site: str, split: str, *options: str
) -> tuple[dict[str, Any], str]:
    words = ["evaluate", model, "--site", SITES / f"{site}.yaml", *DATA, "--split", split, "--out", out, *options]
    called = call(*words, folder=tiny_study)
    assert called.code == 0, called.err
    return json.loads((out / "evaluation.json").read_text()), " ".join(called.out.split())


@pytest.mark.slow_but("chexpert-valid")
@pytest.mark.parametrize(("site", "split"), [("chexpert", "valid"), ("chestxray8", "test")])
def test_hospital_has_the_aucs_of_its_study(tiny_study: Path, run: Path, tmp_path: Path, site: str, split: str) -> None:
    table = pd.read_csv(run / "hospitals.csv").query("hospital == @site").set_index(["k", "disease"])["auc"]
    for k in (1, 2):
        result, shown = evaluate(tiny_study, tmp_path / str(k), run, site, split, "--k", str(k))
        aucs = {row["disease"]: row["value"] for row in result["metrics"] if row["metric"] == "auc"}
        expected = table.loc[k]
        assert {name: aucs[name] for name in expected.index if aucs[name] is not None} == expected.dropna().to_dict()
        assert result["batch_norm"] == "own"
        assert describe_statistics("own", "the site's") in shown


def read_mean(result: dict[str, Any]) -> float:
    return next(row["value"] for row in result["metrics"] if (row["disease"], row["metric"]) == ("mean", "auc"))


def test_both_means_are_printed_if_different(tiny_study: Path, run: Path, tmp_path: Path) -> None:
    default, shown = evaluate(tiny_study, tmp_path / "own", run, "vindr", "test")
    stored, plain = evaluate(tiny_study, tmp_path / "stored", run, "vindr", "test", "--batch-norm", "stored")
    assert read_mean(default) != read_mean(stored)
    (note,) = (note for note in default["notes"] if "Mean AUC" in note)
    assert all(f"{read_mean(result):.3f}" in note for result in (default, stored))
    assert note in shown
    assert describe_statistics("stored") in plain
    assert stored["batch_norm"] == "stored"
    assert not any("Mean AUC" in note for note in stored["notes"])


def test_saliency_scores_as_evaluate(tiny_study: Path, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The statistics of the model file come back afterwards."""
    seen: list[Scored] = []
    monkeypatch.setattr(misjudged, "_find_rows", lambda scored, _: seen.append(scored) or misjudged._Rows())
    scorer, table = open_site_and_model(tiny_study, run, "vindr")
    before = {name: value.clone() for name, value in scorer.network.state_dict().items()}  # type: ignore[union-attr]
    for choice in ("own", "stored"):
        cache = tiny_study / "cache"
        statistics = choose_statistics(str(run), scorer, table, cache, choice)
        looked_at = (table, "test", cache, machine_with("cpu"), 1, 1)
        about = misjudged.find_misjudged(scorer, *looked_at, statistics)
        expected, _ = evaluate(tiny_study, tmp_path / choice, run, "vindr", "test", "--batch-norm", choice)
        columns = [f"score_{disease}" for disease in scorer.diseases]
        scores = pd.read_parquet(tmp_path / choice / "predictions.parquet")[columns].to_numpy()
        np.testing.assert_allclose(np.sort(seen[-1].scores, axis=0), np.sort(scores, axis=0), rtol=1e-4)
        assert about.scored == describe_statistics(expected["batch_norm"], "the site's")
    assert not np.allclose(seen[0].scores, seen[1].scores)
    assert all(torch.equal(value, before[name]) for name, value in scorer.network.state_dict().items())  # type: ignore[union-attr]


def test_split_without_images_names_another(tiny_study: Path, run: Path) -> None:
    for words in ([], ["--split", "held-out"]):
        called = call("evaluate", run, "--site", SITES / "vindr.yaml", *DATA, *words, folder=tiny_study)
        assert (called.code, "--split test has" in called.err) == (1, True), called.err


def open_site_and_model(tiny_study: Path, run: Path, site: str = "chestxray8") -> tuple[Scorer, SiteTable]:
    table = open_site(load_site_config(SITES / f"{site}.yaml"), tiny_study / "synthetic_hospitals")
    return open_scorer(str(run), Declared(), machine_with("cpu")), table


def edit_study(run: Path, folder: Path, **evaluation: str) -> Path:
    """A copy of a run folder whose configuration says something else."""
    copy = Path(shutil.copytree(run, folder / run.name))
    about = json.loads((copy / "study.json").read_text())
    about["configuration"]["evaluation"] |= evaluation
    (copy / "study.json").write_text(json.dumps(about))
    seal_run(copy)
    return copy


def test_averaged_statistics_of_a_study_stay(tiny_study: Path, run: Path, tmp_path: Path) -> None:
    scorer, table = open_site_and_model(tiny_study, run)
    copy = edit_study(run, tmp_path, batch_norm="averaged")
    assert choose_statistics(str(copy), scorer, table, tmp_path) == ChosenStatistics("stored")
    assert choose_statistics(str(copy / "k1"), scorer, table, tiny_study / "cache", "own").images is not None


def test_model_without_a_study_is_as_stored(tiny_study: Path, run: Path, tmp_path: Path) -> None:
    scorer, table = open_site_and_model(tiny_study, run)
    model = shutil.copy(run / "k2" / "model.safetensors", tmp_path)
    assert choose_statistics(model, scorer, table, tmp_path) == ChosenStatistics("stored")
    program = replace(scorer, network=None)
    assert choose_statistics(model, program, table, tmp_path).choice == "stored"
    assert choose_statistics(model, replace(scorer, network=nn.Linear(1, 1)), table, tmp_path).choice is None
    with assert_refused(ConfigError, "program without statistics"):
        choose_statistics(model, program, table, tmp_path, "own")


def test_site_without_training_images_noted(tiny_study: Path, run: Path, tmp_path: Path) -> None:
    scorer, table = open_site_and_model(tiny_study, run)
    tested = table.select(split="test")
    statistics = choose_statistics(str(run), scorer, tested, tmp_path)
    assert (statistics.choice, statistics.images, len(statistics.notes)) == ("stored", None, 1)
    with assert_refused(ConfigError, "no training images"):
        choose_statistics(str(run), scorer, tested, tmp_path, "own")


def test_other_training_images_are_noted(tiny_study: Path, run: Path) -> None:
    scorer, table = open_site_and_model(tiny_study, run)
    fewer = table.with_frame(table.frame.drop(table.frame.query("split == 'train'").index[0]).reset_index(drop=True))
    assert not choose_statistics(str(run), scorer, table, tiny_study / "cache").notes
    assert choose_statistics(str(run), scorer, fewer, tiny_study / "cache").notes


def test_statistics_of_fewer_training_images(tiny_study: Path, run: Path, tmp_path: Path) -> None:
    """As many as the study trained on, where `training_images`, `positives` or `quick` leave some out."""
    scorer, table = open_site_and_model(tiny_study, run)
    every = choose_statistics(str(run), scorer, table, tiny_study / "cache").images
    copy = edit_study(run, tmp_path)
    about = json.loads((copy / "study.json").read_text())
    (entry,) = (entry for entry in about["configuration"]["sites"] if entry["config"] == "chestxray8.yaml")
    entry["training_images"] = 9
    (copy / "study.json").write_text(json.dumps(about))
    seal_run(copy)
    fewer = choose_statistics(str(copy), scorer, table, tiny_study / "cache").images
    assert every is not None
    assert fewer is not None
    assert 0 < len(fewer.records) <= 9 < len(every.records)


def test_stored_statistics_are_described(run: Path, tmp_path: Path) -> None:
    study = read_study(RunFolder.open(run))
    assert "images of chexpert alone" in describe_stored(study)
    assert "not recorded" in describe_stored(None)
    assert "chexpert" not in describe_stored(study, COMMON_FILE)
    for changed, text in (
        (
            replace(study, evaluation=study.evaluation.model_copy(update={"batch_norm": "averaged"})),
            "AUCs are with them",
        ),
        (replace(study, held_out="vindr"), "AUCs at vindr are with them; at hospitals that trained"),
        (replace(study, sites=dict.fromkeys("ab", make_tested_entry(study))), "AUCs are not with them"),
    ):
        assert "averaged over the clients" in describe_stored(changed)
        assert text in describe_stored(changed)


def make_tested_entry(study: StudyRecord) -> SiteEntry:
    return next(iter(study.sites.values())).model_copy(update={"test_fraction": 0.3})


CUT = f"""
title: Two hospitals, cut by patient
sites:
  - {{config: {SITES / "mimic_cxr.yaml"}, clients: 2, test_fraction: 0.4}}
  - {{config: {SITES / "vindr.yaml"}, test_fraction: 0.3, validation_fraction: 0.2, training_images: 10}}
preprocess: {{size: 32}}
model: {{name: small, blocks: [1], init_features: 4, growth_rate: 4, norm: batch}}
pretrain: {{epochs: 1, batch_size: 8, lr: 1.0e-2}}
methods: [{{algorithm: codasca}}]
federated: {{window: 1, local_lr: 0.1, batch_size: 8, stages: 1, stage_steps: 1}}
evaluation: {{split: test, resamples: 20}}
k: [3]
"""


@pytest.mark.slow
def test_hospital_in_parts_has_studys_aucs(tiny_hospitals: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text(CUT)
    study = chestfed.run(tmp_path / "cut.yaml", data=tiny_hospitals, out=tmp_path / "runs", cache=tmp_path / "cache")
    expected = study.hospitals().query("disease == 'mean'").set_index("hospital")["auc"]
    for site in ("mimic_cxr", "vindr"):
        opened = chestfed.load_site(SITES / f"{site}.yaml", data=tiny_hospitals, cache=tmp_path / "cache")
        evaluation = chestfed.evaluate(study, opened, split="held-out", resamples=20, out=tmp_path / site)
        assert evaluation.auc["mean"] == expected[site]
        assert (evaluation.statistics.choice, evaluation.statistics.notes) == ("own", ())


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_captions_name_the_statistics(tiny_study: Path, run: Path, tmp_path: Path) -> None:
    sentence, study = describe_statistics("own"), chestfed.Study.load(run)
    assert study.table().attrs["scored"] == study.table(wide=True).attrs["scored"] == sentence
    assert study.hospitals().attrs["scored"] == sentence
    page = html.unescape(make_report(RunFolder.open(run)).html)
    assert page.count(sentence) >= 3  # the study's table, that of the hospitals, and the methods
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(render_tables(load_results(RunFolder.open(run))))
    assert " ".join(console.export_text().split()).count(sentence) == 2
    edited = load_results(RunFolder.open(edit_study(run, tmp_path, batch_norm="averaged")))
    averaged = edited.about["batch_norm"]
    assert describe_statistics(averaged) not in ("", sentence)
