"""FashionMNIST from IDX files, compressed or not."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.opening import open_collection

TRAIN, TEST = [9, 0, 5], [1, 8]


def gray(number: int) -> np.ndarray:
    """uint8 `[28, 28]` in which every pixel of a row and column differs, and no transposition is the same."""
    return (np.arange(28)[:, None] * 2 + np.arange(28)[None, :] * 5 + number).astype(np.uint8)


def idx(values: np.ndarray) -> bytes:
    """An IDX file of bytes."""
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write(folder: Path, compressed: bool = True) -> Path:
    """The four published files."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, labels, first in (("train", TRAIN, 0), ("t10k", TEST, 50)):
        images = np.stack([gray(first + row) for row in range(len(labels))])
        for name, values in (("images-idx3", images), ("labels-idx1", np.array(labels))):
            data = idx(values)
            path = folder / f"{part}-{name}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(data) if compressed else data)
    return folder


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("below", [".", "raw", "FashionMNIST/raw"])
def test_images_and_labels_are_read_compressed_or_not(tmp_path: Path, compressed: bool, below: str) -> None:
    write(tmp_path / below, compressed)
    collection = open_collection("fashion_mnist", tmp_path)
    assert collection.class_names[0] == "T-shirt/top"
    assert collection.class_names[9] == "Ankle boot"
    assert len(collection.class_names) == 10
    assert collection.train.classes.tolist() == TRAIN
    assert collection.train.classes.dtype == np.int64
    for row in range(3):
        np.testing.assert_array_equal(collection.train.pixels.read(row), gray(row))
    assert collection.test is not None
    assert collection.test.classes.tolist() == TEST
    np.testing.assert_array_equal(collection.test.pixels.read(1), gray(51))


def test_an_empty_folder_names_a_file_and_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte\.gz: no such file.*zalandoresearch"):
        open_collection("fashion_mnist", tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (write(tmp_path) / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ConfigError, match=r"t10k-labels-idx1-ubyte\.gz: no such file"):
        open_collection("fashion_mnist", tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", gzip.compress(idx(gray(0)[None]))[:-20]])
def test_a_file_that_cannot_be_decompressed_is_refused(tmp_path: Path, content: bytes) -> None:
    (write(tmp_path) / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte\.gz: "):
        open_collection("fashion_mnist", tmp_path)


@pytest.mark.parametrize("cut", [1, 784])
def test_fewer_bytes_than_the_header_announces_are_refused(tmp_path: Path, cut: int) -> None:
    file = write(tmp_path, compressed=False) / "train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(ConfigError, match=rf"{3 * 784 - cut} bytes follow a header that announces 3 x 28 x 28"):
        open_collection("fashion_mnist", tmp_path)


def test_labels_in_place_of_images_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, compressed=False)
    (folder / "train-images-idx3-ubyte").write_bytes((folder / "train-labels-idx1-ubyte").read_bytes())
    with pytest.raises(ConfigError, match=r"train-images-idx3-ubyte: not an IDX file of bytes in 3 dimension"):
        open_collection("fashion_mnist", tmp_path)


def test_labels_of_another_part_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, compressed=False)
    (folder / "train-labels-idx1-ubyte").write_bytes((folder / "t10k-labels-idx1-ubyte").read_bytes())
    with pytest.raises(ConfigError, match=r"train-labels-idx1-ubyte: 2 labels for 3 images"):
        open_collection("fashion_mnist", tmp_path)


def test_a_label_out_of_range_is_refused(tmp_path: Path) -> None:
    (write(tmp_path, compressed=False) / "train-labels-idx1-ubyte").write_bytes(idx(np.array([9, 0, 10])))
    with pytest.raises(ConfigError, match=r"train-labels-idx1-ubyte: label 10 of image 3 is outside of 0\.\.9"):
        open_collection("fashion_mnist", tmp_path)
