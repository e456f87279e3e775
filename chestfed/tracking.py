"""MLflow: one parent run for a study, one child per K. A record beside the results on disk, never in their way.

Whatever fails here (no server, full disk, a broken store) is reported once; training goes on, and the results
are in the run folder all the same. Nothing that names a patient or an image is sent.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chestfed.errors import ChestfedError

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "chestfed"
#: The trained network among the artifacts of a run.
MODEL_FILE = "model.safetensors"


def local_store(out: Path) -> str:
    """URI of the sqlite store in the output folder."""
    return f"sqlite:///{(out / 'mlflow.db').resolve()}"


def fetch_model(uri: str, tracking_uri: str | None, folder: Path, k: int | None = None) -> Path:
    """Download what an MLflow URI names into `folder`; returns the file or folder.

    `runs:/ID` alone is a study's run: that of one K, or the parent, of which the largest K (or `k`) is taken. Anything
    else (`runs:/ID/path`, `models:/name/version`) is handed to MLflow as it is.

    Raises
    ------
    ChestfedError
        If the store, the run or the model is not there.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run, _, path = uri.removeprefix("runs:/").partition("/")
            if uri.startswith("runs:/") and not path:
                client = MlflowClient(tracking_uri=tracking_uri)
                found = client.get_run(run)
                if "k" not in found.data.tags:
                    of_parent = f"tags.`mlflow.parentRunId` = '{found.info.run_id}'"
                    children = client.search_runs([found.info.experiment_id], of_parent)
                    by_k = {int(child.data.tags["k"]): child for child in children if "k" in child.data.tags}
                    if not by_k or (k is not None and k not in by_k):
                        raise ChestfedError(f"{uri}: has no run of K={k}; there are K={sorted(by_k)}")
                    found = by_k[max(by_k) if k is None else k]
                uri = f"runs:/{found.info.run_id}/{MODEL_FILE}"
            return Path(download_artifacts(artifact_uri=uri, dst_path=str(folder), tracking_uri=tracking_uri))
    except ChestfedError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ChestfedError(f"{uri}: MLflow cannot give this model ({reason}). Is --tracking-uri right?") from None


class Tracker:
    """Writes to one MLflow store.

    Parameters
    ----------
    uri
        Tracking URI; None switches tracking off.
    artifacts
        Folder for the artifacts of a local store; a server decides for itself.
    warn
        Called once with a message if tracking fails.
    """

    def __init__(self, uri: str | None, artifacts: Path, warn: Callable[[str], None]) -> None:
        self._uri = uri
        self._artifacts = artifacts
        self._warn = warn
        self._client: MlflowClient | None = None
        self._experiment = ""
        if uri is not None:
            self._guard(self._connect)

    @property
    def active(self) -> bool:
        """Whether what is logged arrives."""
        return self._client is not None

    def start_run(self, name: str, tags: Mapping[str, str], known: str | None = None, parent: str | None = None) -> str:
        """Id of a running run: the known one, opened again, or a new one; empty if tracking is off."""

        def start() -> str:
            assert self._client is not None
            if known:
                try:
                    self._client.update_run(known, status="RUNNING")
                    return known
                except Exception:  # the store was deleted or changed since: begin a new run
                    pass
            all_tags = {**tags, **({"mlflow.parentRunId": parent} if parent else {})}
            return self._client.create_run(self._experiment, run_name=name, tags=all_tags).info.run_id

        return self._guard(start) or ""

    def log_params(self, run: str, params: Mapping[str, Any]) -> None:
        """Log parameters; values are cut to MLflow's length."""

        def log() -> None:
            from mlflow.entities import Param

            self._batch(run, params=[Param(key, str(value)[:500]) for key, value in params.items()])

        self._guard(log)

    def log_metrics(self, run: str, metrics: Mapping[str, float | None], step: int) -> None:
        """Log metrics of one step; None is left out."""

        def log() -> None:
            from mlflow.entities import Metric

            now = int(time.time() * 1000)
            given = {key: value for key, value in metrics.items() if value is not None}
            self._batch(run, metrics=[Metric(key, float(value), now, step) for key, value in given.items()])

        self._guard(log)

    def log_file(self, run: str, path: Path, folder: str | None = None) -> None:
        """Log a file as an artifact."""

        def log() -> None:
            assert self._client is not None
            self._client.log_artifact(run, str(path), folder)

        self._guard(log)

    def end_run(self, run: str, status: str = "FINISHED") -> None:
        """Mark a run FINISHED, FAILED or KILLED."""

        def end() -> None:
            assert self._client is not None
            self._client.set_terminated(run, status)

        self._guard(end)

    def _connect(self) -> None:
        # A server that does not answer must not hold training up: few and short retries, unless the user set them.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it announces every new sqlite file
        client = MlflowClient(tracking_uri=self._uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            local = str(self._uri).startswith("sqlite:")
            location = self._artifacts.resolve().as_uri() if local else None
            try:
                self._experiment = client.create_experiment(
                    EXPERIMENT, location, {"mlflow.experimentKind": "custom_model_development"}
                )
            except MlflowException:  # another process has just created it
                experiment = client.get_experiment_by_name(EXPERIMENT)
                if experiment is None:
                    raise
        if experiment is not None:
            self._experiment = experiment.experiment_id
        self._client = client

    def _batch(self, run: str, **entries: Any) -> None:
        assert self._client is not None
        self._client.log_batch(run, **entries)

    def _guard(self, action: Callable[[], Any]) -> Any:
        """Do it; on failure say so once and stop tracking."""
        if self._uri is None or (self._client is None and action != self._connect):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return action()
        except Exception as error:
            self._client = None
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self._warn(f"MLflow tracking stopped ({reason}). Training goes on; results are in the run folder.")
            return None
