"""Runs, tables and models go into an MLflow store, and models come out of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from chestfed.core.errors import ChestfedError, ChestfedWarning
from chestfed.tracking import store as module
from chestfed.tracking.store import EXPERIMENT, Store, local_model, local_store
from tests.command_line import copied_stores


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with copied_stores():
        return Store(local_store(tmp_path), tmp_path / "artifacts")


def client_of(folder: Path) -> module.MlflowClient:
    return module.connect(local_store(folder))


def test_a_half_made_store_is_set_aside_and_a_whole_one_is_kept(tmp_path: Path) -> None:
    """As processes leave it that are killed while MLflow makes its tables."""
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as half, half:
        half.execute("CREATE TABLE experiments (experiment_id INTEGER)")
        half.execute("CREATE TABLE _alembic_tmp_runs (run_uuid TEXT)")
    (tmp_path / ".mlflow.db.part").write_bytes(b"SQLite format 3")
    with pytest.warns(ChestfedWarning, match=r"mlflow\.db: .*set aside as mlflow\.db\.unusable-1"):
        store = Store(local_store(tmp_path), tmp_path / "artifacts")
    run = store.start_run("study", {})
    made = file.stat().st_ino
    assert Store(local_store(tmp_path), tmp_path / "artifacts").reopened(run) == run
    assert file.stat().st_ino == made
    names = {one.name for one in tmp_path.iterdir()}
    assert names - {".mlflow.db.lock"} == {"mlflow.db", "mlflow.db.unusable-1"}


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "connect", lambda uri: pytest.fail("MLflow would try for minutes"))
    with pytest.raises(OSError, match="file"):
        Store(local_store(tmp_path / "file"), tmp_path / "artifacts")


def test_runs_metrics_and_files_arrive_in_the_local_store(store: Store, tmp_path: Path) -> None:
    parent = store.start_run("study", {"synthetic": "true"})
    child = store.start_run("K=1", {"k": "1", "mlflow.parentRunId": parent})
    store.log_params(child, {"window": 8, "long": "x" * 9000})
    store.log_metrics(child, [(3, {"auc_edema": 0.75, "auc_consolidation": None})])
    (tmp_path / "table.csv").write_text("k,auc\n")
    store.log_file(child, tmp_path / "table.csv")
    assert not store.is_finished(child)
    store.end_run(child)

    client = client_of(tmp_path)
    run = client.get_run(child)
    assert run.data.metrics == {"auc_edema": 0.75}
    assert run.data.params["window"] == "8"
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert client.get_run(parent).info.status == "RUNNING"
    assert [file.path for file in client.list_artifacts(child)] == ["table.csv"]
    assert [store.is_finished(run) for run in (child, parent, "0" * 32, "")] == [True, False, False, False]


def test_a_run_is_opened_again_where_the_store_has_it(store: Store, tmp_path: Path) -> None:
    run = store.start_run("K=1", {"k": "1"})
    store.end_run(run)
    again = Store(local_store(tmp_path), tmp_path / "artifacts")
    assert again.reopened(run) == run
    assert not again.is_finished(run)
    marked = store.start_run("K=1", {"mark": "m1"})
    assert [again.reopened(*note) for note in (("0" * 32, ""), ("", ""), ("", "m1"), ("", "m2"), ("", "'"))] == [
        *("", "", marked, "", ""),
    ]


@pytest.mark.parametrize("name", ["is_finished", "reopened"])
def test_a_store_that_does_not_answer_is_not_one_without_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else a resumed study would be recorded a second time."""

    def silent(*_: object, **__: object) -> None:
        raise MlflowException("API request failed: read timed out")

    run = store.start_run("K=1", {})
    monkeypatch.setattr(store._client, "get_run", silent)
    monkeypatch.setattr(store._client, "update_run", silent)
    with pytest.raises(MlflowException, match="timed out"):
        getattr(store, name)(run)


def test_a_deleted_run_or_experiment_is_told_from_others(store: Store, tmp_path: Path) -> None:
    run = store.start_run("K=1", {})
    client = client_of(tmp_path)
    client.delete_run(run)
    assert store.reopened(run) == ""
    client.delete_experiment(client.get_experiment_by_name("chestfed").experiment_id)
    with pytest.raises(ChestfedError, match="experiments restore"):
        Store(local_store(tmp_path), tmp_path / "artifacts")


