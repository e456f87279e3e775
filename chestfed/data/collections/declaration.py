"""Declaration of a collection of images; docs/collections.md shows one of your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.core.plugins import Options, Versioned
from chestfed.data.collections.pixels import Pixels


@dataclass(frozen=True)
class Part:
    """Images with their classes, or with the labels of several tasks, in the order of the files."""

    pixels: Pixels
    classes: np.ndarray  #: int64 `[n]`; of images with `labels`, which of the different rows of labels they have
    patients: np.ndarray | None = None  #: names or numbers `[n]`, where the collection has patients
    clients: np.ndarray | None = None  #: names or numbers `[n]` of the clients that hold the images, where given
    labels: np.ndarray | None = None  #: float32 `[n, tasks]` in {0, 1, NaN}, NaN for unknown; None: tasks from classes


@dataclass(frozen=True)
class Collection:
    """Images of `classes` classes; `test` is None if the collection has no labeled test part of its own."""

    name: str
    classes: int
    train: Part
    test: Part | None


@dataclass(frozen=True)
class CollectionSpec(Versioned):
    """A collection.

    Attributes
    ----------
    name, title
        In configurations; in tables.
    read
        `read(folder, download)` returns the `Collection` that lies in the folder `collection.root`, by default `name`
        below the data root. It may fetch missing files if `download`.
    has_files
        Whether it needs a folder; otherwise `read` gets None.
    options
        None so far.
    """

    name: str
    title: str
    read: Callable[[Path | None, bool], Collection]
    has_files: bool = True
    options: type[Options] = Options


def label_patterns(labels: np.ndarray) -> np.ndarray:
    """Which of the different rows each row of labels `[n, tasks]` is, int64 `[n]`."""
    return np.unique(np.nan_to_num(labels, nan=2.0), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def check_collection(collection: Collection, place: object) -> Collection:
    """The collection; raises `ConfigError` if counts differ, or labels or classes are not as `Part` says."""
    parts = [part for part in (collection.train, collection.test) if part is not None]
    for part in parts:
        if len(part.pixels) != len(part.classes) or not len(part.classes):
            raise ConfigError(
                f"{place}: {len(part.classes)} labels for {len(part.pixels)} images", kind="counts differ"
            )
        if part.labels is not None:
            _check_labels(part, collection.train, place)
            continue
        outside = int(((part.classes < 0) | (part.classes >= collection.classes)).sum())
        if outside:
            text = f"{place}: {outside} labels are outside of 0..{collection.classes - 1}"
            raise ConfigError(text, kind="impossible class")
    if len({part.labels is None for part in parts}) > 1:
        raise ConfigError(f"{place}: training and test part need labels of one kind: classes [n] or tasks [n, tasks]")
    absent = set(range(max(2, collection.classes))) - set(collection.train.classes.tolist())
    if absent and collection.train.labels is None:
        raise ConfigError(
            f"{place}: no training image of {len(absent)} classes, such as {min(absent)}; y counts from 0",
            kind="class without images",
        )
    return collection


def _check_labels(part: Part, train: Part, place: object) -> None:
    assert part.labels is not None
    shape, expected = part.labels.shape, None if train.labels is None else train.labels.shape[1:]
    if len(shape) != 2 or shape[0] != len(part.classes) or shape[1:] != expected:
        raise ConfigError(f"{place}: labels of several tasks must be [n, tasks], not {list(shape)}")
    if not (np.isin(part.labels, (0, 1)) | np.isnan(part.labels)).all():
        raise ConfigError(f"{place}: labels of several tasks must be 0, 1 or NaN (unknown)")
