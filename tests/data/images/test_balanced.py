"""Batches with a fixed number of positives: what is in them, how often, and that a position gives its batch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from chestfed.data.images.augment import Augment
from chestfed.data.images.balanced import BalancedBatches, draw_rows
from tests.cases import each
from tests.data.images.test_batches import Images

NAN = float("nan")


def batches(labels: object, size: int = 4, positives: int = 2, **options: object) -> BalancedBatches:
    table = np.array(labels, np.float32)
    records = options.pop("records", np.arange(len(table)))
    settings = {"repeats": np.ones(len(table), int), "workers": 0, "seed": 1, "name": "c", **options}
    about = {"batch_size": size, "positives": positives, "augment": Augment(enabled=False), **settings}
    return BalancedBatches(Images(np.asarray(records)), table, **about)


#: Of the third disease there are no positives, of the fourth no labels.
FOUR = [[1, 0, 0, NAN], [0, 1, 0, NAN], [0, NAN, NAN, NAN], [0, 0, 0, NAN], [1, 1, 0, NAN], [0, 0, NAN, NAN]] * 3


@each("size, positives", [(4, 2), (8, 1), (6, 5), (40, 20)])
def test_batches_are_about_one_disease(size: int, positives: int) -> None:
    train, table = batches(FOUR, size, positives), np.array(FOUR)
    diseases = Counter[int]()
    for _ in range(60):
        batch = train.next()
        (disease,) = np.flatnonzero((~torch.isnan(batch.labels)).any(dim=0).numpy())
        labels = batch.labels[:, disease].tolist()
        assert Counter(labels) == {1.0: positives, 0.0: size - positives}
        assert labels == table[batch.rows.numpy(), disease].tolist()
        diseases[int(disease)] += 1
    assert set(diseases) == {0, 1}
    assert min(diseases.values()) > 15


def test_every_image_of_a_class_comes_alike() -> None:
    labels = np.array([[1]] * 5 + [[0]] * 20 + [[NAN]] * 5)
    repeats = np.where(np.arange(30) == 3, 3, 1)
    train, count = batches(labels, 8, 2, repeats=repeats, records=np.arange(30) - 30 * (np.arange(30) == 7)), Counter()
    for _ in range(4000):
        rows = train.next().rows.tolist()
        count.update(rows)
    assert 7 not in count
    assert max(count) < 25
    for row in range(5):  # 7 entries of the list, 2 in every batch
        assert count[row] / 4000 == pytest.approx(2 / 7 * repeats[row], abs=0.035)
    for row in (5, 6, *range(8, 25)):
        assert count[row] / 4000 == pytest.approx(6 / 19, abs=0.035)


def test_images_repeat_only_where_too_few() -> None:
    draw = np.random.default_rng(1)
    assert sorted(draw_rows(draw, np.arange(5), 5)) == [0, 1, 2, 3, 4]
    assert max(Counter(draw_rows(draw, np.arange(5), 4)).values()) == 1
    assert sorted(Counter(draw_rows(draw, np.arange(3), 8).tolist()).values()) == [2, 3, 3]


@each("workers", [0, 3])
def test_a_position_gives_its_batch(workers: int) -> None:
    run, there = batches(FOUR), batches(FOUR, workers=workers)
    for _ in range(5):
        run.next()
    there.next()
    there.seek(5)
    for _ in range(4):
        expected, batch = run.next(), there.next()
        assert torch.equal(expected.images, batch.images)
        assert torch.equal(expected.rows, batch.rows)
        assert torch.equal(expected.labels.nan_to_num(-1), batch.labels.nan_to_num(-1))
    there.close()


def test_clients_and_seeds_draw_their_own() -> None:
    drawn = {tuple(batches(FOUR, 6, 3, **options).next().rows.tolist()) for options in ({}, {"name": "d"}, {"seed": 2})}
    assert len(drawn) == 3


def test_impossible_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="no disease with both classes"):
        batches([[0, 1], [0, NAN]])
    for positives in (0, 4):
        with pytest.raises(ValueError, match="positives in a batch of 4"):
            batches(FOUR, 4, positives)
    with pytest.raises(TypeError):
        next(batches(FOUR).whole())
