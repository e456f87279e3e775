"""Images of several clients in one place."""

from __future__ import annotations

import numpy as np

from chestfed.data.images.augment import Augment
from chestfed.data.images.batches import PooledImages, TrainBatches
from chestfed.data.images.database import pack_keys


class Few:
    """Images that are all of single gray level per row; a level of 0 stands for an unreadable one."""

    def __init__(self, levels: list[int]) -> None:
        self.levels = levels
        self.records = np.array([-1 if level == 0 else 5 for level in levels])
        self.digests = pack_keys([bytes([level]) * 16 for level in levels])

    def read(self, rows: np.ndarray) -> np.ndarray:
        return np.array(self.levels, np.uint8)[rows][:, None, None] * np.ones((4, 4), np.uint8)


def test_rows_are_those_of_the_parts() -> None:
    pool = PooledImages([Few([1, 0, 3]), Few([4]), Few([5, 6])])
    assert (pool.records >= 0).tolist() == [True, False, True, True, True, True]
    assert [int(pool.read([row])[0, 0, 0]) for row in (0, 2, 3, 4, 5)] == [1, 3, 4, 5, 6]
    assert [digest[0] for digest in pool.digests.tolist()] == [1, 0, 3, 4, 5, 6]


def test_a_pooled_epoch_sees_every_image() -> None:
    pool = PooledImages([Few([1, 0, 3]), Few([4])])
    labels = np.array([[0], [1], [1], [0]], np.float32)
    batches = TrainBatches(
        pool, labels, np.ones(4, int), batch_size=3, seed=1, name="pool", augment=Augment(enabled=False), workers=0
    )
    assert sorted(batches.select_rows(0).tolist()) == [0, 2, 3]
