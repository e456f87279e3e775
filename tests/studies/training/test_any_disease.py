"""Diseases that chestfed does not know by name, from a site's table to the page, the evaluation and MLflow."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from PIL import Image

from chestfed.core.errors import ConfigError
from chestfed.data.sites import load_site_config
from chestfed.leaves.federation import handshake
from chestfed.reports.pages.page import write_report
from chestfed.reports.tracking.store import local_store
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.data.sites import TRAIN, open_sites
from tests.cases import assert_refused
from tests.command_line import call, undrawn
from tests.studies.training.tiny_studies import read_rows

SITE = """\
site: {name}
title: {name}
reader: table
root: {name}
label_files: {{table: [labels.csv]}}
views: all
diseases: [{diseases}]
titles: {{rib_notching: Notched ribs}}
labels: {{{labels}}}
uncertain: negative
blank: negative
table:
  default_view: frontal
  columns: {{image: image, patient: patient}}
splits: {{test_fraction: 0.4}}
synthetic: true
"""
PIPELINE = """\
title: Any disease
sites: [{config: first.yaml}, {config: second.yaml}]
diseases: [covid_19, rib_notching, edema]
titles: {rib_notching: Notched ribs}
k: [2]
model: {name: small, blocks: [1]}
preprocess: {size: 32}
augment: {enabled: false}
pretrain: {epochs: 0.5, batch_size: 4}
federated: {batch_size: 4, window: 1, stage_steps: 2, stages: 1}
evaluation: {split: test, resamples: 20}
"""


def write_site(home: Path, name: str, diseases: tuple[str, ...]) -> None:
    folder, draw = home / "data" / name, np.random.default_rng(len(name))
    folder.mkdir(parents=True)
    lines = [",".join(("image", "patient", *diseases))]
    for number in range(30):
        Image.fromarray(draw.integers(0, 256, (40, 40), dtype=np.uint8)).save(folder / f"{number}.png")
        labels = [str((number + place) % 2) for place in range(len(diseases))]
        lines.append(",".join((f"{number}.png", f"p{number}", *labels)))
    (folder / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    labels = ", ".join(f"{disease}: [{disease}]" for disease in diseases)
    text = SITE.format(name=name, diseases=", ".join(diseases), labels=labels)
    (home / f"{name}.yaml").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any")
    write_site(folder, "first", ("covid_19", "rib_notching", "edema"))
    write_site(folder, "second", ("covid_19",))
    (folder / "any.yaml").write_text(PIPELINE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run_folder(home: Path) -> Path:
    done = call("study", "any.yaml", "--data", "data", "--verbose", folder=home)
    assert done.code == 0, done.err
    assert "COVID-19" in done.out
    (folder,) = (home / "runs").glob("synthetic-any-*")
    return folder


@pytest.mark.slow
def test_table_and_page_have_the_titles(run_folder: Path) -> None:
    rows = list(csv.DictReader((run_folder / "table.csv").open(encoding="utf-8")))
    assert [row["disease"] for row in rows] == ["covid_19", "rib_notching", "edema", "mean"]
    with undrawn():
        write_report(run_folder, page := run_folder / "page.html")
    text = page.read_text(encoding="utf-8")
    assert all(title in text for title in ("COVID-19", "Notched ribs", "Edema"))


def test_mlflow_has_a_metric_per_disease(home: Path, run_folder: Path) -> None:
    client = MlflowClient(store := local_store(home / "runs"), store)
    experiment = client.get_experiment_by_name("chestfed")
    assert experiment is not None
    metrics = [run.data.metrics for run in client.search_runs([experiment.experiment_id])]
    assert any({"auc_per_disease/covid_19", "auc_per_disease/rib_notching"} <= values.keys() for values in metrics)


def test_the_model_is_evaluated_on_a_site(home: Path, run_folder: Path) -> None:
    site = ("--site", "second.yaml", "--data", "data", "--split", "test", "--resamples", "20")
    done = call("evaluate", str(run_folder), *site, folder=home)
    assert done.code == 0, done.err
    (file,) = (home / "runs" / "evaluations").rglob("evaluation.json")
    assert "covid_19" in json.dumps(json.loads(file.read_text()))
    assert "not labeled at site" in done.out


def test_hospitals_compare_any_diseases(home: Path) -> None:
    server = handshake.passport(load_pipeline(home / "any.yaml").resolve())
    assert server["labels"] == "covid_19, rib_notching, edema"
    other = handshake.passport(load_pipeline(home / "any.yaml", ["diseases=[rib_notching, covid_19, edema]"]).resolve())
    assert [line.partition(":")[0] for line in handshake.differences(server, other)] == ["labels", "pipeline"]


def test_a_title_is_no_part_of_a_result(home: Path) -> None:
    pipeline = load_pipeline(home / "any.yaml").resolve()
    assert identity(pipeline) == identity(pipeline.model_copy(update={"titles": {}}))


def test_a_nearly_known_name_is_remarked(home: Path) -> None:
    site = (
        (home / "second.yaml")
        .read_text(encoding="utf-8")
        .replace("covid_19]", "covid19]", 1)
        .replace("covid_19:", "covid19:")
    )
    (home / "third.yaml").write_text(site, encoding="utf-8")
    done = call("site", "check", "third.yaml", "--data", "data", "--no-images", folder=home)
    assert "'covid19' is not a known name (did you mean 'covid_19'?)" in " ".join(done.out.split())


def test_site_new_takes_any_disease(home: Path) -> None:
    table = (
        "--labels",
        "data/first/labels.csv",
        "--label",
        "covid_19=rib_notching",
        "--out",
        ".",
        "--no-input",
        "--blank",
        "missing",
        "--no-split",
        "--set",
        "ignore=[covid_19]",
        "--data",
        "data",
    )
    done = call("site", "new", "mine", "--images", "data/first", *table, folder=home)
    assert done.code == 0, done.err
    config = load_site_config(home / "mine.yaml")
    assert config.labels["covid_19"] == ["rib_notching"]


def test_unknown_disease_names_nearest(home: Path) -> None:
    pipeline = load_pipeline(home / "any.yaml", ["diseases=[covid_19, odema]"]).resolve()
    with assert_refused(ConfigError, "disease of no site", diseases=["odema"], suggestion="edema"):
        open_sites(pipeline, home / "any.yaml", home / "nowhere")  # before any label file is read
    pipeline = load_pipeline(home / "any.yaml", ["diseases=[covid19]"]).resolve()
    with assert_refused(ConfigError, "no disease of the study", suggestion="covid_19"):
        open_sites(pipeline, home / "any.yaml", home / "data", target_first=False)


def test_disease_of_other_site_is_missing(home: Path) -> None:
    pipeline = load_pipeline(home / "any.yaml").resolve()
    rows = read_rows(pipeline, home / "any.yaml", home / "data")
    labels = rows.sites[1].select(TRAIN).labels()
    assert np.isnan(labels[:, 1:]).all()
    assert not np.isnan(labels[:, 0]).any()
