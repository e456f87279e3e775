"""Clients and test set from a collection: its tasks, cut among clients as the papers cut them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.core.pseudonyms import key_for
from chestfed.core.randomness import stream_seed
from chestfed.data.collections import partition, skews
from chestfed.data.collections.collection import find_collection, open_collection
from chestfed.data.collections.declaration import Collection, Part
from chestfed.data.collections.pixels import Pixels
from chestfed.data.images.batches import Rows
from chestfed.data.images.database import pack_keys
from chestfed.data.images.preprocess import Preprocess
from chestfed.studies.experiment.data import CollectionEntry
from chestfed.studies.experiment.device import Machine
from chestfed.studies.experiment.pipeline import Pipeline
from chestfed.studies.training.data.clients import ClientData, TestSet, image_names
from chestfed.studies.training.data.experiment import Experiment


@dataclass(frozen=True)
class FeatureNoise:
    """Noise on the images of client `client` of `clients`, counted from 1; see `skews.add_noise`."""

    sigma: float
    client: int
    clients: int
    seed: int


class CollectionImages:
    """Some rows of a collection, resized at each read; noise is added to the resized image."""

    def __init__(
        self, pixels: Pixels, rows: np.ndarray, preprocess: Preprocess, noise: FeatureNoise | None = None
    ) -> None:
        self._pixels, self._rows, self._preprocess, self._noise = pixels, rows, preprocess, noise
        self.records = np.arange(len(rows))
        self.digests = pack_keys([pixels.digest(int(row)) for row in rows])

    def read(self, rows: Rows) -> np.ndarray:
        """Pixels uint8 `[n, size, size]` or `[n, size, size, 3]`."""
        return np.stack([self._read(row) for row in self._rows[rows].tolist()])

    def _read(self, row: int) -> np.ndarray:
        image, noise = self._preprocess.apply(self._pixels.read(row)), self._noise
        if noise is None:
            return image
        return skews.add_noise(image, noise.sigma, noise.client, noise.clients, noise.seed, self._pixels.digest(row))


def load_collection(
    pipeline: Pipeline, data_root: Path | None, machine: Machine, *, validation: float | None = None
) -> Experiment:
    """Read the collection, make its tasks, cut the clients.

    With `validation`, this share of the training images is set aside and takes the place of the test set, which is left
    out.

    Raises
    ------
    ConfigError
        If the collection cannot be read, or its labels do not go with the pipeline's tasks, partition or imratio.
    """
    entry = pipeline.collection
    assert entry is not None
    spec, root = find_collection(entry.name), None
    if data_root is not None:
        root = data_root / (entry.root or (entry.name if spec is None else spec.name))
    collection = open_collection(entry.name, root, download=entry.download)
    seed = pipeline.seed

    train, test = collection.train, collection.test
    labels, test_labels = _label(collection, entry, seed)
    positive = (labels == 1).any(axis=1).astype(np.float32)  #: has any of the tasks
    if test is None:
        rows, test_rows = _hold_out(train, positive, np.arange(len(labels)), entry.test_fraction, seed)
        test, test_labels = train, labels
    else:
        test_rows, rows = np.arange(len(test.classes)), np.arange(len(train.classes))
    if validation is not None:
        rows, test_rows = _hold_out(train, positive, rows, validation, stream_seed(seed, "validation"))
        test, test_labels = train, labels
    if entry.imratio is not None:
        rows = rows[partition.drop_positives(train.classes[rows], positive[rows], entry.imratio, seed)]

    dealt = _deal(entry, train, positive, rows, seed)
    clients = [_make_client(pipeline, train, labels, part, number) for number, part in enumerate(dealt, start=1)]
    test_images = CollectionImages(test.pixels, test_rows, pipeline.preprocess)
    test_patients = _patients(test, test_rows)
    key = key_for(public=train.patients is None and test.patients is None)
    test_set = TestSet(
        test_images,
        test_labels[test_rows],
        test_patients,
        pipeline.tasks,
        image_names(test_images.digests, key),
        key.name_patients(entry.name, test_patients),
        key.fingerprint,
    )
    digests = {client.name: client.digest(key) for client in clients}
    digests["test set"] = test_set.digest(key)
    return Experiment(pipeline, machine, clients=tuple(clients), test=test_set, digests=digests)


def _label(collection: Collection, entry: CollectionEntry, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels float32 `[n, tasks]` of the training and of the test part; of no test part, no rows."""
    train, test = collection.train, collection.test
    if train.labels is None:
        if len(entry.tasks) > 1:
            raise ConfigError(f"collection.tasks: {entry.name} has one class per image, so one task; name one")
        chosen = partition.positive_classes(collection.classes, entry.positive, seed)
        none = np.zeros(0, np.int64)
        parts = (train.classes, none if test is None else test.classes)
        first, second = (partition.binary_labels(classes, chosen)[:, None] for classes in parts)
        return first, second
    count = train.labels.shape[1]
    if len(entry.tasks) != count:
        raise ConfigError(f"collection.tasks: {entry.name} has {count} tasks; name as many, not {len(entry.tasks)}")
    if entry.imratio is not None or "positive" in entry.model_fields_set:
        raise ConfigError(
            f"collection: {entry.name} has labels of its own: set imratio: null, and leave `positive` out"
        )
    empty = np.zeros((0, count), np.float32)
    return train.labels, empty if test is None or test.labels is None else test.labels


