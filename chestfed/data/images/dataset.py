"""Cached images and labels as a PyTorch dataset, for any training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import Images, normalize


class ImageDataset(Dataset[tuple[Tensor, Tensor]]):
    """Image float32 `[3, size, size]`, normalized as in training, and labels float32 `[J]`, NaN for missing.

    It can be pickled, so it works with any number of workers of a `DataLoader`, forked or spawned. Augmentation is
    seeded by PyTorch's random numbers: it differs between epochs and workers, and `torch.manual_seed` repeats it.

    Attributes
    ----------
    diseases
        Names of the columns of `labels`.
    labels
        float32 `[n, J]`: 1, 0, or NaN for missing.
    patients
        int64 `[n]`: images with one number are of one patient, in all datasets of a site. The numbers are not the
        patients' names.
    rows
        int64 `[n]`: the row of each image in the site's table.
    """

    def __init__(
        self,
        images: Images,
        diseases: tuple[str, ...],
        labels: np.ndarray,
        patients: np.ndarray,
        rows: np.ndarray,
        augment: Augment | None = None,
        transform: Callable[[Tensor], Any] | None = None,
    ) -> None:
        self._places = np.flatnonzero(images.records >= 0)  # the others have no readable image
        self._images, self._augment, self._transform = images, augment, transform
        self.diseases = diseases
        self.labels = np.array(labels[self._places], np.float32)
        self.patients = np.array(patients[self._places], np.int64)
        self.rows = np.array(rows[self._places], np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        patients = len(np.unique(self.patients))
        return f"ImageDataset({len(self):,} images of {patients:,} patients, {', '.join(self.diseases)})"

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        gray = self._images.read([int(self._places[index])])
        if self._augment is not None:
            gray = self._augment.apply(gray, [int(torch.randint(2**32, ()))])
        image: Any = normalize(gray)[0]
        image = image if self._transform is None else self._transform(image)
        return image, torch.from_numpy(self.labels[index].copy())
