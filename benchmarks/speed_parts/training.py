"""From the cache to the network, and a step of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.speed_parts.pairs import paired
from benchmarks.speed_parts.prepare import film
from chestfed.core.bundled import bundled
from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import CPU, EvalBatches, TrainBatches
from chestfed.data.images.cache import COLUMNS, CachedImages
from chestfed.data.images.database import Database, Row, digest_pixels, pack_keys
from chestfed.learning.engines.client import NetworkClient
from chestfed.learning.models import FlatModule, build_model
from chestfed.learning.objectives.cross_entropy import CrossEntropy
from chestfed.studies.experiment.loading import load_pipeline

SIZE, BATCH, IMAGES = 320, 32, 512


@contextmanager
def cached(count: int = IMAGES) -> Iterator[CachedImages]:
    """Images in a cache of their own."""
    with tempfile.TemporaryDirectory() as folder:
        gray = film(SIZE, SIZE, 8)
        squares = [np.roll(gray, place, axis=1) for place in range(count)]
        digests = [digest_pixels(square.tobytes()) for square in squares]
        database = Database(Path(folder) / "images.sqlite")
        database.create()
        rows = [
            Row(digest, (digest, digest, None), square.tobytes())
            for digest, square in zip(digests, squares, strict=True)
        ]
        database.add({"pixels-320": rows})
        keys = pack_keys(digests)
        yield CachedImages(database, SIZE, database.find("pixels-320", COLUMNS, keys)[1], keys, keys, ())


def batches(
    images: CachedImages, augment: Augment, size: int = BATCH, workers: int = 0, device: torch.device = CPU
) -> TrainBatches:
    """As a study makes them."""
    labels = np.zeros((len(images.records), 5), np.float32)
    return TrainBatches(
        images,
        labels,
        np.ones(len(labels), np.int64),
        batch_size=size,
        seed=1,
        name="a",
        augment=augment,
        workers=workers,
        device=device,
    )


class Films(Dataset[torch.Tensor]):
    """As LibAUC's loader prepares CheXpert, from arrays in memory: no file is read, no JPEG decoded."""

    def __init__(self, squares: np.ndarray) -> None:
        self.squares = squares

    def __len__(self) -> int:
        return len(self.squares)

    def __getitem__(self, index: int) -> torch.Tensor:
        rng = np.random.default_rng(index)
        turn, scale = rng.uniform(-15, 15), rng.uniform(0.95, 1.05)
        matrix = cv2.getRotationMatrix2D((SIZE / 2, SIZE / 2), turn, scale)
        matrix[:, 2] += rng.uniform(-0.05, 0.05, 2) * SIZE
        color = cv2.cvtColor(cv2.warpAffine(self.squares[index], matrix, (SIZE, SIZE)), cv2.COLOR_GRAY2RGB)
        values = (color.astype(np.float32) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        return torch.from_numpy(values.transpose(2, 0, 1).astype(np.float32))


def measure_loader() -> dict[str, Any]:
    """Milliseconds per image of the input pipeline, in this process and without threads of its own."""
    from monai.data import CacheDataset, PersistentDataset
    from monai.transforms import Compose, Lambda, RandAffine, RepeatChannel, ScaleIntensity

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    with cached() as images, tempfile.TemporaryDirectory() as folder:
        augmented, plain = batches(images, Augment()), batches(images, Augment(enabled=False))
        squares = images.read(range(IMAGES))
        films = iter(DataLoader(Films(squares), batch_size=BATCH))
        affine = RandAffine(prob=1.0, rotate_range=0.26, translate_range=16, scale_range=0.05, padding_mode="zeros")
        transform = Compose([ScaleIntensity(), affine, RepeatChannel(3)])
        monai = iter(DataLoader(CacheDataset(squares[:, None], transform, progress=False), batch_size=BATCH))
        read = Compose([Lambda(lambda row: squares[row][None]), *transform.transforms])
        on_disk = PersistentDataset(list(range(IMAGES)), read, cache_dir=folder)
        for row in range(IMAGES):
            on_disk[row]  # which writes it
        persistent = iter(DataLoader(on_disk, batch_size=BATCH))
        in_order = iter(EvalBatches(images, np.zeros((IMAGES, 5), np.float32), BATCH))
        rows = np.random.default_rng(0).permutation(IMAGES)
        return paired(
            {
                "chestfed, augmented": augmented.next,
                "chestfed, not augmented": plain.next,
                "chestfed, in order": lambda: next(in_order),
                "chestfed, 8 bits as read and checked": lambda: images.read(rows[:BATCH]),
                "OpenCV in a DataLoader, images in memory": lambda: next(films),
                "MONAI's CacheDataset in a DataLoader": lambda: next(monai),
                "MONAI's PersistentDataset in a DataLoader": lambda: next(persistent),
            },
            count=BATCH,
            unit="image",
        )


def measure_step() -> dict[str, Any]:
    """A local step of the default study: the network alone on tensors, and with its input, by threads."""
    found: dict[str, Any] = {}
    pipeline = load_pipeline(bundled("pipelines") / "source_addition_samples.yaml").resolve()
    size = pipeline.federated.batch_size
    with cached(128) as images:
        for threads, workers in ((1, 0), (1, 1), (2, 0), (2, 1)):
            torch.set_num_threads(threads)
            network = FlatModule(build_model(pipeline.model, 5, 1), channels_last=True)
            input_ = batches(images, pipeline.augment, size, workers)
            whole = NetworkClient("a", input_, network, CrossEntropy(torch.ones(5)), device=torch.device("cpu"))
            cases = {
                "whole step": _whole(whole, network.parameters()),
                "network": _alone(network, input_.next().images),
            }
            with whole.training(network.buffers()):
                found[f"{threads} threads of torch, {workers} of the loader"] = paired(
                    cases, unit="step", wall=True, repeats=15
                )
            whole.close()
    return found


def _whole(client: NetworkClient, weights: torch.Tensor) -> Callable[[], object]:
    return lambda: client(weights, weights[:0])


def _alone(network: FlatModule, images: torch.Tensor) -> Callable[[], object]:
    still = images.clone()
    return lambda: network.differentiate(network.module(still).square().mean())
