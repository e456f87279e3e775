"""From a collection's classes to a binary task and to clients: the papers' constructions.

The imbalanced heterogeneous (IH) construction of Yuan et al., ICML 2021, section 6.1: half of the classes, drawn at
random, is positive; positives are dropped until they are a share `imratio` of the training images; the classes of both
halves are dealt into K groups, so that no class is at two clients; the test images stay balanced. Zhang et al., NeurIPS
2023, section 6.1, take the first half of the classes as positive.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from chestfed.core.errors import ConfigError
from chestfed.core.randomness import numpy_stream


def positive_classes(count: int, half: Literal["random", "first", "second"], seed: int) -> np.ndarray:
    """The numbers of the positive ones of `count` classes, ascending: half, of an odd number the larger half."""
    order = numpy_stream(seed, "positive classes").permutation(count) if half == "random" else np.arange(count)
    return np.sort(order[: count - count // 2] if half == "first" else order[count // 2 :])


def binary_labels(classes: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Labels float32 `[n]`: 1 for the positive classes, else 0."""
    return np.isin(classes, positive).astype(np.float32)


def drop_positives(classes: np.ndarray, labels: np.ndarray, imratio: float, seed: int) -> np.ndarray:
    """Rows that are kept, in order: all negatives, and of every positive class the same share, drawn by `seed`.

    Raises `ConfigError` if there are fewer positives than `imratio` asks for, or none would be left.
    """
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    target = negatives * imratio / (1 - imratio)
    if target > positives:
        share = positives / max(1, positives + negatives)
        raise ConfigError(
            f"imratio: {imratio:g} is above the share of positives, {share:.3f}; positives can only be dropped",
            kind="imratio too high",
        )
    selected = [np.flatnonzero(labels == 0)]
    for number in np.unique(classes[labels == 1]):
        rows = np.flatnonzero((classes == number) & (labels == 1))
        rng = numpy_stream(seed, "imratio", int(number))
        selected.append(rng.choice(rows, round(len(rows) * target / positives), replace=False))
    if sum(map(len, selected[1:])) == 0:
        raise ConfigError(f"imratio: {imratio:g} leaves no positive image of {positives}", kind="no positive image")
    return np.sort(np.concatenate(selected))


def deal_classes(classes: np.ndarray, labels: np.ndarray, clients: int) -> list[np.ndarray]:
    """Rows of each client: the classes of either label are cut into `clients` runs, so no class is at two clients.

    Where the number of classes is not a multiple of the number of clients, the first clients have one class more.

    Raises `ConfigError` if a label has fewer classes than there are clients.
    """
    parts = []
    for value, word in ((0, "negative"), (1, "positive")):
        numbers = np.unique(classes[labels == value])
        if len(numbers) < clients:
            raise ConfigError(
                f"partition: classes needs a {word} class per client: there are {len(numbers)} for {clients} clients; "
                "take fewer clients, or partition: random",
                kind="too few classes",
                clients=clients,
            )
        groups = np.array_split(numbers, clients)
        parts.append([np.flatnonzero((labels == value) & np.isin(classes, group)) for group in groups])
    return _join_labels(*parts)


def deal_sorted(classes: np.ndarray, labels: np.ndarray, clients: int) -> list[np.ndarray]:
    """Rows of each client: those of either label, sorted by class, are cut into `clients` even runs.

    For any number of clients; with more clients than classes, some hold parts of the same class and nothing else.
    """
    by_label = [np.flatnonzero(labels == value) for value in (0, 1)]
    runs = (np.array_split(rows[np.argsort(classes[rows], kind="stable")], clients) for rows in by_label)
    return _join_labels(*runs)


def deal_at_random(labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    """Rows of each client, dealt by `seed`, positives and negatives evenly."""
    negatives, positives = (
        np.array_split(numpy_stream(seed, "deal", value).permutation(np.flatnonzero(labels == value)), clients)
        for value in (0, 1)
    )
    return _join_labels(negatives[::-1], positives)


def _join_labels(negatives: list[np.ndarray], positives: list[np.ndarray]) -> list[np.ndarray]:
    """Rows of each client, in order."""
    return [np.sort(np.concatenate(parts)) for parts in zip(negatives, positives, strict=True)]


def deal_given(holders: np.ndarray, clients: int) -> list[np.ndarray]:
    """Rows of each client as the collection names them, in the order of their names.

    Raises `ConfigError` if it names another number of clients.
    """
    names = np.unique(holders)
    if len(names) != clients:
        text = f"partition: client finds {len(names)} clients in the collection, not {clients}"
        raise ConfigError(text, kind="counts differ", clients=len(names))
    return [np.flatnonzero(holders == name) for name in names]


def hold_out(classes: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which rows are held out, bool `[n]`: the same share of every class."""
    held = np.zeros(len(classes), bool)
    for number in np.unique(classes):
        rows = np.flatnonzero(classes == number)
        chosen = numpy_stream(seed, "hold out", int(number)).permutation(rows)
        held[chosen[: round(fraction * len(rows))]] = True
    return held


def hold_out_patients(labels: np.ndarray, patients: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which rows are held out, bool `[n]`: those of the same share of patients with and without a positive."""
    patient, positive = index_patients(labels, patients)
    return hold_out(positive, fraction, seed)[patient]


def index_patients(labels: np.ndarray, patients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The patient's number of each row, and of each patient 1 if any image is positive, else 0."""
    _, patient = np.unique(patients, return_inverse=True)
    positive = np.zeros(patient.max() + 1, np.int64)
    positive[patient[labels == 1]] = 1
    return patient, positive