def test_names_that_mlflow_refuses_are_changed(store: Store, tmp_path: Path) -> None:
    """Negative controls are called `vindr (noise)`."""
    run = store.start_run("study", {})
    store.log_params(run, {"dataset.vindr (noise)": "digest"})
    store.log_metrics(run, [(0, {"auc/feddyn:FedDyn, I8": 0.5})])
    found = client_of(tmp_path).get_run(run).data
    assert (found.params, found.metrics) == ({"dataset.vindr_noise": "digest"}, {"auc/feddyn_FedDyn_I8": 0.5})


def test_parameters_of_a_resumed_run_stay_as_they_were(store: Store, tmp_path: Path) -> None:
    """MLflow refuses other values, such as the versions after an update."""
    run = store.start_run("study", {})
    store.log_params(run, {"version.commit": "a"})
    store.log_params(run, {"version.commit": "b", "seed": 1})
    assert client_of(tmp_path).get_run(run).data.params == {"version.commit": "a", "seed": "1"}


def test_the_steps_in_the_store_are_told_with_their_gaps(store: Store) -> None:
    run = store.start_run("K=1", {})
    assert store.steps(run, "round/loss") == set()
    store.log_metrics(run, [(step, {"round/loss": 0.5}) for step in (9, 8, 2)])
    assert store.steps(run, "round/loss") == {2, 8, 9}


def test_more_metrics_than_a_store_accepts_at_once_arrive(store: Store) -> None:
    run = store.start_run("K=1", {})
    store.log_metrics(run, [(step, {"loss": step / 2, "auc": None}) for step in range(1500)])
    assert store.steps(run, "loss") == set(range(1500))


def test_a_table_is_logged_once_however_often_it_is_asked_for(store: Store, tmp_path: Path) -> None:
    run = store.start_run("study", {})
    for _ in range(2):
        store.log_table(run, pd.DataFrame({"K": [1, 2], "mean": [0.5, None]}), "auc_by_k.json")
    path = client_of(tmp_path).download_artifacts(run, "auc_by_k.json", str(tmp_path))
    assert json.loads(Path(path).read_text()) == {"columns": ["K", "mean"], "data": [[1, 0.5], [2, None]]}


def test_a_model_that_cannot_be_written_is_marked_as_failed_and_not_registered(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_image_model", full_disk)
    run = store.start_run("K=1", {"k": "1"})
    with pytest.raises(OSError, match="No space left on device"):
        store.log_model(run, "K1", tmp_path / "none", [], "some-K1", {"name": "", "version": ""}, {})
    client = client_of(tmp_path)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    assert [model.status for model in client.search_logged_models([experiment.experiment_id])] == ["FAILED"]
    assert client.search_registered_models() == []


def test_the_weights_of_a_study_are_found_by_its_run_or_that_of_one_k(store: Store, tmp_path: Path) -> None:
    uri = local_store(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    parent = store.start_run("study", {})
    child = store.start_run("K=1", {"k": "1", "mlflow.parentRunId": parent})
    store.log_file(child, tmp_path / "model.safetensors")
    store.end_run(child)
    failed = store.start_run("K=2", {"k": "2", "mlflow.parentRunId": parent})
    store.end_run(failed, "FAILED")
    for run in (parent, child):
        with local_model(f"runs:/{run}", uri) as path:
            assert Path(path).read_bytes() == b"weights"
        assert not Path(path).exists()
    others = (parent, 2, "no finished run of K=2"), (child, 2, "of K=1, not of K=2")
    for run, k, message in (*others, ("nothing", None, "MLflow cannot give")):
        with pytest.raises(ChestfedError, match=message), local_model(f"runs:/{run}", uri, k):
            pass


def test_a_path_is_taken_as_it_is() -> None:
    with local_model("runs/folder/k5", None) as path:
        assert path == "runs/folder/k5"


def test_what_a_store_cannot_do_is_raised_and_not_printed_with_a_traceback_besides(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as broken:
        broken.execute("DROP TABLE runs")
        broken.commit()
    with pytest.raises(Exception, match="no such table") as failure:
        store.start_run("K=1", {})
    assert isinstance(failure.value.__cause__.__cause__, sqlite3.OperationalError)  # what a reporter's reason is
    assert "Traceback" not in capfd.readouterr().err
