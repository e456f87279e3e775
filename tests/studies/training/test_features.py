"""Studies of heads on frozen features: resumed, of sets of partners, with alternatives, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.errors import ConfigError
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.costs import time_steps
from chestfed.studies.training.data.experiment import load_images
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.tiny_studies import SMALL, read_rows, write_three

HEAD = "model={name: features, network: network.safetensors, hidden: 4}"


@pytest.fixture(scope="module")
def folder(furnish: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that was trained on two sample hospitals, and a study of heads on its features."""
    folder = furnish(tmp_path_factory.mktemp("features"))
    file = write_three(folder)
    keys = [word for setting in SMALL for word in ("--set", setting)]
    assert call("study", file, *keys, "--k", "2", "--no-tracking", folder=folder).code == 0
    (model,) = folder.glob("runs/*/k2/model.safetensors")
    shutil.copy(model, folder / "network.safetensors")
    shutil.rmtree(folder / "runs")
    assert run_heads(folder, "--k", "2").code == 0
    return folder


def run_heads(folder: Path, *words: str, settings: list[str] = SMALL):  # type: ignore[no-untyped-def]
    chosen = [setting for setting in settings if not setting.startswith("model.")] + [HEAD]
    keys = [word for setting in chosen for word in ("--set", setting)]
    return call("study", "three.yaml", *keys, *words, "--no-tracking", folder=folder)


@pytest.mark.slow
def test_sets_of_heads_are_studies(folder: Path) -> None:
    assert run_heads(folder, "--set", "subsets={}").code == 0
    (contributions,) = folder.glob("runs/*contributions-*")
    values = pd.read_csv(contributions / "contributions.csv").set_index(["partner", "measure"])["value"]
    parts = [values[name, "shapley"] for name in ("chestxray8", "vindr")]
    assert sum(parts) == pytest.approx(values["all partners", "shapley"], abs=1e-12)


@pytest.mark.slow
def test_a_second_start_computes_nothing(folder: Path) -> None:
    files = [*folder.rglob("*.safetensors"), *folder.rglob("features-*/*.sqlite")]
    before = {file: file.stat().st_mtime_ns for file in files}
    assert run_heads(folder, "--k", "2").code == 0
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_run_has_the_digest_of_its_network(folder: Path) -> None:
    run = RunFolder(next(folder.glob("runs/*three-*/study.json")).parent)
    assert run.configuration["model"]["network"] == "network.safetensors"
    assert not run.configuration["augment"]["enabled"]
    assert len(list(folder.rglob("features-*"))) == 1


@pytest.mark.slow
def test_heads_are_tested_at_two_hospitals(folder: Path) -> None:
    both = [*SMALL, "evaluation.split=test", *(f"sites.{number}.test_fraction=0.3" for number in range(2))]
    assert run_heads(folder, "--k", "2", "--out", "both", settings=both).code == 0
    (cards,) = folder.glob("both/*/sites.json")
    assert json.loads(cards.read_text())["sites"][-1]["gray_level_images"]


@pytest.mark.slow
def test_alternatives_train_heads_too(folder: Path) -> None:
    tuned = [*SMALL, *(f"sites.{number}.validation_fraction=0.3" for number in range(3))]
    tuned += ['alternatives={"fine_tuned": {"epochs": [0.5], "lr_factors": [1]}}']
    called = run_heads(folder, "--k", "2", "--out", "tuned", settings=tuned)
    assert called.code == 0, called.err
    (table,) = folder.glob("tuned/*/alternatives.csv")
    assert set(pd.read_csv(table)["model"]) == {"own data alone", "K=2", "fine-tuned", "centralized"}


def test_heads_score_as_the_whole_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored model on the images themselves gives the scores of the study."""
    monkeypatch.chdir(folder)
    file = next(folder.glob("runs/*three-*/k2/model.safetensors"))
    site = Path(load_pipeline(folder / "three.yaml").sites[0].config)
    data = folder / str(load_pipeline(folder / "three.yaml").data_root)
    words = ("--site", str(site), "--data", str(data), "--split", "valid", "--out", "scored")
    called = call("evaluate", file, *words, folder=folder)
    assert called.code == 0, called.err
    (scored,) = folder.glob("scored/**/predictions.parquet")
    ours = pd.read_parquet(file.parent / "predictions.parquet").set_index("image")
    theirs = pd.read_parquet(scored).set_index("image")
    pd.testing.assert_series_equal(ours["score_edema"], theirs["score_edema"].reindex(ours.index), rtol=1e-4)


def test_what_does_not_go_with_features(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError):
        load_pipeline(folder / "three.yaml", [HEAD, "augment.rotation=5"]).resolve()
    load_pipeline(folder / "three.yaml", [HEAD, "augment.enabled=false"]).resolve()
    small = [HEAD, "preprocess.size=32", "samples.size=tiny"]
    pipeline = load_pipeline(folder / "three.yaml", small).resolve()
    rows = read_rows(pipeline, folder / "three.yaml", folder / str(pipeline.data_root))
    decoded: list[object] = []
    monkeypatch.setattr(
        "chestfed.studies.training.data.experiment.fill_caches", lambda *given, **_: decoded.append(given)
    )
    with assert_refused(ConfigError, "other preprocessing", keys=["size"]):
        load_images([rows], folder / "cache")
    assert not decoded
    with assert_refused(ConfigError, "other preprocessing", keys=["size"]):
        time_steps(pipeline, rows.machine)
    assert json.loads(json.dumps(rows.pipeline.model.model_dump()))["network"] == "network.safetensors"
