"""MLflow: one parent run for a study, one child per K. A record beside the results on disk, never in their way.

Whatever fails here (no server, full disk, a broken store) is reported once; training goes on, and the results
are in the run folder all the same. Nothing that names a patient or an image is sent.
"""

from __future__ import annotations

import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from chestfed.tracking.experiment_page import experiment_tags

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

EXPERIMENT = "chestfed"
#: A store takes no more metrics at once.
_BATCH = 1000


def local_store(out: Path) -> str:
    """URI of the sqlite store in the output folder."""
    return f"sqlite:///{(out / 'mlflow.db').resolve()}"


def experiment_id(uri: str) -> str:
    """Id of chestfed's experiment in a store; `1`, which MLflow gives to the first one, if it cannot be read."""
    from mlflow import MlflowClient

    try:
        found = MlflowClient(tracking_uri=uri).get_experiment_by_name(EXPERIMENT)
    except Exception:
        found = None
    return "1" if found is None else str(found.experiment_id)


def model_of_run(client: MlflowClient, run: str) -> str | None:
    """Id of the model that a run has put out; None without."""
    outputs = client.get_run(run).outputs
    models = outputs.model_outputs if outputs else []
    return models[-1].model_id if models else None


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

    def attempt(self, action: Callable[[], object]) -> None:
        """Do what only serves tracking: its failure is one of tracking, and without tracking it is left out."""
        self._guard(action)

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

    def log_metrics(
        self, run: str, metrics: Mapping[str, float | None], step: int, about: Mapping[str, str] | None = None
    ) -> None:
        """Log metrics of one step; None is left out.

        `about` says of which model on which data: `model_id`, `dataset_name`, `dataset_digest`.
        """
        self.log_series(run, [(step, metrics)], about)

    def log_series(
        self,
        run: str,
        series: Sequence[tuple[int, Mapping[str, float | None]]],
        about: Mapping[str, str] | None = None,
    ) -> None:
        """Log metrics of several steps at once. The page lists metrics in the order in which they came first."""

        def log() -> None:
            from mlflow.entities import Metric

            now, more = int(time.time() * 1000), dict(about or {})
            metrics = [
                Metric(key, float(value), now, step, **more)
                for step, given in series
                for key, value in given.items()
                if value is not None
            ]
            for start in range(0, len(metrics), _BATCH):
                self._batch(run, metrics=metrics[start : start + _BATCH])

        self._guard(log)

    def set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags; `mlflow.note.content` is the description, in Markdown."""

        def log() -> None:
            from mlflow.entities import RunTag

            self._batch(run, tags=[RunTag(key, value) for key, value in tags.items()])

        self._guard(log)

    def log_table(self, run: str, make: Callable[[], pd.DataFrame], file: str) -> None:
        """Log what `make` gives as a table that MLflow's page shows, unless the run has it already."""

        def log() -> None:
            assert self._client is not None
            if file not in [found.path for found in self._client.list_artifacts(run)]:  # MLflow would append to it
                self._client.log_table(run, make(), file)

        self._guard(log)

    def log_made(self, run: str, make: Callable[[Path], object], folder: str) -> None:
        """Log all files that `make` writes into the folder handed to it; its failure is one of tracking."""

        def log() -> None:
            assert self._client is not None
            with TemporaryDirectory(prefix="chestfed-") as made:
                make(Path(made))
                self._client.log_artifacts(run, made, folder)

        self._guard(log)

    def log_datasets(self, run: str, make: Callable[[], Sequence[Any]]) -> None:
        """Log MLflow's `DatasetInput`s as what the run read."""

        def log() -> None:
            assert self._client is not None
            self._client.log_inputs(run, datasets=list(make()))

        self._guard(log)

    def log_model(
        self,
        run: str,
        name: str,
        save: Callable[[Path, Any], object],
        register_as: str,
        about: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> str:
        """Log a model as the run's output and register it; returns its id, or nothing if tracking is off.

        A run that has a model keeps it, so that a study started again registers no second version.

        Parameters
        ----------
        save
            Writes a model folder; it is given the folder and the `mlflow.models.Model` to fill.
        register_as
            Name in the registry, without / and :.
        about
            Descriptions in Markdown: `name` of the name in the registry, `version` of this version of it.
        tags
            Of the model, and those that are not MLflow's own also of the version.
        """

        def log() -> str:
            from mlflow.entities import LoggedModelOutput
            from mlflow.models import Model

            client = self._client
            assert client is not None
            known = model_of_run(client, run)
            if known is not None:
                return known
            model = client.create_logged_model(self._experiment, name, run, dict(tags), model_type="image classifier")
            try:
                with TemporaryDirectory(prefix="chestfed-") as folder:
                    written = Model(
                        artifact_path=model.artifact_location,
                        run_id=run,
                        model_uuid=model.model_id,
                        model_id=model.model_id,
                    )
                    save(Path(folder) / "model", written)
                    client.log_model_artifacts(model.model_id, str(Path(folder) / "model"))
            except BaseException:
                client.finalize_logged_model(model.model_id, "FAILED")
                raise
            client.finalize_logged_model(model.model_id, "READY")
            self._register(register_as, about, model, run, tags)
            client.log_outputs(run, [LoggedModelOutput(model.model_id, step=0)])  # last: with it, all is there
            return model.model_id

        return self._guard(log) or ""

    def link_model(self, run: str, maker: str, step: int) -> None:
        """Make the model of the run `maker` an output of another run as well."""

        def link() -> None:
            from mlflow.entities import LoggedModelOutput

            assert self._client is not None
            model, there = model_of_run(self._client, maker), self._client.get_run(run).outputs
            if model is not None and model not in [one.model_id for one in (there.model_outputs if there else [])]:
                self._client.log_outputs(run, [LoggedModelOutput(model, step)])

        self._guard(link)

    def is_finished(self, run: str | None) -> bool:
        """Whether this store has the run, recorded to its end."""

        def finished() -> bool:
            from mlflow.exceptions import MlflowException

            assert self._client is not None
            try:
                info = self._client.get_run(run).info
            except MlflowException:  # of another store, or removed
                return False
            return info.status == "FINISHED" and info.lifecycle_stage == "active"

        return bool(run) and bool(self._guard(finished))

    def steps(self, run: str, metric: str) -> frozenset[int]:
        """The steps of a metric that are in the store; of several that a start sent, some may be missing."""

        def found() -> frozenset[int]:
            assert self._client is not None
            return frozenset(point.step for point in self._client.get_metric_history(run, metric))

        return (self._guard(found) or frozenset()) if run else frozenset()

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
                self._experiment = client.create_experiment(EXPERIMENT, location, experiment_tags())
            except MlflowException:  # another process has just created it
                experiment = client.get_experiment_by_name(EXPERIMENT)
                if experiment is None:
                    raise
        if experiment is not None:
            self._experiment = experiment.experiment_id
            for key, value in experiment_tags().items():
                if key not in experiment.tags:  # of a version that did not set it
                    client.set_experiment_tag(experiment.experiment_id, key, value)
        self._client = client

    def _register(self, name: str, about: Mapping[str, str], model: Any, run: str, tags: Mapping[str, str]) -> None:
        from mlflow.exceptions import MlflowException

        assert self._client is not None
        try:
            self._client.create_registered_model(name, {"synthetic": tags.get("synthetic", "")}, about["name"])
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        # By its place: a store of ours is not MLflow's global one, in which `models:/ID` would be looked up.
        own = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
        place, number = model.artifact_location, model.model_id
        version = self._client.create_model_version(
            name, place, run, own, description=about["version"], await_creation_for=0, model_id=number
        )
        link = json.dumps([{"name": name, "version": version.version}])
        self._client.set_logged_model_tags(model.model_id, {"mlflow.modelVersions": link})  # the page's link to it

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
