"""Clients and test set from a public image collection: one binary task, cut as the papers cut it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import PUBLISHED
from chestfed.core.randomness import stream_seed
from chestfed.experiment.data import CollectionEntry
from chestfed.experiment.device import Machine
from chestfed.experiment.pipeline import Pipeline
from chestfed.images.batches import Rows
from chestfed.images.database import pack_keys
from chestfed.images.preprocess import Preprocess
from chestfed.public_datasets import partition
from chestfed.public_datasets.collection import Part, open_collection
from chestfed.public_datasets.pixels import Pixels
from chestfed.training.data.clients import ClientData, TestSet, image_names, patient_names
from chestfed.training.data.experiment import Experiment


class CollectionImages:
    """Some rows of a collection, resized at each read."""

    def __init__(self, pixels: Pixels, rows: np.ndarray, preprocess: Preprocess) -> None:
        self._pixels, self._rows, self._preprocess = pixels, rows, preprocess
        self.records = np.arange(len(rows))
        self.digests = pack_keys([pixels.digest(int(row)) for row in rows])

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels uint8 `[n, size, size]` or `[n, size, size, 3]`."""
        return np.stack([self._preprocess.apply(self._pixels.read(row)) for row in self._rows[rows].tolist()])


def load_collection(
    pipeline: Pipeline, data_root: Path | None, machine: Machine, *, validation: float | None = None
) -> Experiment:
    """Read the collection, make the task, cut the clients.

    With `validation`, this share of the training images is set aside and takes the place of the test set, which is left
    out.
    """
    entry = pipeline.collection
    assert entry is not None
    path = None if data_root is None else data_root / (entry.root or entry.name)
    collection = open_collection(entry.name, path, download=entry.download)
    seed = pipeline.seed

    train, test = collection.train, collection.test
    positive = partition.positive_classes(collection.classes, entry.positive, seed)
    labels = partition.binary_labels(train.classes, positive)
    if test is None:
        rows, test_rows = _hold_out(train, labels, np.arange(len(labels)), entry.test_fraction, seed)
        test = train
    else:
        test_rows, rows = np.arange(len(test.classes)), np.arange(len(train.classes))
    if validation is not None:
        rows, test_rows = _hold_out(train, labels, rows, validation, stream_seed(seed, "validation"))
        test = train
    if entry.imratio is not None:
        rows = rows[partition.drop_positives(train.classes[rows], labels[rows], entry.imratio, seed)]

    clients = []
    for number, part in enumerate(_deal(entry, train, labels, rows, seed), start=1):
        images = CollectionImages(train.pixels, part, pipeline.preprocess)
        client_labels = labels[part][:, None]
        clients.append(ClientData(f"{entry.name}-{number}", images, client_labels, np.ones(len(part), np.int64)))
    test_images = CollectionImages(test.pixels, test_rows, pipeline.preprocess)
    test_patients = _patients(test, test_rows)
    test_set = TestSet(
        test_images,
        partition.binary_labels(test.classes, positive)[test_rows][:, None],
        test_patients,
        pipeline.tasks,
        image_names(test_images.digests, PUBLISHED),  # anybody has these images
        patient_names(entry.name, test_patients, PUBLISHED),
        PUBLISHED.fingerprint,
    )
    digests = {client.name: client.digest(PUBLISHED) for client in clients}
    digests["test set"] = test_set.digest(PUBLISHED)
    return Experiment(pipeline, machine, clients=tuple(clients), test=test_set, digests=digests)


def _hold_out(
    part: Part, labels: np.ndarray, rows: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """These rows without those that are held out, and those: by patient, where there are patients."""
    if part.patients is None:
        held = partition.hold_out(part.classes[rows], fraction, seed)
    else:
        held = partition.hold_out_patients(labels[rows], part.patients[rows], fraction, seed)
    return rows[~held], rows[held]


def _deal(entry: CollectionEntry, train: Part, labels: np.ndarray, rows: np.ndarray, seed: int) -> list[np.ndarray]:
    if entry.partition == "client":
        if train.clients is None:
            raise ConfigError(f"partition: client needs the array client, which {entry.name} does not have")
        parts = partition.deal_given(train.clients[rows], entry.clients)
    elif entry.partition == "classes":
        parts = partition.deal_classes(train.classes[rows], labels[rows], entry.clients)
    elif entry.partition == "sorted":
        parts = partition.deal_sorted(train.classes[rows], labels[rows], entry.clients)
    elif train.patients is not None:
        parts = partition.deal_patients(labels[rows], train.patients[rows], entry.clients, seed)
    else:
        parts = partition.deal_at_random(labels[rows], entry.clients, seed)
    return [rows[part] for part in parts]


def _patients(part: Part, rows: np.ndarray) -> np.ndarray:
    """Running numbers; without patients every image is its own."""
    if part.patients is None:
        return np.arange(len(rows))
    return np.unique(part.patients[rows], return_inverse=True)[1]
