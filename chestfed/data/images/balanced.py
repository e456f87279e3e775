"""Batches with a fixed number of positives of one disease, drawn per batch: a rare disease is in every one.

Z. Yuan, D. Zhu, Z.-H. Qiu, G. Li, X. Wang, T. Yang: LibAUC: A Deep Learning Library for X-Risk Optimization. KDD 2023,
has such batches, its dual sampler for one task and for several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chestfed.core.randomness import numpy_stream
from chestfed.data.images.batches import Batch, TrainBatches


class BalancedBatches(TrainBatches):
    """Endless batches of which each is about one disease: `positives` images with it, the others without.

    The disease is drawn evenly among those of which the client has both classes; labels of all others are missing in
    the batch. Images of a class are drawn from the training list, a repeated row as often as it stands there, without
    replacement as far as they suffice. A batch is a function of the seed, the client's name and its position.

    Raises `ValueError` if there is no such disease, or `positives` leave no room for a negative.
    """

    def __init__(self, *args: Any, positives: int, **about: Any) -> None:
        super().__init__(*args, **about)
        if not 0 < positives < self._batch_size:
            raise ValueError(f"{positives} positives in a batch of {self._batch_size}")
        labels = self._labels.numpy()[self._rows]
        #: Disease -> rows of the training list with and without it.
        self._classes: dict[int, tuple[np.ndarray, np.ndarray]] = {
            disease: (self._rows[column == 1], self._rows[column == 0])
            for disease, column in enumerate(labels.T)
            if (column == 1).any() and (column == 0).any()
        }
        if not self._classes:
            raise ValueError(f"client '{self._name}' has no disease with both classes")
        self._counts = (positives, self._batch_size - positives)

    def select_rows(self, position: int) -> np.ndarray:
        """Row numbers of a batch: the positives, then the negatives."""
        disease, draw = self._draw(position)
        parts = zip(self._classes[disease], self._counts, strict=True)
        return np.concatenate([draw_rows(draw, rows, count) for rows, count in parts])

    def select_labels(self, position: int, rows: np.ndarray) -> Tensor:
        """Labels of a batch: those of its disease, the others are missing."""
        disease, _ = self._draw(position)
        labels = torch.full((len(rows), self._labels.shape[1]), torch.nan)
        labels[:, disease] = self._labels[torch.from_numpy(rows), disease]
        return labels

    def whole(self) -> Iterator[Batch]:
        """Refused: all rows once are other images than those that batches are drawn from."""
        raise TypeError("federated.sampling: there is no pass over all images with a fixed share of positives")

    def _draw(self, position: int) -> tuple[int, np.random.Generator]:
        """The disease of a batch, and the generator of its rows."""
        draw, diseases = numpy_stream(self._seed, "balanced", self._name, position), list(self._classes)
        return diseases[int(draw.integers(len(diseases)))], draw


def draw_rows(draw: np.random.Generator, rows: np.ndarray, count: int) -> np.ndarray:
    """So many of the rows: each as often as every other, and the rest without replacement."""
    times, rest = divmod(count, len(rows))
    return np.concatenate([np.tile(rows, times), draw.choice(rows, rest, replace=False)])
