"""Runs, tables and models go into an MLflow store, and models come out of it."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from chestfed.core.errors import ChestfedError
from chestfed.reports.tracking import store as module
from chestfed.reports.tracking.store import Store, local_model, local_store
from tests.cases import assert_refused
from tests.command_line import copied_stores


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with copied_stores():
        return Store(local_store(tmp_path), tmp_path / "artifacts")


def connect_client(folder: Path) -> module.MlflowClient:
    return module.connect(local_store(folder))


@pytest.mark.slow
def test_an_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    (tmp_path / ".mlflow.db.part").write_bytes(b"SQLite format 3")
    run = Store(local_store(tmp_path), tmp_path / "artifacts").start_run("study", {})
    inode = file.stat().st_ino
    assert Store(local_store(tmp_path), tmp_path / "artifacts").reopen_run(run) == run
    assert file.stat().st_ino == inode
    assert {path.name for path in tmp_path.iterdir()} - {".mlflow.db.lock"} == {"mlflow.db"}


def test_unwritable_folder_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "connect", lambda uri: pytest.fail("MLflow would try for minutes"))
    with pytest.raises(OSError, match="file"):
        Store(local_store(tmp_path / "file"), tmp_path / "artifacts")


def test_runs_metrics_and_files_arrive(store: Store, tmp_path: Path) -> None:
    parent = store.start_run("study", {"synthetic": "true"})
    child = store.start_run("K=1", {"k": "1", "mlflow.parentRunId": parent})
    store.log_params(child, {"window": 8, "long": "x" * 9000})
    store.log_metrics(child, [(3, {"auc_edema": 0.75, "auc_consolidation": None})])
    (tmp_path / "table.csv").write_text("k,auc\n")
    store.log_file(child, tmp_path / "table.csv")
    assert not store.is_finished(child)
    store.end_run(child)

    client = connect_client(tmp_path)
    run = client.get_run(child)
    assert run.data.metrics == {"auc_edema": 0.75}
    assert run.data.params["window"] == "8"
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert client.get_run(parent).info.status == "RUNNING"
    assert [file.path for file in client.list_artifacts(child)] == ["table.csv"]
    assert [store.is_finished(run) for run in (child, parent, "0" * 32, "")] == [True, False, False, False]


def test_a_run_is_reopened_in_its_store(store: Store, tmp_path: Path) -> None:
    run = store.start_run("K=1", {"k": "1"})
    store.end_run(run)
    again = Store(local_store(tmp_path), tmp_path / "artifacts")
    assert again.reopen_run(run) == run
    assert not again.is_finished(run)
    marked = store.start_run("K=1", {"mark": "m1"})
    assert [again.reopen_run(*note) for note in (("0" * 32, ""), ("", ""), ("", "m1"), ("", "m2"), ("", "'"))] == [
        *("", "", marked, "", ""),
    ]


@pytest.mark.parametrize("name", ["is_finished", "reopen_run"])
def test_a_silent_store_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Else a resumed study would be recorded a second time."""

    def silent(*_: object, **__: object) -> None:
        raise MlflowException("API request failed: read timed out")

    run = store.start_run("K=1", {})
    monkeypatch.setattr(store._client, "get_run", silent)
    monkeypatch.setattr(store._client, "update_run", silent)
    with pytest.raises(MlflowException, match="timed out"):
        getattr(store, name)(run)


def test_deleted_runs_and_experiments(store: Store, tmp_path: Path) -> None:
    run = store.start_run("K=1", {})
    client = connect_client(tmp_path)
    client.delete_run(run)
    assert store.reopen_run(run) == ""
    client.delete_experiment(client.get_experiment_by_name("chestfed").experiment_id)
    with assert_refused(ChestfedError, "deleted experiment"):
        Store(local_store(tmp_path), tmp_path / "artifacts")


def test_names_refused_by_mlflow_are_changed(store: Store, tmp_path: Path) -> None:
    """Negative controls are called `vindr (noise)`."""
    run = store.start_run("study", {})
    store.log_params(run, {"dataset.vindr (noise)": "digest"})
    store.log_metrics(run, [(0, {"auc/fedexp:FedExP, I8": 0.5})])
    data = connect_client(tmp_path).get_run(run).data
    assert (data.params, data.metrics) == ({"dataset.vindr_noise": "digest"}, {"auc/fedexp_FedExP_I8": 0.5})


def test_parameters_of_a_resumed_run_stay(store: Store, tmp_path: Path) -> None:
    """MLflow refuses other values, such as the versions after an update."""
    run = store.start_run("study", {})
    store.log_params(run, {"version.commit": "a"})
    store.log_params(run, {"version.commit": "b", "seed": 1})
    assert connect_client(tmp_path).get_run(run).data.params == {"version.commit": "a", "seed": "1"}


def test_logged_steps_are_listed_with_gaps(store: Store) -> None:
    run = store.start_run("K=1", {})
    assert store.list_steps(run, "round/loss") == set()
    store.log_metrics(run, [(step, {"round/loss": 0.5}) for step in (9, 8, 2)])
    assert store.list_steps(run, "round/loss") == {2, 8, 9}


def test_large_batches_of_metrics_arrive(store: Store) -> None:
    run = store.start_run("K=1", {})
    store.log_metrics(run, [(step, {"loss": step / 2, "auc": None}) for step in range(1500)])
    assert store.list_steps(run, "loss") == set(range(1500))


def test_a_table_is_logged_once(store: Store, tmp_path: Path) -> None:
    run = store.start_run("study", {})
    for _ in range(2):
        store.log_table(run, pd.DataFrame({"K": [1, 2], "mean": [0.5, None]}), "auc_by_k.json")
    path = connect_client(tmp_path).download_artifacts(run, "auc_by_k.json", str(tmp_path))
    assert json.loads(Path(path).read_text()) == {"columns": ["K", "mean"], "data": [[1, 0.5], [2, None]]}


def test_the_weights_of_a_k_are_downloaded(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = local_store(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    parent, child = store.start_run("study", {}), store.start_run("K=1", {"k": "1"})
    store.log_file(child, tmp_path / "model.safetensors")
    for name in (f"runs:/{child}", f"runs:/{child}/model.safetensors"):
        with local_model(name, uri) as path:
            assert Path(path).read_bytes() == b"weights"
        assert not Path(path).exists()
    for name in (f"runs:/{parent}", "runs:/nothing", "models:/none/1"):
        with assert_refused(ChestfedError, "cannot be downloaded", model=name), local_model(name, uri):
            pass
    assert not list(Path().iterdir())  # MLflow's default is a file in the working folder


def test_a_path_is_taken_as_it_is() -> None:
    with local_model("runs/folder/k5", None) as path:
        assert path == "runs/folder/k5"


def test_error_is_raised_without_a_traceback(store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as broken:
        broken.execute("DROP TABLE runs")
        broken.commit()
    with pytest.raises(Exception, match="no such table") as failure:
        store.start_run("K=1", {})
    assert isinstance(failure.value.__cause__.__cause__, sqlite3.OperationalError)  # what a reporter's reason is
    assert "Traceback" not in capfd.readouterr().err


def test_dead_server_is_named_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with assert_refused(ChestfedError, "no MLflow server", address=address) as refused:
        Store(f"http://anne:secret@{address}", tmp_path)
    assert "secret" not in str(refused.value)
