"""Which data a run read, for MLflow: names, digests and counts of sites; no file, path or patient.

The digest of a client covers its content row by row: the pixels as cached, labels, and how often a row is repeated.
Two runs with the same digest read the same data, wherever the files lay.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from chestfed.training.clients import ClientData, StudyData, TestSet


def datasets(data: StudyData, k: int | None = None) -> list[Any]:
    """MLflow's `DatasetInput` of the first `k` clients (default: all), in their order, and of the test set."""
    clients = data.clients[:k]
    found = [
        _input(data, client.name, "client", client, order=str(number)) for number, client in enumerate(clients, start=1)
    ]
    return [*found, _input(data, "test set", "test", data.test)]


def short_digest(digest: str) -> str:
    """The first 12 digits, which the page shows beside a name; all of them are in the profile."""
    return digest[:12]


def _input(data: StudyData, name: str, role: str, part: ClientData | TestSet, **more: str) -> Any:
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.types import ColSpec, DataType, Schema

    # The source says which site and not where its files lie: a path may name people.
    source = CodeDatasetSource({"chestfed.site": name, "chestfed.role": role, "data": str(part.origin)})
    labels = [ColSpec(DataType.float, disease, required=False) for disease in data.diseases]
    schema = Schema([ColSpec(DataType.binary, "image"), *labels])
    described = MetaDataset(source, name, short_digest(data.digests[name]), schema).to_dict()
    entity = Dataset(
        described["name"],
        described["digest"],
        described["source_type"],
        described["source"],
        described["schema"],
        json.dumps(_profile(data, name, part)),
    )
    context = "training" if role == "client" else "testing"
    tags = {"mlflow.data.context": context, "chestfed.role": role, "data": str(part.origin), **more}
    return DatasetInput(entity, [InputTag(key, value) for key, value in tags.items()])


def _profile(data: StudyData, name: str, part: ClientData | TestSet) -> dict[str, Any]:
    """Counts of readable images, training rows or test patients, and labels."""
    readable = np.flatnonzero(part.images.records >= 0)
    labels = part.labels[readable]
    counts: dict[str, Any] = {"digest": data.digests[name], "images": len(readable)}
    if isinstance(part, ClientData):
        counts["training_rows"] = part.training_rows
    else:
        counts["patients"] = len(np.unique(part.patients[readable]))
    if name in data.quarantined:
        counts["unreadable_images_of_the_site"] = len(data.quarantined[name])
    for disease, column in zip(data.diseases, labels.T, strict=True):
        counts[disease] = {
            "positive": int((column == 1).sum()),
            "negative": int((column == 0).sum()),
            "missing": int(np.isnan(column).sum()),
        }
    return counts
