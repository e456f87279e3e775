"""Each site held out in turn, on tiny synthetic hospitals."""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from chestfed.cli import bundled
from chestfed.core.errors import ConfigError
from chestfed.core.provenance import Origin
from chestfed.experiment.device import prepare_machine
from chestfed.experiment.loading import load_pipeline
from chestfed.experiment.pipeline import Pipeline
from chestfed.images.cache import CachedImages
from chestfed.samples import write_hospitals
from chestfed.sites import load_site_config
from chestfed.training import held_out, loop
from chestfed.training.loop import train_federated
from chestfed.training.pretrain import pretrain

PIPELINE = bundled("pipelines") / "leave_one_site_out.yaml"
SITES = ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"]
SETTINGS = [
    "samples.size=tiny",
    "model.blocks=[1]",
    "pretrain.epochs=0.5",
    "pretrain.batch_size=4",
    "federated.batch_size=2",
    "federated.window=2",
    "federated.stage_steps=4",
    "evaluation.resamples=20",
    "runtime.threads=1",
    "preprocess.size=64",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the hospitals, to run commands in."""
    folder = tmp_path_factory.mktemp("home")
    write_hospitals(folder / "synthetic_hospitals", size="tiny", workers=1)
    return folder


def study(home: Path, pipeline: Path, *more: str) -> subprocess.CompletedProcess[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [sys.executable, "-m", "chestfed", "study", str(pipeline), *settings, *more]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)


def lines_of(home: Path, out: str) -> list[dict[str, str]]:
    (file,) = (home / out).glob("synthetic-held-out-*/held_out.csv")
    return list(csv.DictReader(file.open(encoding="utf-8")))


@pytest.fixture(scope="module")
def finished(home: Path) -> str:
    """What is printed of two of the five."""
    result = study(home, PIPELINE, "--out", "runs", "--set", "held_out.sites=[vindr,chexpert]")
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_table_has_each_held_out_site_with_every_disease_and_its_counts(home: Path, finished: str) -> None:
    assert "SYNTHETIC hospitals" in finished
    held = [line for line in lines_of(home, "runs") if line["trained_on_it"] == "false"]
    assert [(line["held_out"], line["scored_on"]) for line in held] == [("chexpert",) * 2] * 6 + [("vindr",) * 2] * 6
    for line in held:
        if line["disease"] != "mean" and line["auc"]:
            assert 0 <= float(line["low"]) <= float(line["auc"]) <= float(line["high"]) <= 1
            assert int(line["positives"]) + int(line["negatives"]) + int(line["missing"]) == 48
    assert {line["data"] for line in held} == {"synthetic"}
    (edema,) = [line for line in held if (line["held_out"], line["disease"]) == ("vindr", "edema")]
    assert (edema["auc"], edema["reason"]) == ("", "no positive image")


def test_beside_it_stand_the_sites_that_the_same_model_was_trained_on(home: Path, finished: str) -> None:
    assert "sites trained on" in finished
    beside = [line for line in lines_of(home, "runs") if line["trained_on_it"] == "true"]
    for site in ("chexpert", "vindr"):
        others = [line["scored_on"] for line in beside if line["held_out"] == site and line["disease"] == "mean"]
        assert others == [name for name in SITES if name != site]


def test_every_fold_is_a_run_of_its_own_with_predictions_for_report_and_compare(home: Path, finished: str) -> None:
    for site in ("chexpert", "vindr"):
        (folder,) = (home / "runs").glob(f"synthetic-leave_one_site_out-{site}-*")
        about = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        assert about["configuration"]["held_out"] == {"sites": [site], "images": "all"}
        assert site not in about["inputs"]
        table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        assert table["protocol"] == f"frontal-image, all images of {site}, on which nothing was trained"
        assert table["rows"][0]["clients"] == [name for name in SITES if name != site]
        assert len(list(folder.glob("k4/seen/*/predictions.parquet"))) == 4
    command = [sys.executable, "-m", "chestfed", "report", str(folder)]
    assert subprocess.run(command, cwd=home, capture_output=True, check=False).returncode == 0


def test_mlflow_has_the_folds_by_their_held_out_site_and_the_table_of_all(home: Path, finished: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/runs/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    assert {run.data.tags["held_out"] for run in runs if "held_out" in run.data.tags} == {"chexpert", "vindr"}
    (whole,) = [run for run in runs if "held_out_auc_mean_vindr" in run.data.metrics]
    assert "trained_on_auc_mean_chexpert" in whole.data.metrics
    assert {file.path for file in client.list_artifacts(whole.info.run_id)} == {"held_out.csv", "held_out.json"}


def test_the_same_command_finds_what_is_finished_and_says_the_same(home: Path, finished: str) -> None:
    before = lines_of(home, "runs")
    again = study(home, PIPELINE, "--out", "runs", "--no-tracking", "--set", "held_out.sites=[chexpert,vindr]")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("(from the earlier run)") == 2
    assert lines_of(home, "runs") == before


def test_a_dry_run_explains_every_fold_and_leaves_nothing(home: Path) -> None:
    result = study(home, PIPELINE, "--out", "nothing", "--cache", "nothing", "--dry-run")
    assert result.returncode == 0, result.stderr
    for text in ("5 studies", "held out", "stage 1 on", "None of them trains", "Nothing was written"):
        assert text in " ".join(result.stdout.split())
    assert not (home / "nothing").exists()


def loaded(home: Path, folder: Path, *overrides: str) -> tuple[Pipeline, list[held_out.SiteImages]]:
    pipeline = load_pipeline(PIPELINE, [*SETTINGS, *overrides])
    rows = held_out.open_rows(pipeline, PIPELINE, home / "synthetic_hospitals")
    return pipeline, held_out.load_images(rows, pipeline, folder / "cache")


@pytest.mark.parametrize("site", ["chexpert", "padchest"])
def test_no_image_of_the_held_out_site_is_read_in_training(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    pipeline, sites = loaded(home, tmp_path)
    this = held_out.fold(sites, site, pipeline)
    machine = prepare_machine(pipeline.runtime)
    read_from: list[set[str]] = [set(), set()]
    stage = 0
    read = CachedImages.read

    def noted(images: CachedImages, row: int) -> np.ndarray:
        read_from[stage].add(images.folder.name.rsplit("-", 1)[0])
        return read(images, row)

    monkeypatch.setattr(CachedImages, "read", noted)
    start = pretrain(this.pipeline, this.data, machine, tmp_path, lambda *_: None)
    stage = 1
    monkeypatch.setattr(loop, "score", lambda *_: np.zeros((len(this.data.test.labels), 5), np.float32))
    (tmp_path / "k4").mkdir()
    train_federated(this.pipeline, this.data, machine, 4, start, tmp_path / "k4", lambda _: None)
    others = [name for name in SITES if name != site]
    assert read_from == [{others[0]}, set(others)]


def test_patients_that_are_scored_at_the_other_sites_train_nothing(home: Path, tmp_path: Path) -> None:
    pipeline, sites = loaded(home, tmp_path)
    rows = held_out.open_rows(pipeline, PIPELINE, home / "synthetic_hospitals")
    for part in rows:
        trained = {patient for _, table in part.clients for patient in table.frame["patient"]}
        assert not trained & set(part.seen.frame["patient"])
        assert len(part.seen.frame) > 0
    this = held_out.fold(sites, "vindr", pipeline)
    assert list(this.seen) == SITES[:-1]
    assert [client.name for client in this.data.clients] == SITES[:-1]


def test_all_frontal_images_of_the_held_out_site_are_scored_or_one_split(home: Path) -> None:
    def scored(*overrides: str) -> dict[str, int]:
        pipeline = load_pipeline(PIPELINE, overrides)
        rows = held_out.open_rows(pipeline, PIPELINE, home / "synthetic_hospitals")
        return {part.whole.name: len(part.unseen.frame) for part in rows}

    assert scored() == {"chexpert": 48, "chestxray8": 48, "padchest": 24, "mimic_cxr": 61, "vindr": 48}
    assert scored("held_out.images=valid", "held_out.sites=[chexpert]")["chexpert"] == 24
    with pytest.raises(ConfigError, match=r"site 'padchest' has no image for held_out\.images: valid"):
        scored("held_out.images=valid", "held_out.sites=[chexpert,padchest]")


@pytest.fixture(scope="module")
def two_sites(home: Path) -> Path:
    """A pipeline of two hospitals of which each labels a disease that the other does not."""
    for name, lacking in (("chexpert", "cardiomegaly"), ("vindr", "edema")):
        site = load_site_config(bundled("site_configs") / "synthetic" / f"{name}.yaml").model_dump(mode="json")
        site["diseases"].remove(lacking)
        for key in ("labels", "uncertain", "blank", "upsample"):
            site[key].pop(lacking, None)
        (home / f"{name}.yaml").write_text(yaml.safe_dump(site), encoding="utf-8")
    entries = [{"config": f"{name}.yaml", "test_fraction": 0.3} for name in ("chexpert", "vindr")]
    path = home / "two.yaml"
    path.write_text(yaml.safe_dump({"extends": str(PIPELINE), "sites": entries}), encoding="utf-8")
    return path


def test_a_disease_that_the_held_out_site_or_no_other_labels_has_no_auc_and_a_reason(
    home: Path, two_sites: Path
) -> None:
    result = study(home, two_sites, "--out", "two", "--no-tracking")
    assert result.returncode == 0, result.stderr
    undefined = {
        (line["held_out"], line["disease"]): line["reason"]
        for line in lines_of(home, "two")
        if line["trained_on_it"] == "false" and not line["auc"]
    }
    assert undefined == {
        ("chexpert", "cardiomegaly"): "chexpert does not label it",
        ("chexpert", "edema"): "no site that was trained on labels it",
        ("vindr", "cardiomegaly"): "no site that was trained on labels it",
        ("vindr", "edema"): "vindr does not label it",
    }
    assert "vindr, Edema: vindr does not label it" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["held_out.sites=[]"], "names each site once, or says all"),
        (["held_out.sites=[vindr,vindr]"], "names each site once, or says all"),
        (["k=[1,2]"], "with held_out all other sites train"),
        (["k=[2]"], "with held_out all other sites train"),
        (["comparison={algorithms: [codasca]}"], "held_out and comparison exclude each other"),
    ],
)
def test_a_pipeline_that_cannot_hold_out_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_pipeline(PIPELINE, overrides)


def test_one_site_alone_cannot_be_held_out(tmp_path: Path) -> None:
    text = {"extends": str(PIPELINE), "sites": [{"config": "x.yaml", "test_fraction": 0.2}]}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    with pytest.raises(ConfigError, match="needs two sites at least"):
        load_pipeline(tmp_path / "one.yaml")


def test_a_further_site_is_one_more_that_is_held_out() -> None:
    pipeline = load_pipeline(PIPELINE)
    assert held_out.held_out_sites(pipeline, [*SITES, "st-anne"]) == [*SITES, "st-anne"]
    chosen = load_pipeline(PIPELINE, ["held_out.sites=[vindr,padchest]"])
    assert held_out.held_out_sites(chosen, SITES) == ["padchest", "vindr"]
    with pytest.raises(ConfigError, match="'vindar' is none of the study's sites; did you mean 'vindr'"):
        held_out.held_out_sites(load_pipeline(PIPELINE, ["held_out.sites=[vindar]"]), SITES)


def test_algorithms_are_not_compared_over_held_out_sites(home: Path) -> None:
    result = study(home, PIPELINE, "--algorithms", "codasca,fedavg", "--dry-run")
    assert result.returncode == 1
    assert "a pipeline with held_out runs once per site" in result.stderr


def test_a_fold_has_no_published_table_beside_it(home: Path, tmp_path: Path) -> None:
    from chestfed.training import run

    pipeline, sites = loaded(home, tmp_path)
    this = held_out.fold(sites, "vindr", pipeline)
    clients = tuple(dataclasses.replace(client, origin=Origin.REAL) for client in this.data.clients)
    test = dataclasses.replace(this.data.test, origin=Origin.REAL)
    real: Any = dataclasses.replace(this.data, clients=clients, test=test)
    big = this.pipeline.model_copy(update={"model": this.pipeline.model.model_copy(update={"name": "densenet121"})})
    assert run._table(big, real, []).paper is None
    assert run._table(big, dataclasses.replace(real, held_out=None), []).paper is not None
