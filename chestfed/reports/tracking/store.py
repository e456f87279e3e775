"""An MLflow store: runs into it, files out of it. The only module that imports MLflow.

Every method raises what MLflow raises, or a `ChestfedError` if a server does not answer. Nothing that names a patient
or an image is sent, nor where a site's files are.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock

from chestfed.core.errors import ChestfedError, first_line
from chestfed.reports.tracking.shared_view import share_view
from chestfed.results.tables.run_folder import MODEL_FILE

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

EXPERIMENT = "chestfed"
_SQLITE = "sqlite:///"
_ABOUT = (
    "A **parent run** is one study: open it for the table of K (number of clients) against AUC. Its **children** (+) "
    "are one model per K: select them and press *Compare*. Runs tagged `data: synthetic` are about synthetic "
    "hospitals, `data: mixed` in part."
)
#: Why a store does not have a run: it is another store, or the run was deleted. Any other error is trouble.
_ABSENCE_CODES = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def local_store(out: Path) -> str:
    """URI of the SQLite store in the output folder."""
    return f"{_SQLITE}{(out / 'mlflow.db').resolve()}"


def create_store(file: Path) -> None:
    """Create an SQLite store if there is none.

    MLflow creates its tables in some fifty steps and cannot resume after an interruption. The store is therefore
    created under another name, by one process at a time, and renamed.

    Raises `OSError` if it cannot be written, or another process is still creating it after five minutes.
    """
    with FileLock(file.with_name(f".{file.name}.lock"), timeout=300):
        if file.exists() and not os.access(file, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        if not file.exists():
            part = file.with_name(f".{file.name}.part")
            for rest in (part, part.with_name(f"{part.name}-journal")):  # of a process that was killed
                rest.unlink(missing_ok=True)
            part.touch()
            connect(f"{_SQLITE}{part}").search_experiments()
            part.rename(file)


def connect(uri: str | None) -> MlflowClient:
    """A client that does not hold training up: few and short retries, unless the user set them; no telemetry."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    from mlflow import MlflowClient

    logger = logging.getLogger("mlflow.store.db.utils")
    logger.setLevel(logging.WARNING)  # it announces every new SQLite file
    logger.addFilter(_is_no_error)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _is_no_error(record: logging.LogRecord) -> bool:
    """Whether a record is below the level of an error: MLflow logs a traceback and raises the same error."""
    return record.levelno < logging.ERROR


