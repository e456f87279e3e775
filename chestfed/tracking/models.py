"""Get a model out of an MLflow store: by the run that made it, or by its name in the registry."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from chestfed.core.errors import ChestfedError
from chestfed.results.run_folder import MODEL_FILE
from chestfed.tracking.store import model_of_run

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


@contextmanager
def local_model(model: str, tracking_uri: str | None, k: int | None = None) -> Iterator[str]:
    """A model's path: an MLflow URI is downloaded to a temporary folder; anything else is a path already."""
    if not re.match(r"(runs|models|mlflow-artifacts):/", model):
        yield model
        return
    with TemporaryDirectory(prefix="chestfed-") as folder:
        yield str(fetch_model(model, tracking_uri, Path(folder), k))


def fetch_model(uri: str, tracking_uri: str | None, folder: Path, k: int | None = None) -> Path:
    """Download what an MLflow URI names into `folder`; returns the file or folder.

    `runs:/ID` alone is a study's run: that of one K, or the parent, of which the largest K (`k`) is taken. `models:/`
    goes on with a name and version, `NAME/latest`, `NAME@alias`, or a model's id. Anything else is handed to MLflow as
    it is. The store is looked up for this call only: MLflow's global settings stay as they are.

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
            client = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
            source = uri
            if re.fullmatch(r"runs:/[^/]+/?", uri):
                source = _source_of_run(client, _run_of_one_k(client, uri, k))
            elif uri.startswith("models:/"):
                source = _source_of_model(client, uri)
            return Path(download_artifacts(artifact_uri=source, dst_path=str(folder), tracking_uri=tracking_uri))
    except ChestfedError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ChestfedError(f"{uri}: MLflow cannot give this model ({reason}). Is --tracking-uri right?") from None


def _run_of_one_k(client: MlflowClient, uri: str, k: int | None) -> Run:
    """The run itself if it is that of one K, else its child of the largest K, or of `k`."""
    found = client.get_run(uri.removeprefix("runs:/").strip("/"))
    if "k" in found.data.tags:
        return found
    of_parent = f"tags.`mlflow.parentRunId` = '{found.info.run_id}'"
    children = client.search_runs([found.info.experiment_id], of_parent)
    by_k = {int(child.data.tags["k"]): child for child in children if "k" in child.data.tags}
    if not by_k or (k is not None and k not in by_k):
        raise ChestfedError(f"{uri}: has no run of K={k}; there are K={sorted(by_k)}")
    return by_k[max(by_k) if k is None else k]


def _source_of_run(client: MlflowClient, run: Run) -> str:
    """Where the run's model lies: its output; without (an image collection has none) the file of weights."""
    model = model_of_run(client, run.info.run_id)
    return (
        f"runs:/{run.info.run_id}/{MODEL_FILE}" if model is None else client.get_logged_model(model).artifact_location
    )


def _source_of_model(client: MlflowClient, uri: str) -> str:
    """Where a model of `models:/ID`, `models:/NAME/VERSION`, `models:/NAME/latest` or `models:/NAME@ALIAS` lies."""
    name, _, version = uri.removeprefix("models:/").strip("/").partition("/")
    if not version and "@" not in name:
        return client.get_logged_model(name).artifact_location
    if not version:
        name, _, alias = name.partition("@")
        version = client.get_model_version_by_alias(name, alias).version
    elif version == "latest":
        found = client.search_model_versions(f"name = '{name}'")
        if not found:
            raise ChestfedError(f"{uri}: no version of this name is registered")
        version = max((one.version for one in found), key=int)
    model = client.get_model_version(name, version).model_id
    if model:
        return client.get_logged_model(model).artifact_location
    return client.get_model_version_download_uri(name, version)
