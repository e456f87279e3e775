"""Cats vs. Dogs in Microsoft's and in Kaggle's layout, with the defects of the published archive."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.collection import Collection
from chestfed.public_datasets.opening import open_collection
from tests.public_datasets.pictures import quarters, save_jpeg

CATS, DOGS = (0, 2, 10, 666), (1, 9, 100, 11702)


def shade(number: int) -> np.ndarray:
    """A gray of its own per image, of its own size."""
    return np.full((16, 24 + number % 7, 3), number % 200 + 20, np.uint8)


def write_microsoft(root: Path) -> Path:
    """PetImages, with the two empty files and the thumbnails of a file browser."""
    for name, numbers in (("Cat", CATS), ("Dog", DOGS)):
        folder = root / "PetImages" / name
        for number in numbers:
            save_jpeg(folder / f"{number}.jpg", shade(number))
        (folder / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (root / "PetImages/Cat/666.jpg").write_bytes(b"")
    (root / "PetImages/Dog/11702.jpg").write_bytes(b"")
    (root / "readme[1].txt").write_text("readme")
    return root / "PetImages"


def write_kaggle(root: Path) -> Path:
    """The folder train of Kaggle's competition."""
    for name, numbers in (("cat", CATS), ("dog", DOGS)):
        for number in numbers:
            save_jpeg(root / "train" / f"{name}.{number}.jpg", shade(number))
    return root / "train"


def shades(collection: Collection) -> list[int]:
    """The gray of each image."""
    pixels = collection.train.pixels
    return [round(float(pixels.read(row).mean())) for row in range(len(pixels))]


@pytest.mark.parametrize("below", [True, False])
def test_microsofts_folders_are_read_in_the_order_of_the_numbers(tmp_path: Path, below: bool) -> None:
    folder = write_microsoft(tmp_path)
    collection = open_collection("cats_vs_dogs", tmp_path if below else folder)
    assert collection.class_names == ("cat", "dog")
    assert collection.train.classes.tolist() == [0, 0, 0, 1, 1, 1]
    assert collection.train.classes.dtype == np.int64
    assert shades(collection) == [int(shade(number)[0, 0, 0]) for number in (0, 2, 10, 1, 9, 100)]
    assert collection.test is None


def test_the_empty_files_are_counted_and_thumbnails_are_not(tmp_path: Path) -> None:
    write_microsoft(tmp_path)
    collection = open_collection("cats_vs_dogs", tmp_path)
    found = [(problem.kind, problem.file, problem.message) for problem in collection.unreadable]
    assert found == [
        ("damaged image", "PetImages/Cat/666.jpg", "the file is empty (0 bytes)"),
        ("damaged image", "PetImages/Dog/11702.jpg", "the file is empty (0 bytes)"),
    ]


def test_a_file_that_is_no_jpeg_is_counted(tmp_path: Path) -> None:
    (write_microsoft(tmp_path) / "Dog" / "9.jpg").write_bytes(b"GIF89a")
    collection = open_collection("cats_vs_dogs", tmp_path)
    assert [str(problem) for problem in collection.unreadable if "not" in problem.message] == [
        "PetImages/Dog/9.jpg: not a JPEG file"
    ]
    assert len(collection.train.pixels) == len(collection.train.classes) == 5


def test_an_image_that_cannot_be_read_now_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_microsoft(tmp_path)
    opened = Path.open

    def failing(path: Path, *how: str) -> object:
        if path.name == "9.jpg":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return opened(path, *how)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(OSError, match="Input/output error"):
        open_collection("cats_vs_dogs", tmp_path)


@pytest.mark.parametrize("below", [True, False])
def test_kaggles_folder_is_read_in_the_same_order(tmp_path: Path, below: bool) -> None:
    folder = write_kaggle(tmp_path)
    collection = open_collection("cats_vs_dogs", tmp_path if below else folder)
    assert collection.train.classes.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert shades(collection) == [int(shade(number)[0, 0, 0]) for number in (*CATS, *DOGS)]
    assert collection.unreadable == ()


def test_an_image_whose_name_tells_no_class_is_counted(tmp_path: Path) -> None:
    save_jpeg(write_kaggle(tmp_path) / "bird.1.jpg", quarters())
    collection = open_collection("cats_vs_dogs", tmp_path)
    assert [(problem.kind, problem.file) for problem in collection.unreadable] == [
        ("image without a class", "train/bird.1.jpg")
    ]
    assert len(collection.train.pixels) == 8


def test_colors_are_in_the_order_red_green_blue(tmp_path: Path) -> None:
    save_jpeg(write_kaggle(tmp_path) / "cat.0.jpg", quarters())
    image = open_collection("cats_vs_dogs", tmp_path).train.pixels.read(0)
    assert np.abs(image.astype(int) - quarters()).max() <= 3


def test_progress_ends_with_all_files(tmp_path: Path) -> None:
    write_microsoft(tmp_path)
    told: list[tuple[int, int]] = []
    open_collection("cats_vs_dogs", tmp_path, lambda done, total: told.append((done, total)))
    assert told[-1] == (8, 8)


def test_an_empty_folder_names_the_expected_one_and_the_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PetImages/Cat: no such file or folder.*kagglecatsanddogs_5340\.zip"):
        open_collection("cats_vs_dogs", tmp_path)


def test_a_folder_of_cats_only_is_refused(tmp_path: Path) -> None:
    save_jpeg(tmp_path / "PetImages/Cat/1.jpg", quarters())
    with pytest.raises(ConfigError, match=r"PetImages/Dog: no such file or folder"):
        open_collection("cats_vs_dogs", tmp_path)
    (tmp_path / "PetImages/Dog").mkdir()
    with pytest.raises(ConfigError, match=r"PetImages/Dog: no \.jpg files"):
        open_collection("cats_vs_dogs", tmp_path)


def test_kaggles_cats_without_dogs_are_refused(tmp_path: Path) -> None:
    save_jpeg(tmp_path / "train/cat.0.jpg", quarters())
    with pytest.raises(ConfigError, match=r"train/dog\.0\.jpg: no such file"):
        open_collection("cats_vs_dogs", tmp_path)
