"""Batches: normalized as documented, seekable, every row as often as it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chestfed.data.images.augment import Augment, backward, warp_images
from chestfed.data.images.batches import EvalBatches, TrainBatches, Uploads, normalize

PLAIN = Augment(enabled=False)


@dataclass(frozen=True)
class Images:
    """Pictures of single gray level: row i is i everywhere."""

    records: np.ndarray

    def read(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows, np.uint8)[:, None, None] * np.ones((16, 16), np.uint8)


def batches(rows: int = 7, size: int = 3, **options: object) -> TrainBatches:
    labels = np.stack([np.arange(rows), np.full(rows, np.nan)], axis=1).astype(np.float32)
    settings = {"repeats": np.ones(rows, int), "augment": PLAIN, "workers": 0, "seed": 1, "name": "c", **options}
    images = settings.pop("images", Images(np.arange(rows)))
    return TrainBatches(images, labels, batch_size=size, **settings)  # type: ignore[arg-type]


def test_tensors_are_normalized_as_imagenet() -> None:
    gray = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5) * 6
    images = normalize(gray)
    assert images.shape == (2, 3, 4, 5)
    assert images.dtype == torch.float32
    for channel, (mean, std) in enumerate(((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))):
        np.testing.assert_allclose(images[:, channel].numpy(), (gray / 255 - mean) / std, atol=1e-5)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 20), st.integers(0, 3))
def test_a_position_gives_its_batches(rows: int, size: int, position: int, workers: int) -> None:
    run = batches(rows, size)
    for _ in range(position):
        run.next()
    there = batches(rows, size, workers=workers)
    there.next()
    there.seek(position)
    for _ in range(3):
        expected, batch = run.next(), there.next()
        assert torch.equal(expected.images, batch.images)
        assert torch.equal(expected.labels.nan_to_num(-1), batch.labels.nan_to_num(-1))
    there.close()
    assert there.position == position + 3


def test_an_epoch_has_every_row_as_repeated() -> None:
    repeats = np.array([1, 3, 1, 2, 1])
    images = Images(np.array([0, 1, -1, 3, 4]))
    train = batches(5, 7, repeats=repeats, images=images)  # 1 + 3 + 2 + 1: one epoch is one batch
    epochs = [train.next().labels[:, 0].tolist() for _ in range(4)]
    assert all(sorted(epoch) == [0, 1, 1, 1, 3, 3, 4] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_labels_belong_to_their_images() -> None:
    batch = batches(9, 9).next()
    gray = batch.images[:, 0, 0, 0] * 0.229 * 255 + 0.485 * 255
    torch.testing.assert_close(gray, batch.labels[:, 0], atol=1e-3, rtol=0)
    assert torch.isnan(batch.labels[:, 1]).all()


def test_clients_and_seeds_draw_differently() -> None:
    orders = {
        tuple(batches(9, 9, **option).next().labels[:, 0].tolist()) for option in ({}, {"name": "d"}, {"seed": 2})
    }
    assert len(orders) == 3


def test_a_client_without_images_is_refused() -> None:
    with pytest.raises(ValueError, match="client 'c' has no readable training image"):
        batches(2, 1, images=Images(np.array([-1, -1])))


def test_augmentation_depends_on_its_seed() -> None:
    picture = np.zeros((120, 120), np.uint8)
    picture[50:70, 50:70] = 255

    def affine(picture: np.ndarray, seed: int) -> np.ndarray:
        return Augment().apply(picture[None], [seed])[0]

    assert np.array_equal(affine(picture, 3), affine(picture, 3))
    assert np.array_equal(Augment().apply(picture[None].repeat(4, 0), [1, 2, 3, 4])[2], affine(picture, 3))
    centres, areas = [], []
    for seed in range(60):
        moved = affine(picture, seed).astype(float)
        rows, columns = np.nonzero(moved > 127)
        centres.append((rows.mean() - 59.5, columns.mean() - 59.5))
        areas.append(np.sqrt(moved.sum() / 255) / 20)
    assert np.abs(centres).max() <= 0.05 * 120 + 1.5
    assert np.abs(centres).max() > 3
    assert 0.93 < min(areas) < 0.98
    assert 1.02 < max(areas) < 1.07
    assert np.array_equal(PLAIN.apply(picture[None], [3])[0], picture)


@pytest.mark.parametrize("fill", [0, 128])
@pytest.mark.parametrize(("shape", "flip"), [((64, 64), False), ((48, 80), True), ((48, 80, 3), True)])
def test_gpu_augments_as_albumentations(shape: tuple[int, ...], flip: bool, fill: int) -> None:
    rng = np.random.default_rng(0)
    images = np.stack([cv2.GaussianBlur(rng.integers(0, 256, shape, np.uint8), (0, 0), 2) for _ in range(8)])
    augment, seeds = Augment(flip=flip, fill=fill), range(8)
    expected = augment.apply(images, seeds)
    back = torch.from_numpy(backward(augment.maps(seeds, *shape[:2]), *shape[:2]))
    moved = warp_images(torch.from_numpy(images), back, fill)
    assert np.abs(expected.astype(float) - images).mean() > 5
    assert np.abs(moved.numpy() - expected).max() < 0.6  # gray levels: albumentations rounds
    assert (expected[0] == fill).sum() > 100  # a shift or a turn leaves an outside


def test_a_buffer_waits_for_its_copy() -> None:
    seen: list[int] = []

    class Event:
        """A CUDA event on paper: it looks at the first buffer when it is waited for."""

        def synchronize(self) -> None:
            seen.append(int(uploads._buffers[0][0][0]))

    uploads = Uploads(2, torch.device("cpu"), Event)
    for slot, number in ((0, 7), (1, 8), (0, 9)):
        uploads.pack(slot, (np.array([number]),))
        assert int(uploads.send(slot)[0]) == number
    assert seen == [7]


def test_evaluation_keeps_the_order_of_rows() -> None:
    images: Any = Images(np.arange(5))
    labels, seen = [], []
    for batch in EvalBatches(images, np.arange(5.0)[:, None], 2):
        labels.append(batch.labels[:, 0].tolist())
        seen.append(batch.images.clone())  # the next batch is written over it
    assert labels == [[0, 1], [2, 3], [4]]
    assert torch.equal(torch.cat(seen), normalize(images.read(range(5))))
