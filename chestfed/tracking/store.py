"""An MLflow store: runs and models into it, models out of it. The only module that imports MLflow.

Every method raises what MLflow raises. Nothing that names a patient or an image is sent, nor where a site's files are.
"""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import re
import sqlite3
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from chestfed._version import __version__
from chestfed.core.errors import ChestfedError, ChestfedWarning, first_line
from chestfed.results.run_folder import MODEL_FILE
from chestfed.tracking.moving import follow

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Run

EXPERIMENT = "chestfed"
_SQLITE = "sqlite:///"
_ABOUT = (
    "A **parent run** is one study: open it for the table of K (number of clients) against AUC. Its **children** (+) "
    "are one model per K: select them and press *Compare*. Runs tagged `data: synthetic` are about phantoms, "
    "`data: mixed` in part."
)
#: Why a store does not have a run: it is another store, or the run was deleted. Any other error is trouble.
_GONE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
#: An invented path: an example of real data would name a patient.
EXAMPLE = "radiographs/example.png"
#: What a loaded model needs beside chestfed; chestfed itself is in no package index.
_NEEDED = (
    *("torch", "monai", "numpy", "pandas", "safetensors", "pydantic", "mlflow", "pillow", "opencv-python-headless"),
    *("pydicom", "pylibjpeg", "pylibjpeg-libjpeg", "pylibjpeg-openjpeg", "pylibjpeg-rle"),
)


@dataclass(frozen=True)
class DataSet:
    """What a run read: a site or part of it, described by its name, digest and counts."""

    name: str
    role: str  #: `client` or `test`
    data: str  #: `real`, `synthetic` or `mixed`
    #: Covers the content row by row: pixels as cached, labels, repeats. Runs with the same digest read the same data.
    digest: str
    diseases: tuple[str, ...]
    counts: Mapping[str, Any]

    @property
    def short_digest(self) -> str:
        """What the page shows beside the name; the profile has all of it."""
        return self.digest[:12]


def local_store(out: Path) -> str:
    """URI of the SQLite store in the output folder."""
    return f"{_SQLITE}{(out / 'mlflow.db').resolve()}"