@contextmanager
def _expected(*codes: str) -> Iterator[None]:
    """End the block where MLflow raises an error with one of these codes; any other is raised."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code not in codes:
            raise


def find_page(uri: str) -> str:
    """Path of the list of studies below the address of MLflow's page."""
    client = connect(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return "" if experiment is None else share_view(client, experiment.experiment_id)


class _Client:
    """MLflow's client; a server that does not answer is named in a sentence, without a password in its address."""

    def __init__(self, uri: str) -> None:
        self._client, self._uri = connect(uri), uri

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        @functools.wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            from mlflow.exceptions import MlflowException

            try:
                return method(*given, **named)
            except MlflowException as error:
                if not isinstance(error.__context__, OSError):  # as those of requests are
                    raise
                address = urlsplit(self._uri).netloc.rpartition("@")[2]
                raise ChestfedError(
                    f"no MLflow server answers at {address}: start it, or correct --tracking-uri, and rerun the "
                    "command to record the study",
                    kind="no MLflow server",
                    address=address,
                ) from None

        return call


class Store:
    """chestfed's experiment in one store.

    `artifacts` is the folder of a local store's artifacts; a server decides for itself.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        if uri.startswith(_SQLITE):
            create_store(Path(uri.removeprefix(_SQLITE)))
        self._client = _Client(uri)
        place = artifacts.resolve().as_uri()
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            tags = {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": _ABOUT}
            with _expected("RESOURCE_ALREADY_EXISTS"):  # another process may have just created it
                self._client.create_experiment(EXPERIMENT, place if uri.startswith("sqlite:") else None, tags)
            experiment = self._client.get_experiment_by_name(EXPERIMENT)
            assert experiment is not None
        if experiment.lifecycle_stage != "active":
            command = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
            text = f"the experiment '{EXPERIMENT}' was deleted in MLflow; `{command}` restores it"
            raise ChestfedError(text, kind="deleted experiment", experiment=experiment.experiment_id)
        if uri == local_store(artifacts.parent) and experiment.artifact_location != place:
            raise ChestfedError(
                f"the store was moved or copied: its artifacts belong to {experiment.artifact_location}. Move it back, "
                "or delete mlflow.db and rerun the studies to record them here",
                kind="moved store",
            )
        self._experiment = experiment.experiment_id

    def start_run(self, name: str, tags: Mapping[str, str]) -> str:
        """Id of a new run, which is running; the tag `mlflow.parentRunId` names the one that it is shown under."""
        return self._client.create_run(self._experiment, run_name=name, tags=dict(tags)).info.run_id

    def reopen_run(self, run: str, mark: str = "") -> str:
        """The run of this id, or with this tag `mark`, running again; empty if this store has neither."""
        with _expected(*_ABSENCE_CODES):
            if not run and mark:
                runs = self._client.search_runs([self._experiment], f"tags.mark = '{mark}'", max_results=1)
                run = runs[0].info.run_id if runs else ""
            if run:
                self._client.update_run(run, status="RUNNING")
            return run
        return ""

    def end_run(self, run: str, status: str = "FINISHED") -> None:
        """Mark a run FINISHED, FAILED or KILLED."""
        self._client.set_terminated(run, status)

    def is_finished(self, run: str) -> bool:
        """Whether this store has the run, recorded to its end."""
        with _expected(*_ABSENCE_CODES):
            info = self._client.get_run(run).info if run else None
            return info is not None and info.status == "FINISHED" and info.lifecycle_stage == "active"
        return False

    def log_params(self, run: str, params: Mapping[str, Any]) -> None:
        """Log parameters, cut to MLflow's length; those that a resumed run has stay: another value is refused."""
        from mlflow.entities import Param

        logged = self._client.get_run(run).data.params
        named = {_allowed_name(name): str(value)[:500] for name, value in params.items()}
        new = [Param(key, value) for key, value in named.items() if key not in logged]
        self._client.log_batch(run, params=new)

    def log_metrics(self, run: str, series: Sequence[tuple[int, Mapping[str, float | None]]]) -> None:
        """Log metrics of one or more steps; None is left out. The page lists metrics in the order they came first."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(_allowed_name(name), float(value), now, step)
            for step, values in series
            for name, value in values.items()
            if value is not None
        ]
        self._client.log_batch(run, metrics=metrics)

    def list_steps(self, run: str, metric: str) -> frozenset[int]:
        """The steps of a metric that the store has; of several that were sent at once, some may be missing."""
        return frozenset(point.step for point in self._client.get_metric_history(run, metric))

    def set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags; `mlflow.note.content` is the description, in Markdown."""
        from mlflow.entities import RunTag

        self._client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])

    def log_table(self, run: str, table: pd.DataFrame, file: str) -> None:
        """Log a table that MLflow's page shows, unless the run has it already: MLflow would append to it."""
        if file not in [artifact.path for artifact in self._client.list_artifacts(run)]:
            self._client.log_table(run, table, file)

    def log_file(self, run: str, path: Path, folder: str | None = None) -> None:
        """Log a file as an artifact, or all of a folder."""
        log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        log(run, str(path), folder)


def _allowed_name(name: str) -> str:
    """A name of ours as MLflow allows it for parameters and metrics."""
    return re.sub(r"[^\w./-]+", "_", name).rstrip("_")


@contextmanager
def _default_store(uri: str | None) -> Iterator[None]:
    """Let MLflow's default store be this one: for `models:/` it also opens the default, by a file in the folder."""
    name, before = "MLFLOW_TRACKING_URI", os.environ.get("MLFLOW_TRACKING_URI")
    if uri is not None:
        os.environ[name] = uri
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        elif uri is not None:
            del os.environ[name]


@contextmanager
def local_model(model: str, tracking_uri: str | None) -> Iterator[str]:
    """Path of a model: an MLflow URI is downloaded to a temporary folder; anything else is a path already.

    `runs:/ID` is the run of one K. Other URIs are passed to MLflow as they are. MLflow's global settings are unchanged.

    Raises `ChestfedError` if MLflow cannot download it.
    """
    if not re.match(r"(runs|models|mlflow-artifacts):/", model):
        yield model
        return
    uri = f"{model.rstrip('/')}/{MODEL_FILE}" if re.fullmatch(r"runs:/[^/]+/?", model) else model
    with TemporaryDirectory(prefix="chestfed-") as folder:
        try:
            connect(tracking_uri)  # few retries, no telemetry
            from mlflow.artifacts import download_artifacts

            with _default_store(tracking_uri):
                path = download_artifacts(
                    artifact_uri=uri, dst_path=folder, tracking_uri=tracking_uri, registry_uri=tracking_uri
                )
        except Exception as error:
            text = f"{model}: MLflow cannot download this model ({first_line(error)}). Is --tracking-uri right?"
            text = f"{text} runs:/ID must be the run of one K"
            raise ChestfedError(text, kind="cannot be downloaded", model=model) from None
        yield str(path)
