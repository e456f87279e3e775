"""STL-10 from files in the published layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.opening import open_collection
from tests.public_datasets.pictures import distinct

NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
TRAIN, TEST = [1, 10, 4], [2, 7]


def write(root: Path) -> Path:
    """The folder of stl10_binary.tar.gz: each plane is stored column by column."""
    folder = root / "stl10_binary"
    folder.mkdir()
    (folder / "class_names.txt").write_text("\n".join(NAMES) + "\n")
    for part, labels, first in (("train", TRAIN, 0), ("test", TEST, 30)):
        data = b""
        for number in range(first, first + len(labels)):
            picture = distinct(number, 96, 96)
            data += b"".join(picture[:, column, channel].tobytes() for channel in range(3) for column in range(96))
        (folder / f"{part}_X.bin").write_bytes(data)
        (folder / f"{part}_y.bin").write_bytes(bytes(labels))
    return folder


@pytest.mark.parametrize("below", [True, False])
def test_images_stand_upright_and_labels_start_at_zero(tmp_path: Path, below: bool) -> None:
    folder = write(tmp_path)
    collection = open_collection("stl10", tmp_path if below else folder)
    assert collection.class_names == tuple(NAMES)
    assert collection.train.classes.tolist() == [0, 9, 3]
    assert collection.train.classes.dtype == np.int64
    for row in range(3):
        np.testing.assert_array_equal(collection.train.pixels.read(row), distinct(row, 96, 96))
    assert collection.test is not None
    assert collection.test.classes.tolist() == [1, 6]
    np.testing.assert_array_equal(collection.test.pixels.read(1), distinct(31, 96, 96))


def test_an_empty_folder_names_the_file_and_the_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train_X\.bin: no such file.*stl10_binary\.tar\.gz"):
        open_collection("stl10", tmp_path)


@pytest.mark.parametrize("file", ["train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "class_names.txt"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    (write(tmp_path) / file).unlink()
    with pytest.raises(ConfigError, match=rf"{file}: no such file"):
        open_collection("stl10", tmp_path)


def test_a_file_cut_off_within_an_image_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path) / "test_X.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"test_X\.bin: 55295 bytes is not a whole number of records of 27648 bytes"):
        open_collection("stl10", tmp_path)


def test_a_file_cut_off_between_images_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path) / "test_X.bin"
    file.write_bytes(file.read_bytes()[:27648])
    with pytest.raises(ConfigError, match=r"test_y\.bin: 2 labels for 1 images"):
        open_collection("stl10", tmp_path)


@pytest.mark.parametrize("label", [0, 11])
def test_a_label_out_of_range_is_refused(tmp_path: Path, label: int) -> None:
    (write(tmp_path) / "train_y.bin").write_bytes(bytes([1, label, 4]))
    with pytest.raises(ConfigError, match=rf"train_y\.bin: label {label} of image 2 is outside of 1\.\.10"):
        open_collection("stl10", tmp_path)


def test_class_names_of_another_number_are_refused(tmp_path: Path) -> None:
    (write(tmp_path) / "class_names.txt").write_text("airplane\n")
    with pytest.raises(ConfigError, match=r"class_names\.txt: expected the names of 10 classes"):
        open_collection("stl10", tmp_path)