def make_whole(file: Path) -> None:
    """Make an SQLite store, or leave it as it is; one that is damaged, or that was never finished, is set aside.

    MLflow makes its tables in some fifty steps, and cannot go on from one that was interrupted. So it is made under
    another name, by one process at a time, and renamed.

    Raises `OSError` if it cannot be written, or another process is still making it after five minutes.
    """
    with FileLock(file.with_name(f".{file.name}.lock"), timeout=300):
        if file.exists() and not os.access(file, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        if file.exists() and not _is_whole(file):
            taken = {other.name for other in file.parent.iterdir()}
            name = next(name for n in itertools.count(1) if (name := f"{file.name}.unusable-{n}") not in taken)
            file.rename(file.with_name(name))
            text = f"{file}: damaged or incomplete: set aside as {name}, and created again"
            warnings.warn(text, ChestfedWarning, stacklevel=2)
        if not file.exists():
            part = file.with_name(f".{file.name}.part")
            for rest in (part, part.with_name(f"{part.name}-journal")):  # of a process that was killed
                rest.unlink(missing_ok=True)
            part.touch()
            connect(f"{_SQLITE}{part}").search_experiments()
            part.rename(file)


def _is_whole(file: Path) -> bool:
    """Whether MLflow has finished it: the last thing that it makes is its first experiment."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as store:
            return store.execute("SELECT count(*) FROM experiments").fetchone()[0] > 0
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorname in ("SQLITE_ERROR", "SQLITE_CORRUPT", "SQLITE_NOTADB"):  # an error: no such table
            return False
        raise


def connect(uri: str | None) -> MlflowClient:
    """A client that does not hold training up: few and short retries, unless the user set them; no telemetry."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    from mlflow import MlflowClient

    follow(uri or "", EXPERIMENT)
    logger = logging.getLogger("mlflow.store.db.utils")
    logger.setLevel(logging.WARNING)  # it announces every new SQLite file
    logger.addFilter(_is_no_error)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _is_no_error(record: logging.LogRecord) -> bool:
    """MLflow logs a traceback of what it then raises; whoever called tells it once."""
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


def page_of(uri: str) -> str:
    """Path of the list of runs below the address of MLflow's page."""
    found = connect(uri).get_experiment_by_name(EXPERIMENT)
    return "" if found is None else f"/#/experiments/{found.experiment_id}/runs"


class Store:
    """chestfed's experiment in one store.

    `artifacts` is the folder of a local store's artifacts; a server decides for itself.
    """

    def __init__(self, uri: str, artifacts: Path) -> None:
        if uri.startswith(_SQLITE):
            make_whole(Path(uri.removeprefix(_SQLITE)))
        self._client = connect(uri)
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            location = artifacts.resolve().as_uri() if uri.startswith("sqlite:") else None
            tags = {"mlflow.experimentKind": "custom_model_development", "mlflow.note.content": _ABOUT}
            with _expected("RESOURCE_ALREADY_EXISTS"):  # another process may have just created it
                self._client.create_experiment(EXPERIMENT, location, tags)
            found = self._client.get_experiment_by_name(EXPERIMENT)
        if found.lifecycle_stage != "active":
            command = f"mlflow experiments restore --experiment-id {found.experiment_id}"
            raise ChestfedError(f"the experiment '{EXPERIMENT}' was deleted in MLflow; `{command}` restores it")
        self._experiment = found.experiment_id

    def start_run(self, name: str, tags: Mapping[str, str]) -> str:
        """Id of a new run, which is running; the tag `mlflow.parentRunId` names the one that it is shown under."""
        return self._client.create_run(self._experiment, run_name=name, tags=dict(tags)).info.run_id

    def reopened(self, run: str, mark: str = "") -> str:
        """The run of this id, or with this tag `mark`, running again; empty if this store has neither."""
        with _expected(*_GONE):
            if not run and mark:
                found = self._client.search_runs([self._experiment], f"tags.mark = '{mark}'", max_results=1)
                run = found[0].info.run_id if found else ""
            if run:
                self._client.update_run(run, status="RUNNING")
            return run
        return ""

    def end_run(self, run: str, status: str = "FINISHED") -> None:
        """Mark a run FINISHED, FAILED or KILLED."""
        self._client.set_terminated(run, status)

    def is_finished(self, run: str) -> bool:
        """Whether this store has the run, recorded to its end."""
        with _expected(*_GONE):
            info = self._client.get_run(run).info if run else None
            return info is not None and info.status == "FINISHED" and info.lifecycle_stage == "active"
        return False

    def log_params(self, run: str, params: Mapping[str, Any]) -> None:
        """Log parameters, cut to MLflow's length; those that a resumed run has stay: another value is refused."""
        from mlflow.entities import Param

        known = self._client.get_run(run).data.params
        named = {_key(name): str(value)[:500] for name, value in params.items()}
        new = [Param(key, value) for key, value in named.items() if key not in known]
        self._client.log_batch(run, params=new)

    def log_metrics(
        self, run: str, series: Sequence[tuple[int, Mapping[str, float | None]]], about: Mapping[str, str] | None = None
    ) -> None:
        """Log metrics of one or more steps; None is left out. The page lists metrics in the order they came first.

        `about` says of which model on which data: `model_id`, `dataset_name`, `dataset_digest`.
        """
        from mlflow.entities import Metric

        now, more = int(time.time() * 1000), dict(about or {})
        metrics = [
            Metric(_key(name), float(value), now, step, **more)
            for step, given in series
            for name, value in given.items()
            if value is not None
        ]
        self._client.log_batch(run, metrics=metrics)

    def steps(self, run: str, metric: str) -> frozenset[int]:
        """The steps of a metric that the store has; of several that were sent at once, some may be missing."""
        return frozenset(point.step for point in self._client.get_metric_history(run, metric))

    def set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags; `mlflow.note.content` is the description, in Markdown."""
        from mlflow.entities import RunTag

        self._client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])

    def log_table(self, run: str, table: pd.DataFrame, file: str) -> None:
        """Log a table that MLflow's page shows, unless the run has it already: MLflow would append to it."""
        if file not in [found.path for found in self._client.list_artifacts(run)]:
            self._client.log_table(run, table, file)

    def log_file(self, run: str, path: Path, folder: str | None = None) -> None:
        """Log a file as an artifact, or all of a folder."""
        log = self._client.log_artifacts if path.is_dir() else self._client.log_artifact
        log(run, str(path), folder)

    def log_datasets(self, run: str, found: Sequence[DataSet]) -> None:
        """Log what the run read; clients are numbered in their order."""
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.types import ColSpec, DataType, Schema

        inputs = []
        for number, one in enumerate(found, start=1):
            # The source says which site and not where its files are: a path may name people.
            source = CodeDatasetSource({"chestfed.site": one.name, "chestfed.role": one.role, "data": one.data})
            labels = [ColSpec(DataType.float, disease, required=False) for disease in one.diseases]
            schema = Schema([ColSpec(DataType.binary, "image"), *labels])
            about = MetaDataset(source, one.name, one.short_digest, schema).to_dict()
            profile = json.dumps({"digest": one.digest, **one.counts})
            entity = Dataset(
                about["name"], about["digest"], about["source_type"], about["source"], about["schema"], profile
            )
            context = "training" if one.role == "client" else "testing"
            tags = {"mlflow.data.context": context, "chestfed.role": one.role, "data": one.data}
            if one.role == "client":
                tags["order"] = str(number)
            inputs.append(DatasetInput(entity, [InputTag(key, value) for key, value in tags.items()]))
        self._client.log_inputs(run, datasets=inputs)

    def log_model(
        self,
        run: str,
        name: str,
        weights: Path,
        diseases: Sequence[str],
        register_as: str,
        about: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> str:
        """Log a `model.safetensors` as the run's output, a `pyfunc` of image files, and register it; returns its id.

        A run that has a model keeps it, so that a resumed study registers no second version.

        `register_as` is its name in the registry, without / and :. `about` are descriptions in Markdown: `name` of the
        name in the registry, `version` of this version of it. `tags` are of the model, and those that are not MLflow's
        own also of the version.
        """
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model

        known = _model_of_run(self._client, run)
        if known is not None:
            return known
        model = self._client.create_logged_model(self._experiment, name, run, dict(tags), model_type="image classifier")
        number = model.model_id
        try:
            with TemporaryDirectory(prefix="chestfed-") as folder:
                written = Model(artifact_path=name, run_id=run, model_uuid=number, model_id=number)
                save_image_model(Path(folder) / "model", weights, diseases, written)
                self._client.log_model_artifacts(number, str(Path(folder) / "model"))
        except BaseException:
            self._client.finalize_logged_model(number, "FAILED")
            raise
        self._client.finalize_logged_model(number, "READY")
        self._register(register_as, about, model, run, tags)
        self._client.log_outputs(run, [LoggedModelOutput(number, step=0)])  # last: with it, everything is recorded
        return number

    def link_model(self, run: str, maker: str, step: int) -> None:
        """Make the model of the run `maker` an output of another run as well."""
        from mlflow.entities import LoggedModelOutput

        model, outputs = _model_of_run(self._client, maker), self._client.get_run(run).outputs
        if model is not None and model not in [one.model_id for one in (outputs.model_outputs if outputs else [])]:
            self._client.log_outputs(run, [LoggedModelOutput(model, step)])

    def _register(self, name: str, about: Mapping[str, str], model: Any, run: str, tags: Mapping[str, str]) -> None:
        with _expected("RESOURCE_ALREADY_EXISTS"):
            self._client.create_registered_model(name, {"synthetic": tags.get("synthetic", "")}, about["name"])
        # By its place: a store of ours is not MLflow's global one, in which `models:/ID` would be looked up.
        own = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
        place, number = model.artifact_location, model.model_id
        version = self._client.create_model_version(
            name, place, run, own, description=about["version"], await_creation_for=0, model_id=number
        )
        link = json.dumps([{"name": name, "version": version.version}])
        self._client.set_logged_model_tags(number, {"mlflow.modelVersions": link})  # the page's link to it


def _key(name: str) -> str:
    """A name of ours as MLflow allows it for parameters and metrics."""
    return re.sub(r"[^\w./-]+", "_", name).rstrip("_")


def save_image_model(folder: Path, weights: Path, diseases: Sequence[str], model: Any = None) -> None:
    """Write a `model.safetensors` as an MLflow model folder with signature and input example; nothing is pickled.

    `model` is the `mlflow.models.Model` to fill, if there is one already.
    """
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)  # it announces every check
    probabilities = [ColSpec(DataType.double, disease) for disease in diseases]
    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.string)]),  # without a name: a list of paths fits as well
        outputs=Schema([*probabilities, ColSpec(DataType.string, "error")]),
        params=ParamSchema([ParamSpec("inverted", DataType.boolean, False)]),
    )
    mlflow.pyfunc.save_model(
        path=str(folder),
        loader_module="chestfed.tracking.image_model",
        data_path=str(weights),
        mlflow_model=model,
        signature=signature,
        input_example=pd.DataFrame({"path": [EXAMPLE]}),
        pip_requirements=[f"{name}=={metadata.version(name).partition('+')[0]}" for name in _needed(weights)],
        metadata={"chestfed": __version__, "needs": "chestfed, installed from its repository"},
    )


