"""MLflow records a study; when it fails, nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from chestfed.core.errors import ChestfedError
from chestfed.tracking.models import local_model
from chestfed.tracking.store import EXPERIMENT, Tracker, local_store


def never(text: str) -> None:
    pytest.fail(f"unexpected warning: {text}")


def test_runs_metrics_and_files_arrive_in_the_local_store(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", never)
    parent = tracker.start_run("study", {"synthetic": "true"})
    child = tracker.start_run("K=1", {"k": "1"}, parent=parent)
    tracker.log_params(child, {"window": 8, "long": "x" * 9000})
    tracker.log_metrics(child, {"auc_edema": 0.75, "auc_consolidation": None}, step=3)
    (tmp_path / "table.csv").write_text("k,auc\n")
    tracker.log_file(child, tmp_path / "table.csv")
    tracker.end_run(child)
    assert tracker.active

    client = MlflowClient(local_store(tmp_path))
    run = client.get_run(child)
    assert run.data.metrics == {"auc_edema": 0.75}
    assert run.data.params["window"] == "8"
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert run.info.status == "FINISHED"
    assert client.get_run(parent).info.status == "RUNNING"
    assert [file.path for file in client.list_artifacts(child)] == ["table.csv"]
    assert client.get_experiment_by_name(EXPERIMENT) is not None

    again = Tracker(local_store(tmp_path), tmp_path / "artifacts", never)
    assert again.start_run("K=1", {"k": "1"}, known=child, parent=parent) == child
    assert again.start_run("K=1", {"k": "1"}, known="0" * 32, parent=parent) not in ("", child)


def test_the_steps_in_the_store_are_told_with_their_gaps(tmp_path: Path) -> None:
    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", never)
    run = tracker.start_run("K=1", {})
    assert tracker.steps(run, "round/loss") == set()
    tracker.log_series(run, [(step, {"round/loss": 0.5}) for step in (9, 8, 2)])
    assert tracker.steps(run, "round/loss") == {2, 8, 9}
    assert tracker.steps("", "round/loss") == set()


def test_a_store_that_cannot_be_opened_is_reported_once_and_then_ignored(tmp_path: Path) -> None:
    warnings: list[str] = []
    (tmp_path / "file").write_text("not a folder")
    tracker = Tracker(f"sqlite:///{tmp_path}/file/mlflow.db", tmp_path / "artifacts", warnings.append)
    assert tracker.start_run("study", {}) == ""
    tracker.log_metrics("", {"a": 1.0}, step=0)
    tracker.end_run("")
    assert not tracker.active
    assert len(warnings) == 1
    assert "results are in the run folder" in warnings[0]


def test_a_failure_on_the_way_stops_tracking_and_nothing_else(tmp_path: Path) -> None:
    warnings: list[str] = []
    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", warnings.append)
    run = tracker.start_run("study", {})
    tracker.log_file(run, tmp_path / "no such file")
    assert not tracker.active
    assert len(warnings) == 1
    tracker.log_metrics(run, {"a": 1.0}, step=0)
    assert len(warnings) == 1


def test_tracking_can_be_switched_off(tmp_path: Path) -> None:
    tracker = Tracker(None, tmp_path / "artifacts", never)
    assert tracker.start_run("study", {}) == ""
    tracker.log_params("", {"a": 1})
    tracker.log_metrics("", {"a": 1.0}, step=0)
    assert not tracker.active
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_written_stops_tracking_and_is_marked_as_failed(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    warnings: list[str] = []
    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", warnings.append)
    run = tracker.start_run("K=1", {"k": "1"})

    def full_disk(folder: Path, model: object) -> None:
        raise OSError(28, "No space left on device")

    about = {"name": "", "version": ""}
    assert tracker.log_model(run, "K1", full_disk, "some-K1", about, {"synthetic": "true"}) == ""
    assert not tracker.active
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    client = MlflowClient(local_store(tmp_path))
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    assert [model.status for model in client.search_logged_models([experiment.experiment_id])] == ["FAILED"]
    assert client.search_registered_models() == []


def test_a_mistake_in_what_is_drawn_or_written_for_mlflow_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", warnings.append)
    run = tracker.start_run("study", {})

    def draw(folder: Path) -> None:
        raise ValueError("nothing to draw")

    tracker.log_made(run, draw, "figures")
    assert not tracker.active
    assert len(warnings) == 1
    tracker.attempt(lambda: pytest.fail("tried although tracking has stopped"))


def test_a_table_is_logged_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", never)
    run = tracker.start_run("study", {})
    for _ in range(2):
        tracker.log_table(run, lambda: pd.DataFrame({"K": [1, 2], "mean": [0.5, None]}), "auc_by_k.json")
    path = MlflowClient(local_store(tmp_path)).download_artifacts(run, "auc_by_k.json", str(tmp_path))
    assert json.loads(Path(path).read_text()) == {"columns": ["K", "mean"], "data": [[1, 0.5], [2, None]]}


def test_more_metrics_than_a_store_takes_at_once_arrive(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", never)
    run = tracker.start_run("K=1", {})
    tracker.log_series(run, [(step, {"loss": step / 2, "auc": None}) for step in range(1500)])
    history = MlflowClient(local_store(tmp_path)).get_metric_history(run, "loss")
    assert {metric.step: metric.value for metric in history} == {step: step / 2 for step in range(1500)}


def test_a_run_counts_as_finished_only_where_it_was_recorded_to_its_end(tmp_path: Path) -> None:
    tracker = Tracker(local_store(tmp_path), tmp_path / "artifacts", never)
    run = tracker.start_run("study", {})
    assert not tracker.is_finished(run)
    tracker.end_run(run)
    assert tracker.is_finished(run)
    assert not tracker.is_finished("0" * 32)
    assert not tracker.is_finished("")
    assert tracker.active


def test_the_weights_of_a_study_are_found_by_its_run_or_that_of_one_k(tmp_path: Path) -> None:
    uri = local_store(tmp_path)
    tracker = Tracker(uri, tmp_path / "artifacts", never)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    parent = tracker.start_run("study", {})
    child = tracker.start_run("K=1", {"k": "1"}, parent=parent)
    tracker.log_file(child, tmp_path / "model.safetensors")
    for run in (parent, child):
        with local_model(f"runs:/{run}", uri) as path:
            assert Path(path).read_bytes() == b"weights"
        assert not Path(path).exists()
    for run, k, message in ((parent, 2, "K=2"), ("nothing", None, "MLflow cannot give")):
        with pytest.raises(ChestfedError, match=message), local_model(f"runs:/{run}", uri, k):
            pass


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    with local_model("runs/folder/k5", None) as path:
        assert path == "runs/folder/k5"
