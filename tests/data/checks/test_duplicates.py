"""Copies are found to the bit, near ones all of them, and two patients' films are never taken for one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chestfed.core.randomness import numpy_stream
from chestfed.data.checks.duplicates import NEAR, choose_limit, find_first, near_pairs
from chestfed.data.checks.facts import HASH_BYTES, HASHES, near_hashes
from chestfed.data.images.decode import decode
from chestfed.data.images.preprocess import Preprocess
from tests.cases import each


def apart(hashes: np.ndarray) -> np.ndarray:
    """Bits in which any two hashes differ, int `[n, n]`."""
    bits = np.unpackbits(hashes, axis=1).astype(np.int64)
    return bits @ (1 - bits).T + (1 - bits) @ bits.T


def test_first_row_with_picture_is_found() -> None:
    assert find_first(np.array([b"b", b"a", b"b", b"c", b"a"], "S16")).tolist() == [0, 1, 0, 3, 1]


@each("limit", [NEAR, 0, 8, 15, 16, 31])
@each("count", [1, 3])
def test_exactly_the_near_pairs_are_found(limit: int, count: int) -> None:
    """Also among pairs that differ in as many bits as may be, dealt to the bands evenly or at random."""
    generator = np.random.default_rng([limit, count])
    hashes = generator.integers(0, 256, (500, count, 32), dtype=np.uint8)
    order = numpy_stream(0, "bands of perceptual hashes").permutation(256)
    for place in range(200):
        bits = np.unpackbits(hashes[place, 0])
        even = order[generator.permutation(16)[np.arange(limit) % 16] * 16 + np.arange(limit) // 16]
        changed = generator.choice(256, generator.integers(0, limit + 4), replace=False) if place % 2 else even
        bits[changed] ^= 1
        hashes[place + 300, generator.integers(count)] = np.packbits(bits)
    hashes[299] = hashes[298]
    flat = hashes.reshape(-1, 32)
    ordered = apart(flat)[::count].reshape(500, 500, count).min(axis=2)
    distance = np.minimum(ordered, ordered.T)
    expected = np.argwhere(np.triu(distance <= limit, 1))
    pairs, bits_apart = near_pairs(hashes, limit)
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_array_equal(bits_apart, distance[tuple(expected.T)])


def test_equal_hashes_pair_with_first() -> None:
    pairs, bits = near_pairs(np.zeros((2000, 3, 32), np.uint8))
    assert pairs.tolist() == [[0, place] for place in range(1, 2000)]
    assert not bits.any()


def test_no_hash_has_no_pair() -> None:
    pairs, bits = near_pairs(np.zeros((0, 3, 32), np.uint8))
    assert (pairs.shape, bits.shape) == ((0, 2), (0,))


def hash_film(square: np.ndarray) -> np.ndarray:
    return np.frombuffer(near_hashes(square), np.uint8).reshape(HASHES, HASH_BYTES)


def films(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".png", ".jpg", ".dicom"))


@pytest.mark.slow
def test_copies_are_near_phantoms_not(tiny_hospitals: Path) -> None:
    preprocess = Preprocess()
    hashes = np.array([hash_film(preprocess.apply(decode(film))) for film in films(tiny_hospitals)])
    assert len(hashes) > 200
    assert len(near_pairs(hashes, choose_limit(synthetic=True))[0]) == 0
    for place, film in enumerate(films(tiny_hospitals)[::20]):
        gray = decode(film)
        half = np.asarray(Image.fromarray(gray).resize((gray.shape[1] // 2, gray.shape[0] // 2), Image.Resampling.BOX))
        darker = (255 * (gray / 255) ** 0.8).astype(np.uint8)
        turned = [np.asarray(Image.fromarray(gray).rotate(degrees, Image.Resampling.BICUBIC)) for degrees in (-4, 4)]
        for copy in (half, darker, *turned):
            copied = hash_film(preprocess.apply(copy))
            assert len(near_pairs(np.stack([hashes[20 * place], copied]))[0]) == 1


@pytest.mark.real_data
def test_no_two_patients_real_films_are_near() -> None:
    folder = Path(os.environ.get("CHESTFED_DATA", "/nowhere")) / "chestxray8_sample" / "images"
    if not folder.is_dir():
        pytest.skip("no real films: set CHESTFED_DATA to the folder that holds chestxray8_sample/")
    names = films(folder)[::2]
    preprocess = Preprocess()
    hashes = np.array([hash_film(preprocess.apply(decode(film))) for film in names])
    patients = [film.name.split("_")[0] for film in names]
    assert all(patients[image] == patients[other] for image, other in near_pairs(hashes)[0])