@contextmanager
def local_model(model: str, tracking_uri: str | None, k: int | None = None) -> Iterator[str]:
    """A model's path: an MLflow URI is downloaded to a temporary folder; anything else is a path already.

    `runs:/ID` alone is a study's run: that of one K, or the parent, of which the largest K (`k`) is taken. `models:/`
    is followed by a name and version, `NAME/latest`, `NAME@alias`, or a model's id. Anything else is handed to MLflow
    as it is. The store is looked up for this call only: MLflow's global settings stay as they are.

    Raises `ChestfedError` if the store, the run or the model does not exist.
    """
    if not re.match(r"(runs|models|mlflow-artifacts):/", model):
        yield model
        return
    with TemporaryDirectory(prefix="chestfed-") as folder:
        try:
            from mlflow.artifacts import download_artifacts

            source = _source(connect(tracking_uri), model, k)
            path = download_artifacts(artifact_uri=source, dst_path=folder, tracking_uri=tracking_uri)
        except ChestfedError:
            raise
        except Exception as error:
            raise ChestfedError(
                f"{model}: MLflow cannot give this model ({first_line(error)}). Is --tracking-uri right?"
            ) from None
        yield str(path)


def _source(client: MlflowClient, uri: str, k: int | None) -> str:
    """Where the model of a URI is stored."""
    if uri.startswith("models:/"):
        return _source_of_model(client, uri)
    if not re.fullmatch(r"runs:/[^/]+/?", uri):
        return uri
    run = _run_of_one_k(client, uri, k).info.run_id
    model = _model_of_run(client, run)  # of an image collection there is the file of weights alone
    return f"runs:/{run}/{MODEL_FILE}" if model is None else client.get_logged_model(model).artifact_location