def _make_client(pipeline: Pipeline, train: Part, labels: np.ndarray, rows: np.ndarray, number: int) -> ClientData:
    """Client `number`, counted from 1, with these rows and the noise of the collection's entry."""
    entry = pipeline.collection
    assert entry is not None
    noise, name = None, f"{entry.name.rpartition(':')[2].lower()}-{number}"
    if entry.feature_noise:
        noise = FeatureNoise(entry.feature_noise, number, entry.clients, pipeline.seed)
    share = entry.label_noise[number - 1] if isinstance(entry.label_noise, list) else entry.label_noise
    client_labels = labels[rows]
    if share:
        for task, column in zip(entry.tasks, client_labels.T, strict=True):  # a view: changes `client_labels`
            known = ~np.isnan(column)
            column[known] = skews.flip_labels(column[known], share, pipeline.seed, f"{number} {task}")
    counts = np.bincount(train.classes[rows], minlength=int(train.classes.max()) + 1)
    images = CollectionImages(train.pixels, rows, pipeline.preprocess, noise)
    return ClientData(name, images, client_labels, np.ones(len(rows), np.int64), classes=tuple(counts.tolist()))


def _hold_out(
    part: Part, positive: np.ndarray, rows: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """These rows without those that are held out, and those: by patient, where there are patients."""
    if part.patients is not None:
        held = partition.hold_out_patients(positive[rows], part.patients[rows], fraction, seed)
    elif part.labels is not None:
        held = partition.hold_out(positive[rows], fraction, seed)
    else:
        held = partition.hold_out(part.classes[rows], fraction, seed)
    return rows[~held], rows[held]


def _deal(entry: CollectionEntry, train: Part, positive: np.ndarray, rows: np.ndarray, seed: int) -> list[np.ndarray]:
    """The rows of each client."""
    classes, labels, how = train.classes[rows], positive[rows], entry.partition
    if how == "client":
        if train.clients is None:
            raise ConfigError(f"partition: client needs the array client, which {entry.name} does not have")
        parts = partition.deal_given(train.clients[rows], entry.clients)
    elif how == "classes":
        parts = partition.deal_classes(classes, labels, entry.clients)
    elif how == "sorted":
        parts = partition.deal_sorted(classes, labels, entry.clients)
    elif train.patients is not None:  # dealt as if a patient were one image, positive if any of theirs is
        patient, flags = partition.index_patients(labels, train.patients[rows])
        parts = [np.flatnonzero(np.isin(patient, part)) for part in _deal_units(entry, flags, flags, seed)]
    else:
        parts = _deal_units(entry, classes, labels, seed)
    return [rows[part] for part in parts]


def _deal_units(entry: CollectionEntry, classes: np.ndarray, labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """Images, or patients, of each client."""
    how, clients = entry.partition, entry.clients
    if isinstance(how, str):  # random
        return partition.deal_at_random(labels, clients, seed)
    if how.dirichlet is not None:
        return skews.deal_dirichlet(classes, labels, clients, how.dirichlet, seed)
    if how.shards is not None:
        return skews.deal_shards(classes, labels, clients, how.shards, seed)
    assert how.quantity is not None
    return skews.deal_quantities(labels, clients, how.quantity, seed)


def _patients(part: Part, rows: np.ndarray) -> np.ndarray:
    """Running numbers; without patients every image is its own."""
    if part.patients is None:
        return np.arange(len(rows))
    return np.unique(part.patients[rows], return_inverse=True)[1]
