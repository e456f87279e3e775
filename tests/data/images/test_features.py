"""The store of features: computed once per image, found again, damaged ones computed anew."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from chestfed.core.errors import ImageError
from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import NoiseImages, PooledImages, Rows, TrainBatches
from chestfed.data.images.database import digest_pixels, pack_keys
from chestfed.data.images.features import FeatureStore
from chestfed.data.images.maintenance import parts, prune


class Pictures:
    """Some gray images; the last row has none."""

    def __init__(self, count: int, seed: int = 1) -> None:
        self.pixels = np.random.default_rng(seed).integers(0, 256, (count, 8, 8), np.uint8)
        self.records = np.array([*range(count - 1), -1])
        self.digests = pack_keys([digest_pixels(picture.data) for picture in self.pixels])

    def read(self, rows: Rows) -> np.ndarray:
        return self.pixels[np.asarray(rows)].copy()


class Network:
    """Two numbers per image, and how many images it was given."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, images: Tensor) -> Tensor:
        self.given += len(images)
        return torch.stack([images.mean(dim=(1, 2, 3)), images.amax(dim=(1, 2, 3))], dim=1)


def open_store(folder: Path, network: Network) -> FeatureStore:
    return FeatureStore(folder, "0" * 32, 2, network, torch.device("cpu"))


def test_each_image_is_computed_once(tmp_path: Path) -> None:
    network, pictures = Network(), Pictures(40)
    first = open_store(tmp_path, network).load(pictures)
    assert network.given == 64  # 39 readable images in two full passes
    again = open_store(tmp_path, network).load(pictures)
    assert network.given == 64
    np.testing.assert_array_equal(first.values, again.values)
    rows = [3, 1]
    levels = pictures.read(rows).astype(np.float32) / 255
    means = np.stack([(levels - mean) / std for mean, std in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))])
    np.testing.assert_allclose(first.read(rows)[:, 0], means.mean(axis=(0, 2, 3)), rtol=1e-5)
    with pytest.raises(ImageError):
        first.read([39])


def test_a_new_image_alone_is_computed(tmp_path: Path) -> None:
    network = Network()
    store = open_store(tmp_path, network)
    store.load(Pictures(33))
    store.load(PooledImages([Pictures(33), Pictures(5, seed=2)]))
    assert network.given == 64
    store.load(NoiseImages(Pictures(33), 1, "noise"))
    assert network.given == 96


def test_a_damaged_feature_is_computed_again(tmp_path: Path) -> None:
    network, pictures = Network(), Pictures(33)
    first = open_store(tmp_path, network).load(pictures)
    (file,) = tmp_path.glob("features-*/images.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE pixels SET data = zeroblob(8) WHERE number = 3")
    again = open_store(tmp_path, network).load(pictures)
    assert network.given == 64
    np.testing.assert_array_equal(first.values, again.values)


def test_cache_lists_and_keeps_features(tmp_path: Path) -> None:
    network = Network()
    open_store(tmp_path, network).load(Pictures(33))
    (part,) = parts(tmp_path)
    assert (part.site, part.what, part.images) == (f"features-{'0' * 32}", "features", 32)
    assert prune(tmp_path)[1] == {part.site: 0}
    open_store(tmp_path, network).load(Pictures(33))
    assert network.given == 32


def test_batches_are_of_features(tmp_path: Path) -> None:
    images = open_store(tmp_path, Network()).load(Pictures(9))
    pooled = PooledImages([images, images])
    labels = np.zeros((18, 1), np.float32)
    about = {"batch_size": 4, "seed": 1, "name": "client", "augment": Augment(enabled=False), "workers": 0}
    batches = TrainBatches(pooled, labels, np.ones(18, np.int64), **about)  # type: ignore[arg-type]
    rows = batches.select_rows(0)
    np.testing.assert_array_equal(batches.next().images.numpy(), images.values[rows % 9])
