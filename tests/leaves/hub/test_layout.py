"""`chestfed export`: a folder in the layout of the Hub, which scores as the model did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import load_checkpoint, save_checkpoint
from chestfed.core.errors import ConfigError
from chestfed.data.sites import load_site_config, open_site
from chestfed.leaves.hub.layout import write_layout
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.scoring.evaluate import evaluate_model
from chestfed.studies.scoring.scorers import Declared, open_scorer
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.scoring.test_evaluate import MACHINE, SMALL, write_chestfed_model


def test_folder_scores_as_the_model_did(tiny_hospitals: Path, tmp_path: Path) -> None:
    write_chestfed_model(tmp_path / "model" / "model.safetensors")
    called = call("export", tmp_path / "model" / "model.safetensors", "--out", "hub", folder=tmp_path)
    assert called.code == 0, called.err
    hub = tmp_path / "hub"
    assert sorted(file.name for file in hub.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    site = open_site(load_site_config(bundled("site_configs") / "synthetic" / "chexpert.yaml"), tiny_hospitals)
    scores = []
    for reference in (tmp_path / "model", hub):
        scorer = open_scorer(str(reference), Declared(), MACHINE)
        done = evaluate_model(scorer, site, "valid", "frontal-image", tmp_path / "cache", MACHINE)
        scores.append(done.predictions[[f"score_{name}" for name in scorer.diseases]].to_numpy())
    assert len(scores[0]) > 20
    np.testing.assert_array_equal(*scores)
    config = json.loads((hub / "config.json").read_text())
    assert list(config["id2label"].values()) == list(scorer.diseases)
    assert config["preprocess"]["size"] == scorer.preprocess.size
    assert config["normalization"] == scorer.input.model_dump(mode="json")


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_stored_statistics_are_told(tmp_path: Path, norm: str) -> None:
    write_chestfed_model(tmp_path / "model.safetensors", SMALL.model_copy(update={"norm": norm}))
    called = call("export", "model.safetensors", "--out", "hub", folder=tmp_path)
    for text in (called.out, (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")):
        assert ("--batch-norm stored" in text) == (norm == "batch")


def test_card_has_metadata_and_results(tiny_study: Path, tmp_path: Path) -> None:
    (run,) = (tiny_study / "runs").glob("synthetic-source_addition_samples-*")
    write_layout(str(run), tmp_path / "hub", None, "apache-2.0", release=False)
    _, head, body = (tmp_path / "hub" / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(head)
    assert (about["license"], about["library_name"]) == ("apache-2.0", "chestfed")
    (index,) = about["model-index"]
    assert index["results"][0]["dataset"]["name"].startswith("synthetic chexpert (")
    assert index["results"][0]["dataset"]["type"] == "synthetic-chexpert"
    row = RunFolder.open(run).row()
    values = {metric["name"]: metric["value"] for metric in index["results"][0]["metrics"]}
    expected = {f"AUC, {auc.disease}": round(auc.value, 4) for auc in row.diseases if auc.value is not None}
    assert expected.items() <= values.items()
    assert expected
    assert "SYNTHETIC" in body
    assert "statistics are in the file: they are of training images of chexpert alone." in body
    for line in body.splitlines():
        assert str(tmp_path) not in line
        assert str(tiny_study) not in line


@pytest.mark.parametrize("data", ["real", "mixed", None])
def test_model_of_patients_needs_a_release(tmp_path: Path, data: str | None) -> None:
    write_chestfed_model(tmp_path / "model.safetensors")
    tensors, values = load_checkpoint(tmp_path / "model.safetensors")
    values = {key: value for key, value in values.items() if key not in ("data", "synthetic", "checksum")}
    save_checkpoint(tmp_path / "real.safetensors", tensors, values | ({"data": data} if data else {}))
    with assert_refused(ConfigError, "not released"):
        write_layout(str(tmp_path / "real.safetensors"), tmp_path / "hub", None, "other", release=False)
    assert not (tmp_path / "hub").exists()
    write_layout(str(tmp_path / "real.safetensors"), tmp_path / "hub", None, "other", release=True)
    assert (tmp_path / "hub" / "model.safetensors").is_file()


def test_full_folder_is_left_alone(tmp_path: Path) -> None:
    write_chestfed_model(tmp_path / "model.safetensors")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "README.md").write_text("mine")
    with assert_refused(ConfigError, "exists"):
        write_layout(str(tmp_path / "model.safetensors"), tmp_path / "hub", None, "other", release=False)
    assert (tmp_path / "hub" / "README.md").read_text() == "mine"
