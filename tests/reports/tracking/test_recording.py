"""MLflow holds what the run folder of a study holds, and no name of a patient or image."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient
from safetensors.torch import load_file

from chestfed.core.bundled import bundled
from chestfed.core.checkpoint import write_json
from chestfed.core.errors import ChestfedError
from chestfed.core.manifest import Part
from chestfed.core.provenance import Origin
from chestfed.data.sites import load_site_config, open_site
from chestfed.data.sites.table import SiteTable
from chestfed.reports.pages.page import write_report
from chestfed.reports.tracking import recording
from chestfed.reports.tracking.recording import MlflowRecord
from chestfed.reports.tracking.store import Store, local_store
from chestfed.results.evaluation.intervals.methods import METHODS
from chestfed.results.evaluation.protocols import list_views
from chestfed.results.tables.answer import answer_study
from chestfed.results.tables.clients.batch_norm import describe_statistics
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.run_folder import RunFolder
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.identity import Identity
from chestfed.studies.training.reporting import StudyRun
from tests.cases import assert_refused
from tests.command_line import Called, call
from tests.studies.training.tiny_studies import command

SITES = ("chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr")


def study(home: Path, out: str, *more: str) -> Called:
    return call(*command(out, *more)[3:], folder=home)


@pytest.fixture(scope="module")
def home(tiny_study: Path) -> Path:
    """A folder with hospitals and a tracked study of them in `runs`."""
    return tiny_study


@pytest.fixture(scope="module")
def run_folder(home: Path) -> Path:
    (folder,) = (home / "runs").glob("synthetic-source_addition_samples-*")
    return folder


@pytest.fixture(scope="module")
def store(home: Path) -> str:
    return local_store(home / "runs")


@pytest.fixture(scope="module")
def client(store: str) -> MlflowClient:
    return MlflowClient(store, store)


@pytest.fixture(scope="module")
def parent(client: MlflowClient) -> Any:
    (study,) = [run for run in list_runs(client) if run.data.tags["kind"] == "study"]
    return study


@pytest.fixture(scope="module")
def children(client: MlflowClient) -> list[Any]:
    return sorted(
        (run for run in list_runs(client) if run.data.tags["kind"] == "K"), key=lambda run: run.data.tags["k"]
    )


def list_runs(client: MlflowClient) -> list[Any]:
    experiment = client.get_experiment_by_name("chestfed")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def site_table(home: Path, site: str) -> SiteTable:
    return open_site(
        load_site_config(bundled("site_configs") / "synthetic" / f"{site}.yaml"), home / "synthetic_hospitals"
    )


def scored_images(home: Path) -> list[str]:
    chosen = site_table(home, "chexpert").select(split="valid", views=list_views("frontal-image"))
    return [str(chosen.root / image) for image in chosen.frame["image"]]


def read_results(run_folder: Path) -> dict[int, dict[str, Any]]:
    run = RunFolder(run_folder)
    return {
        k: {
            "mean_auc": row.mean.value,
            "clients": row.clients,
            "diseases": {disease.disease: disease.record("auc") for disease in row.diseases},
        }
        for k, row in ((k, run.row(k)) for k in run.ks)
    }


def values(client: MlflowClient, run: Any, key: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, key)]


def logged_table(client: MlflowClient, run: Any, file: str, folder: Path) -> pd.DataFrame:
    path = client.download_artifacts(run.info.run_id, file, str(folder))
    logged = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert {"path": file, "type": "table"} in logged
    return pd.read_json(path, orient="split")


def test_study_is_one_run_with_a_child_per_k(parent: Any, children: list[Any]) -> None:
    assert parent.info.run_name == "synthetic codasca I=2 seed 1: source_addition_samples"
    names = [child.info.run_name for child in children]
    assert names == ["synthetic K=1: chexpert", "synthetic K=2: + chestxray8"]
    assert {run.info.status for run in (parent, *children)} == {"FINISHED"}
    assert {run.data.tags["synthetic"] for run in (parent, *children)} == {"true"}
    assert {child.data.tags["mlflow.parentRunId"] for child in children} == {parent.info.run_id}
    assert [child.data.params["k"] for child in children] == ["1", "2"]
    assert "dataset.chexpert" in parent.data.params
    assert "version.torch" in parent.data.params


def test_auc_of_the_study_has_k_as_its_step(
    client: MlflowClient, parent: Any, children: list[Any], run_folder: Path
) -> None:
    rows = read_results(run_folder)
    assert values(client, parent, "auc/mean") == [(k, row["mean_auc"]) for k, row in rows.items()]
    edema = [(k, row["diseases"]["edema"]["auc"]) for k, row in rows.items()]
    assert values(client, parent, "auc_per_disease/edema") == edema
    for (k, row), child in zip(rows.items(), children, strict=True):
        assert values(client, child, "auc/mean") == [(k, row["mean_auc"])]


def test_every_round_is_there_auc_first(client: MlflowClient, children: list[Any], run_folder: Path) -> None:
    lines = (run_folder / "k2" / "rounds.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    for key, name in (("round/auc_mean", "mean_auc"), ("round/loss", "loss"), ("round/bytes_up", "bytes_up")):
        assert sorted(values(client, children[1], key)) == [(entry["round"], entry[name]) for entry in rounds]
    assert next(iter(children[1].data.metrics)) == "round/auc_mean"  # what the comparison page draws first


def test_the_list_of_runs_has_auc_columns(parent: Any, run_folder: Path) -> None:
    metrics, rows = parent.data.metrics, read_results(run_folder)
    assert {k: metrics[f"mean_auc/K{k}"] for k in rows} == {k: round(row["mean_auc"], 4) for k, row in rows.items()}
    gains = pd.read_csv(run_folder / "significance.csv").set_index("disease")
    mean = gains.loc["mean"]
    shown = [metrics[name] for name in ("gain", "gain_from", "gain_to")]
    assert shown == mean[["difference", "low", "high"]].astype(float).round(4).tolist()
    assert metrics["gain_per_disease/edema"] == round(gains.loc["edema", "difference"], 4)
    hospitals = pd.read_csv(run_folder / "hospitals.csv").query("disease == 'mean' and k == 2").set_index("hospital")
    assert {name: metrics[f"auc_at/{name}"] for name in hospitals.index} == hospitals["auc"].round(4).to_dict()


def test_costs_are_sums_over_all_rounds(client: MlflowClient, children: list[Any], run_folder: Path) -> None:
    for k, child in enumerate(children, start=1):
        lines = [json.loads(line) for line in (run_folder / f"k{k}" / "rounds.jsonl").read_text().splitlines()]
        for name in ("images", "gradients", "bytes_up", "bytes_down"):
            assert values(client, child, f"cost/{name}") == [(k, sum(line[name] for line in lines))]
        assert child.data.metrics["cost/rounds"] == len(lines)


def test_page_and_figures_are_not_drawn(client: MlflowClient, parent: Any, run_folder: Path) -> None:
    files = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert {"run_folder", "auc_by_k.json"} <= files
    assert not files & {"report.html", "figures"}
    assert not (run_folder / "report.html").exists()


def test_a_moved_store_is_refused(home: Path, tmp_path: Path) -> None:
    """Its artifacts would be written into the folder that it was copied from."""
    moved = Path(shutil.copytree(home / "runs", tmp_path / "runs"))
    with assert_refused(ChestfedError, "moved store"):
        Store(local_store(moved), moved / "mlflow-artifacts")


def test_the_k_table_is_a_table_of_the_page(
    client: MlflowClient, parent: Any, run_folder: Path, tmp_path: Path
) -> None:
    table = logged_table(client, parent, "auc_by_k.json", tmp_path)
    rows = read_results(run_folder)
    assert list(table["K"]) == list(rows)
    assert list(table["mean"]) == pytest.approx([row["mean_auc"] for row in rows.values()], abs=6e-5)
    edema = [row["diseases"]["edema"] for row in rows.values()]
    assert list(table["Edema"]) == pytest.approx([cell["auc"] for cell in edema], abs=6e-5)
    assert set(table["data"]) == {"synthetic"}


def test_the_significance_table_is_there(client: MlflowClient, parent: Any, run_folder: Path, tmp_path: Path) -> None:
    table = logged_table(client, parent, "significance.json", tmp_path)
    expected = pd.read_csv(run_folder / "significance.csv").set_index("disease")
    mean = table[table["disease"] == "mean"].iloc[0]
    assert (mean["model"], mean["reference"]) == ("K=2", "K=1")
    assert mean["difference"] == pytest.approx(expected.loc["mean", "difference"], abs=6e-5)
    assert len(table) == len(expected)


def test_every_child_has_a_table_per_disease(
    client: MlflowClient, children: list[Any], run_folder: Path, tmp_path: Path
) -> None:
    for child, row in zip(children, read_results(run_folder).values(), strict=True):
        table = logged_table(client, child, "auc_per_disease.json", tmp_path / child.info.run_id)
        assert list(table["disease"])[-1] == "mean"
        cells = list(row["diseases"].values())
        assert list(table["auc"])[:-1] == pytest.approx([cell["auc"] for cell in cells], abs=6e-5)
        assert list(table["low"])[:-1] == pytest.approx([cell["low"] for cell in cells], abs=6e-5)
        assert list(table["positives"])[:-1] == [cell["positives"] for cell in cells]
        assert list(table["negatives"])[:-1] == [cell["negatives"] for cell in cells]
        assert set(table["data"]) == {"synthetic"}


def test_the_description_has_the_k_table(parent: Any, children: list[Any], run_folder: Path) -> None:
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("**SYNTHETIC")
    assert str(answer_study(load_results(RunFolder(run_folder)))) in note
    for k, row in read_results(run_folder).items():
        (line,) = [line for line in note.splitlines() if line.startswith(f"| K={k} | {row['clients'][-1]} | ")]
        assert f" | {row['mean_auc']:.3f} [" in line
    for child in children:
        assert "**SYNTHETIC" in child.data.tags["mlflow.note.content"]


def test_evaluate_takes_the_run_of_a_k(
    home: Path, store: str, children: list[Any], run_folder: Path, tmp_path: Path, chestfed: Callable[..., Any]
) -> None:
    site = bundled("site_configs") / "synthetic" / "chexpert.yaml"
    words = (
        *("evaluate", f"runs:/{children[1].info.run_id}", "--tracking-uri", store, "--site", site),
        *("--data", home / "synthetic_hospitals", "--cache", home / "cache", "--out", tmp_path / "out"),
        *("--resamples", 20, "--device", "cpu"),
    )
    called = chestfed(*words)
    assert called.code == 0, called.err
    assert chestfed(*words, "--k", 1).code == 1  # the run is that of one K
    metrics = pd.read_csv(tmp_path / "out" / "metrics.csv")
    auc = {row["disease"]: row["value"] for _, row in metrics[metrics["metric"] == "auc"].iterrows()}
    expected = read_results(run_folder)[2]
    assert auc["mean"] == pytest.approx(expected["mean_auc"], abs=1e-9)
    assert auc["edema"] == pytest.approx(expected["diseases"]["edema"]["auc"], abs=1e-9)


def test_digests_of_the_data_are_parameters(parent: Any, run_folder: Path) -> None:
    inputs = json.loads((run_folder / "study.json").read_text())["inputs"]
    assert {name: parent.data.params[f"dataset.{name.replace(' ', '_')}"] for name in inputs} == inputs


def test_no_patient_or_image_is_in_the_store(home: Path) -> None:
    names = set()
    for site in SITES:
        frame = site_table(home, site).frame
        for column in ("image", "patient", "study"):
            parts = {part for value in frame[column].astype(str) for part in (value, *Path(value).parts)}
            names |= {part for part in parts if len(part) >= 7 and re.search(r"\d{3}", part)}
    assert len(names) > 100
    searched = 0
    with sqlite3.connect(home / "runs" / "mlflow.db") as database:
        dump = "\n".join(database.iterdump())
    for file in (home / "runs" / "mlflow-artifacts").rglob("*"):
        if file.is_file() and file.suffix in ("", ".json", ".jsonl", ".csv", ".yaml", ".txt"):
            dump += file.read_text(encoding="utf-8")
            searched += 1
    assert searched > 10
    # Between other digits it is part of a number, such as 0.010000555 seconds.
    assert [name for name in names if name in dump and re.search(rf"(?<!\d){re.escape(name)}(?!\d)", dump)] == []


@pytest.fixture(scope="module")
def later(home: Path) -> tuple[Called, MlflowClient]:
    """A copy of the finished study that MLflow did not know: what its command printed, and its store."""
    shutil.copytree(home / "runs", home / "later", ignore=shutil.ignore_patterns("mlflow.db*", "mlflow-artifacts"))
    return study(home, "later"), MlflowClient(*[local_store(home / "later")] * 2)


@pytest.mark.slow
def test_repeated_command_records_once(home: Path, later: tuple[Called, MlflowClient]) -> None:
    def state() -> list[Any]:
        return sorted((run.info.run_id, run.info.end_time) for run in list_runs(later[1]))

    before = state()
    result = study(home, "later")
    assert result.code == 0, result.err
    assert state() == before


def test_a_finished_study_is_recorded_later(client: MlflowClient, later: tuple[Called, MlflowClient]) -> None:
    result, store = later
    assert result.code == 0, result.err
    assert result.out.count("from the earlier run") == 2
    for before, after in zip(sorted_by_name(client), sorted_by_name(store), strict=True):
        assert after.info.run_name == before.info.run_name
        assert after.info.status == "FINISHED"
        # The loss of stage 1 is in no run folder.
        assert after.data.metrics == {k: v for k, v in before.data.metrics.items() if k != "pretraining/loss"}
        assert after.data.tags["mlflow.note.content"] == before.data.tags["mlflow.note.content"]
        files = [
            {artifact.path for artifact in kept.list_artifacts(run.info.run_id)}
            for kept, run in ((client, before), (store, after))
        ]
        assert files[0] == files[1]


@pytest.mark.slow
def test_a_resumed_study_logs_missing_rounds(run_folder: Path, tmp_path: Path) -> None:
    """An earlier start that was killed had sent the last rounds first, and one batch of stage 1."""
    study, uri = tmp_path / run_folder.name, local_store(tmp_path)
    shutil.copytree(run_folder, study)
    history = [json.loads(line) for line in (study / "k2" / "rounds.jsonl").read_text().splitlines()]
    assert len(history) >= 2
    store = Store(uri, tmp_path / "artifacts")
    child, parent = store.start_run("K=2", {}), store.start_run("study", {})
    store.log_metrics(child, [(history[-1]["round"], {"round/loss": history[-1]["loss"]})])
    store.log_metrics(parent, [(2, {"pretraining/loss": 0.5})])
    for folder, run, place in ((study, parent, "."), (study / "k2", child, "k2")):
        part = str(Part(started_in(study).identity.digest, place))
        (folder / "mlflow.json").write_text(json.dumps({"part": part, "run": run}))
    record = MlflowRecord(uri, tmp_path / "artifacts")
    record.study_started(started_in(study))
    record.pretraining(2, 3, 0.5)
    record.pretraining(3, 3, 0.4)
    record.k_started(2)
    for end in range(1, len(history) + 1):  # as they come in, the first of them again
        record.round_done(2, history[:end], len(history))
    record.study_failed(KeyboardInterrupt())
    client = MlflowClient(uri)
    steps = sorted(point.step for point in client.get_metric_history(child, "round/loss"))
    assert steps == [entry["round"] for entry in history]
    assert [point.step for point in client.get_metric_history(parent, "pretraining/loss")] == [2, 3]
    assert {client.get_run(run).info.status for run in (child, parent)} == {"KILLED"}


def test_the_description_names_the_method(run_folder: Path) -> None:
    note = recording._describe(load_results(RunFolder.open(run_folder)))
    assert METHODS["obuchowski"].about in note
    assert note.endswith(describe_statistics("own"))


@pytest.mark.slow
def test_a_killed_start_leaves_one_run(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, uri = tmp_path / run_folder.name, local_store(tmp_path)
    shutil.copytree(run_folder, study)
    (study / "mlflow.json").unlink()

    def killed(_: Path, value: dict[str, str]) -> None:
        if "run" in value:
            raise KeyboardInterrupt
        write_json(study / "mlflow.json", value)

    first = MlflowRecord(uri, tmp_path / "artifacts")
    with monkeypatch.context() as patch:
        patch.setattr(recording, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            first.study_started(started_in(study))
    MlflowRecord(uri, tmp_path / "artifacts").study_started(started_in(study))
    (run,) = list_runs(MlflowClient(uri))
    assert json.loads((study / "mlflow.json").read_text())["run"] == run.info.run_id


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["copied", "a bit"])
def test_note_of_another_run_is_ignored(run_folder: Path, tmp_path: Path, damage: str) -> None:
    study, uri = tmp_path / run_folder.name, local_store(tmp_path)
    shutil.copytree(run_folder, study, ignore=shutil.ignore_patterns("mlflow.json"))
    record = MlflowRecord(uri, tmp_path / "artifacts")
    record.study_started(started_in(study))
    record.k_started(1)
    note = json.loads((study / "k1" / "mlflow.json").read_text())
    if damage == "a bit":
        note = {"part": note["part"].replace("k1", "k2"), "run": f"{int(note['run'], 16) ^ 1:032x}"}
    (study / "k2" / "mlflow.json").write_text(json.dumps(note))
    record.k_started(2)
    names = [run.info.run_name for run in list_runs(MlflowClient(uri))]
    assert len(names) == len({*names}) == 3


def started_in(folder: Path) -> StudyRun:
    """The study of a run folder, as its reporters hear of it."""
    about = json.loads((folder / "study.json").read_text())
    pipeline = Pipeline.model_validate(about["configuration"])
    this = Identity(identity(pipeline), about["inputs"], about["machine"])
    return StudyRun(folder, "source_addition_samples", pipeline, this, Origin.SYNTHETIC, SITES, None)


def test_no_folder_is_a_parameter(parent: Any, client: MlflowClient) -> None:
    params = parent.data.params
    assert params["federated.window"] == "2"
    assert not [key for key in params if "root" in key or key.endswith("config")]
    files = {file.path for file in client.list_artifacts(parent.info.run_id, "run_folder")}
    names = (*("table.csv", "significance.csv", "hospitals.csv", "hospital_gains.csv", "tables.json", "sites.json"),)
    assert files == {f"run_folder/{name}" for name in names}


def test_a_finished_model_counts_no_batches(run_folder: Path) -> None:
    tensors = load_file(run_folder / "k2" / "model.safetensors")
    counters = [tensor for name, tensor in tensors.items() if name.endswith("num_batches_tracked")]
    assert counters
    assert all(int(tensor) == 0 for tensor in counters)


def sorted_by_name(client: MlflowClient) -> list[Any]:
    return sorted(list_runs(client), key=lambda run: run.info.run_name)


def chromium() -> str:
    """The browser's path; without one, or without playwright, the test is skipped."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    program = os.environ.get("CHESTFED_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no Chromium found: install it (CONTRIBUTING.md), or name it in CHESTFED_CHROMIUM")
    return program


