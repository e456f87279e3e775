"""`chestfed study --quick`: what it shows says that it is quick, and something is learned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from chestfed.reports.tracking.store import connect, local_store
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.sentences import QUICK
from chestfed.studies.experiment.loading import load_pipeline
from tests.command_line import call

WORDS = ("study", "digits_ih", "--quick", "--methods", "codasca", "--out", "runs")


def test_quick_study_says_so_everywhere(tmp_path: Path) -> None:
    short = ("--set", "federated.stage_steps=4", "--set", "federated.window=2", "--verbose")
    called = call(*WORDS, *short, folder=tmp_path)
    assert called.code == 0, called.err
    assert QUICK in " ".join(called.out.split())
    assert "seed" not in QUICK  # --seeds may give several
    assert "(quick)" in called.out
    (folder,) = (tmp_path / "runs").glob("digits_ih-*")
    run = RunFolder.open(folder)
    assert run.configuration["quick"] is True
    assert run.title.endswith("(quick)")
    assert call("report", folder, "--out", "page.html", folder=tmp_path).code == 0
    page = (tmp_path / "page.html").read_text()
    assert QUICK in re.sub("<[^>]*>", "", page).replace("&#39;", "'")
    assert "(quick)" in page
    client = connect(local_store(tmp_path / "runs"))
    (study,) = client.search_runs(
        [client.get_experiment_by_name("chestfed").experiment_id], "tags.kind = 'study'", max_results=2
    )
    assert study.data.tags["quick"] == "true"
    assert QUICK in study.data.tags["mlflow.note.content"]
    (listed,) = json.loads(call("runs", "--json", folder=tmp_path).out)["result"]["runs"]
    assert listed["state"] == "finished, quick"


@pytest.mark.slow
def test_quick_study_learns(tmp_path: Path) -> None:
    called = call(*WORDS, "--no-tracking", "--json", folder=tmp_path)
    estimates = json.loads(called.out)["result"]["estimates"]
    assert max(row["auc"] for row in estimates) > 0.6


def test_quick_search_is_marked(tmp_path: Path) -> None:
    short = ("federated.stage_steps=4", "federated.window=2", "pretrain.epochs=0.05")
    words = ("tune", *WORDS[1:], "--no-tracking", *(word for key in short for word in ("--set", key)))
    search = ("--trials", 1, "--seeds", 2, "--set", "search={window: [2, 64], prox: null}")
    called = call(*words, *search, folder=tmp_path)
    assert called.code == 0, called.err
    assert QUICK in " ".join(called.out.split())
    (file,) = (tmp_path / "runs").glob("tune-*/tuned.yaml")
    tuned = yaml.safe_load(file.read_text())
    assert (tuned["quick"], tuned["seeds"], tuned["title"].count("quick")) == (True, 2, 0)
    assert len(list((tmp_path / "runs").glob("tuned-*"))) == 2
    assert f"{file.relative_to(tmp_path)} --out runs" in " ".join(called.out.split())
    pipeline = load_pipeline(file)
    assert pipeline.seeds == 2
    assert pipeline.title.endswith(", tuned (quick)")
    assert [method.window for method in pipeline.methods] == [entry["window"] for entry in tuned["methods"]]
    (tmp_path / "quick.yaml").write_text("extends: digits_ih\nquick: true\n")
    for words in (("digits_ih", "--quick"), ("quick.yaml",)):
        plan = call("tune", *words, "--methods", "codasca", "--dry-run", folder=tmp_path)
        assert "4 trials together, 1 seeds per trial, 0 further" in " ".join(plan.out.split())
