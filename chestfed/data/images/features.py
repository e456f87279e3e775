"""Features of a network that is not trained in place of pixels: computed once per image, then kept on disk.

    <cache root>/features-<digest of the network>/images.sqlite    see `database.py`

An image is known by the digest of its pixels, so that all sites and studies share what was computed. `chestfed cache`
lists these stores, and removes what is damaged, like those of the sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from chestfed.core.errors import ImageError
from chestfed.data.images.batches import Images, Rows, normalize
from chestfed.data.images.copies import open_database, publish
from chestfed.data.images.database import KEY, Database, Row, digest_pixels, unpack_keys

#: Images per forward pass; the last pass is filled up, because a smaller one may change the last bits.
_BATCH: Final = 32
_KIND: Final = "features"


@dataclass(frozen=True, eq=False)
class FeatureImages:
    """Features in place of the pixels of `images`."""

    images: Images
    values: np.ndarray  #: float32 `[n, d]`; NaN for a row whose image cannot be read

    @property
    def records(self) -> np.ndarray:
        """As those of the images."""
        return self.images.records

    @property
    def digests(self) -> np.ndarray:
        """As those of the images."""
        return self.images.digests

    def read(self, rows: Rows) -> np.ndarray:
        """Features float32 `[n, d]` of some rows; raises `ImageError` if one has no readable image."""
        rows = np.asarray(rows)
        if (self.records[rows] < 0).any():
            raise ImageError(f"row {rows[self.records[rows] < 0][0]} has no readable image")
        return self.values[rows]


class FeatureStore:
    """The features of one network.

    `extract` takes images float32 `[n, 3, h, w]`, normalized as in training, and returns `[n, width]`; `digest` names
    it. `report(done, total)` counts the images that it is given.
    """

    def __init__(
        self,
        cache_root: Path,
        digest: str,
        width: int,
        extract: Callable[[Tensor], Tensor],
        device: torch.device,
        report: Callable[[int, int], object] | None = None,
    ) -> None:
        self._database: Database = open_database(cache_root, f"features-{digest}")
        self._width, self._extract, self._device = width, extract, device
        self._report = report or (lambda done, total: None)
        self._database.create()

    def load(self, images: Images) -> FeatureImages:
        """The features of all readable images; what is not in the store yet is computed.

        Raises `ChestfedError` if the store cannot be read or written.
        """
        values = np.full((len(images.records), self._width), np.nan, np.float32)
        readable = np.flatnonzero(images.records >= 0)
        missing = self._read(images.digests[readable], readable, values)
        _, first = np.unique(images.digests[missing].view("S16"), return_index=True)
        unique_rows = missing[np.sort(first)]
        for start in range(0, len(unique_rows), _BATCH):
            rows = unique_rows[start : start + _BATCH]
            self._add(images.digests[rows], self._compute(images.read(rows)))
            self._report(min(start + _BATCH, len(unique_rows)), len(unique_rows))
        if len(self._read(images.digests[missing], missing, values)):
            raise ImageError(f"{self._database.file}: features were removed meanwhile; run the same command again")
        self._database.mark_used(_KIND)
        publish(self._database)
        return FeatureImages(images, values)

    def _read(self, digests: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Put stored features into these rows of `values`; returns the rows without."""
        known, numbers, cells = self._database.find(_KIND, {"digest": KEY}, digests)
        places = np.flatnonzero(known)
        read = np.zeros((len(places), 4 * self._width), np.uint8)
        sound = self._database.read_pixels(numbers[places], cells["digest"][places], read)
        values[rows[places[sound]]] = read[sound].view(np.float32)
        return np.delete(rows, places[sound])

    def _compute(self, pixels: np.ndarray) -> np.ndarray:
        filled = np.concatenate([pixels, np.repeat(pixels[-1:], _BATCH - len(pixels), axis=0)])
        features = self._extract(normalize(torch.from_numpy(filled).to(self._device)))
        return features[: len(pixels)].cpu().numpy()

    def _add(self, digests: np.ndarray, features: Sequence[np.ndarray] | np.ndarray) -> None:
        data = [np.ascontiguousarray(row, np.float32).tobytes() for row in features]
        rows = [
            Row(key, (digest_pixels(values),), values) for key, values in zip(unpack_keys(digests), data, strict=True)
        ]
        self._database.add({_KIND: rows})
