"""Each site held out in turn, on tiny synthetic hospitals."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from chestfed.core.bundled import bundled
from chestfed.core.errors import ConfigError
from chestfed.data.images.cache import CachedImages
from chestfed.data.sites import load_site_config
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.sentences import QUICK
from chestfed.studies.designs.design import list_variants
from chestfed.studies.designs.held_out import select_held_out_sites
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training import assemble
from chestfed.studies.training.data.clients import Outputs
from chestfed.studies.training.data.experiment import Experiment, load_images, make_experiment
from chestfed.studies.training.data.sites import TEST, TRAIN, open_sites
from chestfed.studies.training.loop import train_federated
from chestfed.studies.training.pretrain import pretrain
from tests.cases import assert_refused
from tests.command_line import call
from tests.studies.training.tiny_studies import SMALL, run, study

PIPELINE = bundled("pipelines") / "leave_one_site_out.yaml"
SITES = ["chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"]


def read_lines(home: Path, out: str) -> list[dict[str, str]]:
    (file,) = (home / out).glob("synthetic-held-out-*/held_out.csv")
    return list(csv.DictReader(file.open(encoding="utf-8")))


@pytest.fixture(scope="module")
def home(held_out_study: Path) -> Path:
    """A folder with hospitals and a finished study of them."""
    return held_out_study


@pytest.fixture(scope="module")
def finished(home: Path) -> str:
    """What is printed of two of the five."""
    return (home / "printed.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_quick_study_says_what_it_leaves_out(furnish: Callable[[Path], Path], tmp_path: Path) -> None:
    furnish(tmp_path)
    called = run(tmp_path, study(str(PIPELINE), "--quick", "--out", "runs", "--set", "held_out.sites=[vindr]"))
    assert called.code == 0, called.err
    assert QUICK in " ".join(called.out.split())
    assert "alternatives that it leaves out" in QUICK


def test_table_has_each_held_out_site(home: Path, finished: str) -> None:
    assert "SYNTHETIC hospitals" in finished
    held = [line for line in read_lines(home, "runs") if line["takes_part"] == "False"]
    assert [(line["model"], line["hospital"]) for line in held] == [("chexpert",) * 2] * 6 + [("vindr",) * 2] * 6
    for line in held:
        if line["disease"] != "mean" and line["auc"]:
            assert 0 <= float(line["low"]) <= float(line["auc"]) <= float(line["high"]) <= 1
            assert int(line["positives"]) + int(line["negatives"]) + int(line["missing"]) == 48
    assert {line["data"] for line in held} == {"synthetic"}
    (edema,) = [line for line in held if (line["model"], line["disease"]) == ("vindr", "edema")]
    assert (edema["auc"], edema["reason"]) == ("", "no labeled image")


def test_table_has_training_sites(home: Path, finished: str) -> None:
    assert "sites trained on" in finished
    beside = [line for line in read_lines(home, "runs") if line["takes_part"] == "True"]
    for site in ("chexpert", "vindr"):
        others = [line["hospital"] for line in beside if line["model"] == site and line["disease"] == "mean"]
        assert others == [name for name in SITES if name != site]


def test_each_fold_is_a_run(home: Path, finished: str) -> None:
    for site in ("chexpert", "vindr"):
        (folder,) = (home / "runs").glob(f"synthetic-leave_one_site_out-{site}-*")
        about = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        assert about["configuration"]["held_out"] == {"sites": [site], "images": "all"}
        assert site not in about["inputs"]
        scored = about["scored"]
        assert scored["protocol"] == f"frontal-image, all images of {site}, on which nothing was trained"
        assert list(RunFolder(folder).row().clients) == [name for name in SITES if name != site]
        assert len(list(folder.glob("k4/hospitals/*/predictions.parquet"))) == 4
        hospitals = json.loads((folder / "sites.json").read_text(encoding="utf-8"))["hospitals"]
        (people,) = (row["people"] for row in hospitals if row["site"] == site)
        assert (people["train"]["images"], people["test"]["images"]) == (0, scored["images"])
    assert call("report", folder, folder=home).code == 0


def test_mlflow_has_folds_and_table(home: Path, finished: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home}/runs/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    assert {run.data.tags["held_out"] for run in runs if "held_out" in run.data.tags} == {"chexpert", "vindr"}
    (whole,) = [run for run in runs if "held_out_auc_mean_vindr" in run.data.metrics]
    assert "trained_on_auc_mean_chexpert" in whole.data.metrics
    (table,) = (home / "runs").glob("synthetic-held-out-*/held_out.csv")
    files = {file.path for file in client.list_artifacts(whole.info.run_id)}
    assert files == {"tables.json", *(file.name for file in table.parent.glob("*.csv"))}


@pytest.mark.slow
def test_finished_folds_are_reused(home: Path, finished: str) -> None:
    before = read_lines(home, "runs")
    again = run(
        home, study(str(PIPELINE), "--out", "runs", "--no-tracking", "--set", "held_out.sites=[chexpert,vindr]")
    )
    assert again.code == 0, again.err
    assert again.out.count("(from the earlier run)") == 2
    assert read_lines(home, "runs") == before


@pytest.mark.slow
def test_dry_run_of_held_out(home: Path) -> None:
    result = run(home, study(str(PIPELINE), "--out", "nothing", "--cache", "nothing", "--dry-run"))
    assert result.code == 0, result.err
    for text in ("5 studies", "held out", "stage 1 on", "None of them trains", "Nothing was written"):
        assert text in " ".join(result.out.split())
    assert not (home / "nothing").exists()


def studies(*overrides: str) -> tuple[Pipeline, list[Pipeline]]:
    """The pipeline, and that of each held-out site."""
    pipeline = load_pipeline(PIPELINE, [*SMALL, *overrides])
    return pipeline.resolve(), [variant.pipeline for variant in list_variants(pipeline, PIPELINE)]


def loaded(home: Path, folder: Path, site: str) -> tuple[Pipeline, Experiment]:
    """The study that holds a site out."""
    pipeline, (study,) = studies(f"held_out.sites=[{site}]")
    rows = make_experiment(
        study, open_sites(pipeline, PIPELINE, home / "synthetic_hospitals"), prepare_machine(study.runtime)
    )
    (data,) = load_images([rows], folder / "cache")
    return study, data


@pytest.mark.slow_but("chexpert")
@pytest.mark.parametrize("site", ["chexpert", "padchest"])
def test_held_out_images_are_not_trained_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    _, data = loaded(home, tmp_path, site)
    read_from: list[set[str]] = [set(), set()]
    stage = 0
    read = CachedImages.read

    def noted(images: CachedImages, row: int) -> np.ndarray:
        read_from[stage].add(images.database.file.parent.name)
        return read(images, row)

    monkeypatch.setattr(CachedImages, "read", noted)
    start = pretrain(data, tmp_path, lambda *_: None)
    stage = 1
    zeros = Outputs(np.zeros((len(data.test.labels), 5)), torch.zeros(0))
    monkeypatch.setattr(assemble, "score", lambda *_: zeros)
    (tmp_path / "k4").mkdir()
    train_federated(data, 4, start, tmp_path / "k4", lambda _: None)
    others = [name for name in SITES if name != site]
    assert read_from == [{others[0]}, set(others)]


def test_scored_patients_train_nothing(home: Path) -> None:
    pipeline, (study,) = studies("held_out.sites=[vindr]")
    rows = make_experiment(
        study, open_sites(pipeline, PIPELINE, home / "synthetic_hospitals"), prepare_machine(study.runtime)
    )
    clients, hospitals = {name: site for site in rows.sites for name in site.clients}, rows.select_scored()[1]
    assert list(clients) == list(hospitals) == SITES[:-1]
    for name, site in clients.items():
        assert not set(site.select(TRAIN, name).frame["patient"]) & set(hospitals[name].frame["patient"])
        assert len(hospitals[name].frame) > 0


def test_training_images_limit_sites_trained_on(home: Path) -> None:
    pipeline, (study,) = studies("held_out.sites=[vindr]", "sites.1.training_images=7")
    sites = open_sites(pipeline, PIPELINE, home / "synthetic_hospitals")
    of_study = make_experiment(study, sites, prepare_machine(study.runtime)).sites
    trained = {site.name: len(site.find(TRAIN)) for site in of_study}
    assert 0 < trained[SITES[1]] <= 7 < min(trained[name] for name in SITES[:-1] if name != SITES[1])


@pytest.mark.slow
def test_studies_share_images_of_clients(home: Path, tmp_path: Path) -> None:
    pipeline, variants = studies("held_out.sites=[padchest,vindr]")
    sites = open_sites(pipeline, PIPELINE, home / "synthetic_hospitals")
    noted = replace(sites[0], table=replace(sites[0].table, notes=("7 rows have no term",)))
    machine = prepare_machine(pipeline.runtime)
    rows = [make_experiment(study, [noted, *sites[1:]], machine) for study in variants]
    first, second = load_images(rows, tmp_path / "cache")
    assert first.notes == {"chexpert": ["7 rows have no term"]}
    assert [client.name for client in first.clients] == ["chexpert", "chestxray8", "mimic_cxr", "vindr"]
    assert first.clients[0] is second.clients[0]
    assert first.digests["chexpert"] == second.digests["chexpert"]
    assert first.digests["test set"] != second.digests["test set"]


@pytest.mark.slow
def test_all_images_or_one_split_are_scored(home: Path) -> None:
    def scored(*overrides: str) -> dict[str, int]:
        pipeline, variants = studies(*overrides)
        sites = open_sites(pipeline, PIPELINE, home / "synthetic_hospitals")
        experiments = [make_experiment(study, sites, prepare_machine(study.runtime)) for study in variants]
        return {str(rows.held_out): sum(len(site.find(TEST)) for site in rows.sites) for rows in experiments}

    assert scored() == {"chexpert": 48, "chestxray8": 48, "padchest": 48, "mimic_cxr": 66, "vindr": 48}
    assert scored("held_out.images=valid", "held_out.sites=[chexpert]") == {"chexpert": 24}
    pipeline, (study,) = studies("held_out.sites=[chexpert]", "evaluation.hospitals=none")
    sites = open_sites(pipeline, PIPELINE, home / "synthetic_hospitals")
    assert make_experiment(study, sites, prepare_machine(study.runtime)).select_scored()[1] == {}
    with assert_refused(ConfigError, "no test image", site="padchest", key="held_out.images: valid"):
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


@pytest.mark.slow
def test_unlabeled_disease_has_a_reason(home: Path, two_sites: Path) -> None:
    result = run(home, study(str(two_sites), "--out", "two", "--no-tracking"))
    assert result.code == 0, result.err
    undefined = {
        (line["model"], line["disease"]): line["reason"]
        for line in read_lines(home, "two")
        if line["takes_part"] == "False" and not line["auc"]
    }
    assert undefined == {
        ("chexpert", "cardiomegaly"): "chexpert does not label it",
        ("chexpert", "edema"): "no site that was trained on labels it",
        ("vindr", "cardiomegaly"): "no site that was trained on labels it",
        ("vindr", "edema"): "vindr does not label it",
    }
    assert "vindr, Edema: vindr does not label it" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["held_out.sites=[]"], "held_out.sites"),
        (["held_out.sites=[vindr,vindr]"], "held_out.sites"),
        (["k=[1,2]"], ""),
        (["k=[2]"], ""),
        (["selected=[codasca, coda]"], "held_out"),
    ],
)
def test_pipeline_without_held_out_refused(overrides: list[str], key: str) -> None:
    with assert_refused(ConfigError, "invalid value", key=key):
        load_pipeline(PIPELINE, overrides).resolve()


def test_one_site_alone_cannot_be_held_out(tmp_path: Path) -> None:
    text = {"extends": str(PIPELINE), "sites": [{"config": "x.yaml", "test_fraction": 0.2}]}
    (tmp_path / "x.yaml").touch()
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    with assert_refused(ConfigError, "invalid value", key="held_out"):
        load_pipeline(tmp_path / "one.yaml").resolve()


def test_added_site_is_held_out_too() -> None:
    pipeline = load_pipeline(PIPELINE).resolve()
    assert select_held_out_sites(pipeline, [*SITES, "st-anne"]) == [*SITES, "st-anne"]
    chosen = load_pipeline(PIPELINE, ["held_out.sites=[vindr,padchest]"]).resolve()
    assert select_held_out_sites(chosen, SITES) == ["padchest", "vindr"]
    with assert_refused(ConfigError, "unknown site", site="vindar", suggestion="vindr"):
        select_held_out_sites(load_pipeline(PIPELINE, ["held_out.sites=[vindar]"]).resolve(), SITES)


def test_no_comparison_over_held_out(home: Path) -> None:
    result = run(home, study(str(PIPELINE), "--methods", "codasca,fedavg", "--dry-run"))
    assert result.code == 1
    assert "leave_one_site_out.yaml:18: held_out: not with several methods" in result.err