def _run_of_one_k(client: MlflowClient, uri: str, k: int | None) -> Run:
    """The run itself if it is that of one K, else its child of the largest K, or of `k`."""
    found = client.get_run(uri.removeprefix("runs:/").strip("/"))
    if own := found.data.tags.get("k"):
        if k not in (None, int(own)):
            raise ChestfedError(f"{uri}: is the run of K={own}, not of K={k}")
        return found
    of_parent = f"tags.`mlflow.parentRunId` = '{found.info.run_id}'"
    children = client.search_runs([found.info.experiment_id], of_parent)
    finished = [child for child in children if "k" in child.data.tags and child.info.status == "FINISHED"]
    by_k = {int(child.data.tags["k"]): child for child in finished}
    if not by_k or (k is not None and k not in by_k):
        wanted = "finished K" if k is None else f"finished run of K={k}"
        raise ChestfedError(f"{uri}: has no {wanted}; there are K={sorted(by_k)}")
    return by_k[max(by_k) if k is None else k]


def _source_of_model(client: MlflowClient, uri: str) -> str:
    """Where a model of `models:/ID`, `models:/NAME/VERSION`, `models:/NAME/latest` or `models:/NAME@ALIAS` is."""
    from mlflow.store.artifact.utils.models import get_model_name_and_version

    found = get_model_name_and_version(client, uri.rstrip("/"))
    model = found[0] if len(found) == 1 else client.get_model_version(*found).model_id
    return client.get_logged_model(model).artifact_location if model else client.get_model_version_download_uri(*found)


def _model_of_run(client: MlflowClient, run: str) -> str | None:
    """Id of the model that a run has put out; None without."""
    outputs = client.get_run(run).outputs
    models = outputs.model_outputs if outputs else []
    return models[-1].model_id if models else None


def _needed(weights: Path) -> list[str]:
    """Distributions that the model needs; its network may come from one more."""
    from safetensors import safe_open

    with safe_open(weights, framework="pt") as file:
        source = json.loads(file.metadata()["chestfed"]).get("model_source")
    own = str(source).split(" ")[0]  # "timm 1.0.31"; the code of a module of one's own is a digest
    return [*_NEEDED, *([own] if source and " " in source and own not in _NEEDED else [])]