@pytest.fixture
def page() -> Iterator[Any]:
    """An empty page in headless Chromium."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1600, "height": 1000})
        tab.set_default_timeout(300_000)
        yield tab
        browser.close()


@pytest.fixture
def address(home: Path) -> Iterator[str]:
    """What `chestfed ui` prints, once its page answers; it is ended with all its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [sys.executable, "-m", "chestfed", "ui", "--out", "runs", "--port", str(port)]
    with (home / "ui.log").open("w+", encoding="utf-8") as log:
        server = subprocess.Popen(options, cwd=home, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield wait_for_address(home / "ui.log", server)
        finally:
            server.terminate()  # not SIGKILL: the server is a group of its own, which the command ends
            server.wait(300)


def wait_for_address(log: Path, server: subprocess.Popen[bytes]) -> str:
    while server.poll() is None:
        if found := re.findall(r"http://\S+/#/\S+", log.read_text(encoding="utf-8")):
            return str(found[0])
        time.sleep(0.2)  # a server has no other sign of being ready
    pytest.fail("the MLflow page does not answer")


@pytest.mark.browser
@pytest.mark.usefixtures("undrawn")
def test_a_browser_shows_the_report(page: Any, run_folder: Path, tmp_path: Path) -> None:
    write_report(run_folder, tmp_path / "report.html")
    page.goto((tmp_path / "report.html").as_uri())
    page.locator("summary", has_text="AUC of each disease").click()
    table = page.get_by_role("table").filter(has=page.get_by_text("AUC at the first hospital"))
    for k, row in read_results(run_folder).items():
        line = table.get_by_role("row").filter(has_text=f"K={k}")
        assert row["clients"][-1] in line.first.inner_text()
        assert f"{row['mean_auc']:.3f}" in line.first.inner_text()


@pytest.mark.browser
@pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX")
def test_a_browser_shows_mlflows_page(page: Any, address: str, parent: Any, run_folder: Path) -> None:
    page.goto(address)
    page.get_by_text(parent.info.run_name).first.wait_for()
    start, experiment = address.partition("/#/")[0], parent.info.experiment_id
    run = f"{start}/#/experiments/{experiment}/runs/{parent.info.run_id}"

    page.goto(run)
    rows = read_results(run_folder)
    last = rows[2]
    shown = page.get_by_role("row").filter(has_text="chestxray8")  # in the description
    assert f"{last['mean_auc']:.3f} [" in shown.first.inner_text()

    page.goto(f"{run}/artifacts/auc_by_k.json")
    for row in rows.values():
        page.get_by_role("row").filter(has_text=str(round(row["mean_auc"], 4))).first.wait_for()
    page.get_by_text("Edema", exact=True).first.wait_for()
