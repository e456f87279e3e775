"""Patients that a model was trained on are found among those that it is scored on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import chestfed
from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import VARIABLE, make_key
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.results.tables.run_folder import TRAINED
from chestfed.studies.scoring.held_out_patients import held_out_patients
from tests.cases import assert_refused
from tests.command_line import Called, call

SITES = bundled("site_configs") / "synthetic"
DRAWN = f"extends: {SITES / 'mimic_cxr.yaml'}\nsplits: {{official: false, file: null, test_fraction: 0.4}}\n"
PIPELINE = f"""
title: A hospital with a drawn split
sites:
  - {{config: drawn.yaml}}
  - {{config: {SITES / "chestxray8.yaml"}}}
preprocess: {{size: 32}}
model: {{name: small, blocks: [1], init_features: 4, growth_rate: 4, norm: group}}
pretrain: {{epochs: 1, batch_size: 8, lr: 1.0e-2}}
methods: [{{algorithm: codasca}}]
federated: {{window: 1, local_lr: 0.1, batch_size: 8, stages: 1, stage_steps: 1}}
evaluation: {{split: test, resamples: 20}}
k: [1, 2]
seed: 3
"""
#: Changes of the site that change its draw.
OTHERS = ["splits.seed=2", "views=[pa]"]


@pytest.fixture(scope="module")
def home(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "data").symlink_to(tiny_hospitals)
    (folder / "drawn.yaml").write_text(DRAWN)
    (folder / "own.yaml").write_text(PIPELINE)
    called = call("study", "own.yaml", "--data", "data", "--no-tracking", folder=folder)
    assert called.code == 0, called.err
    return folder


@pytest.fixture(scope="module")
def run(home: Path) -> Path:
    (folder,) = (home / "runs").glob("synthetic-own-*")
    return folder


def read_site(home: Path, *changes: str) -> SiteTable:
    return open_site(load_site_config(home / "drawn.yaml", changes), home / "data")


def evaluate(home: Path, run: Path, out: Path, *options: str, command: str = "evaluate") -> Called:
    words = [command, run, "--site", "drawn.yaml", "--data", "data", "--split", "test", "--out", out]
    return call(*words, *options, folder=home)


def read_result(out: Path) -> dict[str, Any]:
    return json.loads((out / "evaluation.json").read_text())


def count_trained(home: Path, change: str) -> tuple[int, int]:
    now, then = read_site(home, change).select("test", ("pa", "ap", "frontal")), read_site(home).select("train")
    tested = {*now.frame["patient"]}
    return len(tested & {*then.frame["patient"]}), len(tested)


def test_same_split_has_no_trained_patient(home: Path, run: Path, tmp_path: Path) -> None:
    for k in ("1", "2"):
        called = evaluate(home, run, tmp_path / k, "--k", k)
        assert called.code == 0, called.err
        assert read_result(tmp_path / k)["patients_trained_on"] == 0


@pytest.mark.parametrize("change", OTHERS)
def test_another_draw_is_refused(home: Path, run: Path, tmp_path: Path, change: str) -> None:
    trained, count = count_trained(home, change)
    site = chestfed.load_site(home / "drawn.yaml", data=home / "data", overrides=[change])
    with assert_refused(ConfigError, "trained patients", site="mimic_cxr", trained=trained, patients=count):
        chestfed.evaluate(run, site, split="test", out=tmp_path)
    assert trained > 3
    called = evaluate(home, run, tmp_path / "out", "--set", change)
    assert (called.code, "--fix-splits" in called.err, (tmp_path / "out").exists()) == (1, True, False)


def test_allowed_trained_patients_are_counted(home: Path, run: Path, tmp_path: Path) -> None:
    trained, _ = count_trained(home, OTHERS[0])
    called = evaluate(home, run, tmp_path, "--set", OTHERS[0], "--allow-trained")
    assert called.code == 0, called.err
    result = read_result(tmp_path)
    assert result["patients_trained_on"] == trained
    assert result["notes"][0].startswith(f"NOT A TEST: the model was trained on {trained} of the ")
    assert f"{trained} OF THEM TRAINED ON" in called.out


def test_only_hospitals_of_the_k_count(home: Path, run: Path, tmp_path: Path) -> None:
    everybody = chestfed.load_site(SITES / "chestxray8.yaml", data=home / "data").table["patient"].unique()
    pd.DataFrame({"patient": everybody, "split": "test"}).to_csv(tmp_path / "all.csv", index=False)
    change = f"splits.file={tmp_path / 'all.csv'}"
    site = chestfed.load_site(SITES / "chestxray8.yaml", data=home / "data", overrides=[change])
    assert chestfed.evaluate(run, site, split="test", k=1, out=tmp_path / "1").patients_trained_on == 0
    with assert_refused(ConfigError, "trained patients", site="chestxray8"):
        chestfed.evaluate(run, site, split="test", k=2, out=tmp_path / "2")


def test_run_without_the_file_is_noted(home: Path, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / run.name)
    (copy / TRAINED).unlink()
    called = evaluate(home, copy, tmp_path / "out", "--set", OTHERS[0])
    assert called.code == 0, called.err
    result = read_result(tmp_path / "out")
    assert result["patients_trained_on"] is None
    assert "cannot be checked" in result["notes"][0]


def test_names_of_another_key_are_noted(home: Path, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    copy = shutil.copytree(run, tmp_path / run.name)
    frame = pd.read_parquet(copy / TRAINED)
    frame.attrs = {"key": "0" * 16}
    frame.to_parquet(copy / TRAINED, index=False)
    make_key(tmp_path / "key")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "key"))
    called = evaluate(home, copy, tmp_path / "out", "--set", OTHERS[0])
    assert called.code == 0, called.err
    assert "another key" in read_result(tmp_path / "out")["notes"][0]


def test_damaged_file_is_refused(home: Path, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / run.name)
    (copy / TRAINED).write_bytes(b"")
    with assert_refused(ConfigError, "cannot be read", file=copy / TRAINED):
        chestfed.evaluate(copy, home / "drawn.yaml", data=home / "data", split="test", out=tmp_path / "out")


def test_advised_split_is_no_leak(home: Path, run: Path) -> None:
    for changes, leaks in (((), False), ((OTHERS[0],), True)):
        with pytest.raises(ConfigError) as caught:
            held_out_patients(str(run), read_site(home, *changes))
        assert ("split test is no test" in str(caught.value)) == leaks


def test_saliency_refuses_trained_patients(home: Path, run: Path, tmp_path: Path) -> None:
    (home / "other.yaml").write_text(DRAWN.replace("0.4}", "0.4, seed: 2}"))
    words = ["saliency", run, "--site", "other.yaml", "--data", "data", "--split", "test", "--images", "1"]
    called = call(*words, "--out", tmp_path / "out", folder=home)
    assert (called.code, "--allow-trained" in called.err) == (1, True), called.err
    called = call(*words, "--out", tmp_path / "out", "--allow-trained", folder=home)
    assert called.code == 0, called.err
    assert {*pd.read_csv(tmp_path / "out" / "saliency.csv")["patients_trained_on"]} == {
        count_trained(home, OTHERS[0])[0]
    }


def test_names_match_no_other_file(run: Path) -> None:
    trained = pd.read_parquet(run / TRAINED)
    assert {*trained["site"]} == {"mimic_cxr", "chestxray8"}
    assert trained["patient"].is_unique
    for file in run.rglob("predictions.parquet"):
        assert not {name[:16] for name in pd.read_parquet(file)["patient"]} & {*trained["patient"]}


def test_weights_of_trained_patients_refused(home: Path, run: Path) -> None:
    for number, (seed, code) in enumerate(((1, 0), (2, 1))):
        (home / "drawn.yaml").write_text(DRAWN.replace("0.4}", f"0.4, seed: {seed}}}"))
        settings = ["--set", f"model.initial_weights={run / 'k2' / 'model.safetensors'}", "--set", "k=[1]"]
        called = call(
            "study", "own.yaml", "--data", "data", "--no-tracking", "--out", f"more{number}", *settings, folder=home
        )
        (home / "drawn.yaml").write_text(DRAWN)
        assert (called.code, "its weights are of a study" in called.err) == (code, bool(code)), called.err
    (later,) = (home / "more0").glob("synthetic-own-*")
    patients = pd.read_parquet(later / TRAINED).groupby("site")["client"].agg(set).to_dict()
    assert patients == {"mimic_cxr": {0}, "chestxray8": {0, 1}}
