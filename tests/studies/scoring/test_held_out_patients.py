"""`chestfed evaluate --split held-out`: the patients that a study held out itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.studies.scoring.held_out_patients import find_tested, held_out_patients
from tests.cases import assert_refused
from tests.command_line import call
from tests.results.tables.finished_runs import seal_run

SITE = bundled("site_configs") / "synthetic" / "mimic_cxr.yaml"

PIPELINE = f"""
title: One hospital, cut by patient
sites:
  - config: {SITE}
    clients: 2
    test_fraction: 0.4
preprocess: {{size: 32}}
model: {{name: small, blocks: [1], init_features: 4, growth_rate: 4}}
pretrain: {{epochs: 1, batch_size: 8, lr: 1.0e-2}}
methods: [{{algorithm: codasca}}]
federated: {{window: 1, local_lr: 0.1, batch_size: 8, stages: 1, stage_steps: 1}}
evaluation: {{split: test, protocol: frontal-image, resamples: 20}}
k: [2]
seed: 3
"""


@pytest.fixture(scope="module")
def home(tiny_hospitals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the hospitals, and a study that held patients of one of them out."""
    folder = tmp_path_factory.mktemp("holding_out")
    (folder / "data").symlink_to(tiny_hospitals)
    (folder / "cut.yaml").write_text(PIPELINE)
    called = call("study", "cut.yaml", "--data", "data", "--no-tracking", folder=folder)
    assert called.code == 0, called.err
    return folder


@pytest.fixture(scope="module")
def run(home: Path) -> Path:
    (folder,) = (home / "runs").glob("synthetic-cut-*")
    return folder


@pytest.fixture(scope="module")
def site(home: Path) -> SiteTable:
    return open_site(load_site_config(SITE), home / "data")


def test_command_scores_images_of_the_study(home: Path, run: Path) -> None:
    options = ["--site", str(SITE), "--data", "data", "--split", "held-out", "--out", "found", "--resamples", "20"]
    called = call("evaluate", run, *options, folder=home)
    assert called.code == 0, called.err
    scores = pd.read_parquet(home / "found" / "predictions.parquet")
    expected = pd.read_parquet(run / "k2" / "predictions.parquet")
    assert sorted(scores["image"]) == sorted(expected["image"])
    both = scores.merge(expected, on="image", suffixes=("", "_study")).drop_duplicates("image")
    np.testing.assert_allclose(both["score_edema"], both["score_edema_study"], rtol=1e-4)


@pytest.mark.parametrize("part", ["", "k2", "k2/model.safetensors"])
def test_held_out_patients_are_not_elsewhere(part: str, run: Path, site: SiteTable) -> None:
    held = held_out_patients(str(run / part), site)
    assert set(held.frame["split"]) == {"test"}
    everybody = set(site.select(split="train").frame["patient"])
    assert 0.2 < held.frame["patient"].nunique() / len(everybody) < 0.6


def test_site_yaml_may_have_another_name(run: Path, site: SiteTable, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / run.name)
    study = json.loads((copy / "study.json").read_text())
    study["configuration"]["sites"][0]["config"] = "any_name.yaml"
    (copy / "study.json").write_text(json.dumps(study))
    seal_run(copy)
    pd.testing.assert_frame_equal(held_out_patients(str(copy), site).frame, held_out_patients(str(run), site).frame)


def test_images_outside_the_test_are_refused(run: Path) -> None:
    predictions = pd.read_parquet(run / "k2" / "predictions.parquet")
    key = predictions.attrs["key"]
    frame = predictions[["image", "patient"]].assign(view="pa")
    unknown = frame.assign(image=["0" * 32, *frame["image"][1:]])
    assert find_tested(str(run), "x", frame, key).all()
    with assert_refused(ConfigError, "unknown images", unknown=1):
        find_tested(str(run), "x", unknown, key)
    assert find_tested(str(run), "x", unknown.assign(view=["lateral", *frame["view"][1:]]), key).all()
    with assert_refused(ConfigError, "another key"):
        find_tested(str(run), "x", frame, "0" * 16)


def test_model_of_no_study_or_site_refused(run: Path, home: Path, tmp_path: Path) -> None:
    vindr = open_site(load_site_config(SITE.parent / "vindr.yaml"), home / "data")
    with assert_refused(ConfigError, "no patients held out", site="vindr"):
        held_out_patients(str(run), vindr)
    with assert_refused(ConfigError, "not a study"):
        held_out_patients(str(tmp_path / "model.onnx"), vindr)


def test_patients_that_the_study_left_out_are_not_scored(home: Path) -> None:
    """Who is tested at the first of two sites is left out of the second, and of its evaluation."""
    folder = home / "both"
    folder.mkdir()
    for name, views in (("one", "[pa]"), ("other", "[pa, ap]")):
        (folder / f"{name}.yaml").write_text(f"extends: {SITE}\nsite: {name}\nviews: {views}\n")
    sites = "".join(f"  - {{config: {name}.yaml, test_fraction: 0.4}}\n" for name in ("one", "other"))
    overlap = "overlap: {found: drop, same_patient_ids: [[one, other]]}\n"
    start, rest = PIPELINE.index("  - config"), PIPELINE.index("preprocess")
    settings = PIPELINE[rest:].replace("seed: 3", "seed: 5")
    (folder / "both.yaml").write_text(PIPELINE[:start] + sites + overlap + settings)
    called = call("study", "both.yaml", "--data", "../data", "--no-tracking", folder=folder)
    assert called.code == 0, called.err
    (run,) = (folder / "runs").glob("synthetic-both-*")
    expected = pd.read_parquet(run / "k2" / "predictions.parquet").query("hospital == 'other'")
    held = held_out_patients(str(run), open_site(load_site_config(folder / "other.yaml"), home / "data"))
    options = ["--site", "other.yaml", "--data", "../data", "--split", "held-out", "--out", "found"]
    called = call("evaluate", run, *options, folder=folder)
    assert called.code == 0, called.err
    scored = pd.read_parquet(folder / "found" / "predictions.parquet")
    assert sorted(scored["image"]) == sorted(expected["image"])
    assert 0 < len(scored) < len(held.frame)
    assert "of patients who are at another site too left out" in " ".join((called.out + called.err).split())
    others = pd.DataFrame({"image": ["0" * 32], "patient": ["another"]})
    frame = pd.concat([scored[["image", "patient"]], others], ignore_index=True).assign(view="pa")
    assert find_tested(str(run), "other", frame, scored.attrs["key"]).tolist() == [True] * len(scored) + [False]
    first = frame["patient"] == frame["patient"][0]
    with assert_refused(ConfigError, "unknown images", unknown=1):  # a patient that the study tested is not here
        find_tested(str(run), "other", frame[~first], scored.attrs["key"])
