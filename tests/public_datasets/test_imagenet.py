"""ILSVRC2012 with `val` in class folders, or flat with the labels of the devkit."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from chestfed.core.errors import ConfigError, ImageError
from chestfed.public_datasets.collection import Part
from chestfed.public_datasets.opening import open_collection
from tests.public_datasets.pictures import quarters, save_jpeg

#: ILSVRC2012_ID -> WordNet id: the devkit's order is not the alphabetical one.
DEVKIT = {1: "n02119789", 2: "n02100735", 3: "n01440764", 4: "n02110185", 5: "n00001740"}
CLASSES = ("n01440764", "n02100735", "n02110185", "n02119789")
TRAIN = {"n02119789": (3, 20), "n02100735": (7,), "n01440764": (1, 9, 10), "n02110185": (5,)}
TRUTH = (2, 3, 1, 3, 4)


def shade(number: int) -> np.ndarray:
    """A gray of its own per image."""
    return np.full((16, 24, 3), number * 8, np.uint8)


def write_train(root: Path) -> None:
    """The folder train, and files that are not images beside them."""
    for folder, numbers in TRAIN.items():
        for number in numbers:
            save_jpeg(root / "train" / folder / f"{folder}_{number}.JPEG", shade(number))
    (root / "train" / "n02119789.tar").write_bytes(b"")
    (root / "train" / "n02119789" / "._n02119789_3.JPEG").write_bytes(b"")
    (root / "train" / "notes").mkdir()


def write_flat(root: Path) -> Path:
    """The folder val as it comes out of its archive, and the devkit."""
    for number in range(1, len(TRUTH) + 1):
        save_jpeg(root / "val" / f"ILSVRC2012_val_{number:08}.JPEG", shade(number))
    devkit = root / "ILSVRC2012_devkit_t12" / "data"
    devkit.mkdir(parents=True)
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{label}\n" for label in TRUTH))
    write_meta(devkit / "meta.mat")
    return devkit


def write_meta(path: Path) -> None:
    """The struct array `synsets` of the devkit, `[n, 1]`."""
    fields = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height")
    synsets = np.empty((len(DEVKIT), 1), [(field, object) for field in fields])
    for row, (number, wordnet) in enumerate(DEVKIT.items()):
        children = np.array([1, 2]) if number == 5 else np.array([])
        synsets[row, 0] = (float(number), wordnet, "kit fox", "a small fox", float(len(children)), children, 0.0)
    savemat(path, {"synsets": synsets})


def write_folders(root: Path) -> None:
    """The folder val, sorted into class folders."""
    for number, label in enumerate(TRUTH, start=1):
        save_jpeg(root / "val" / DEVKIT[label] / f"ILSVRC2012_val_{number:08}.JPEG", shade(number))


def shades(part: Part | None) -> list[int]:
    """The number of each image, told by its gray."""
    assert part is not None
    return [round(float(part.pixels.read(row).mean()) / 8) for row in range(len(part.pixels))]


def test_classes_are_numbered_by_sorted_wordnet_ids(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    collection = open_collection("imagenet", tmp_path)
    assert collection.class_names == CLASSES
    assert collection.train.classes.tolist() == [0, 0, 0, 1, 2, 3, 3]
    assert collection.train.classes.dtype == np.int64
    assert shades(collection.train) == [1, 9, 10, 7, 5, 3, 20]


def test_the_order_in_which_the_system_lists_folders_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_train(tmp_path)
    write_folders(tmp_path)
    scandir = os.scandir

    @contextlib.contextmanager
    def backwards(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            yield iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    monkeypatch.setattr(os, "scandir", backwards)
    collection = open_collection("imagenet", tmp_path)
    assert collection.class_names == CLASSES
    assert shades(collection.train) == [1, 9, 10, 7, 5, 3, 20]


def test_flat_validation_images_get_the_devkits_labels(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    test = open_collection("imagenet", tmp_path).test
    assert shades(test) == [1, 2, 3, 4, 5]
    assert test is not None
    assert [CLASSES[number] for number in test.classes] == [DEVKIT[label] for label in TRUTH]


def test_validation_images_in_class_folders_get_the_same_labels(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_folders(tmp_path)
    test = open_collection("imagenet", tmp_path).test
    assert test is not None
    by_image = dict(zip(shades(test), test.classes.tolist(), strict=True))
    assert {number: CLASSES[label] for number, label in by_image.items()} == {
        number: DEVKIT[label] for number, label in enumerate(TRUTH, start=1)
    }


def test_colors_are_in_the_order_red_green_blue(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    save_jpeg(tmp_path / "train/n01440764/n01440764_1.JPEG", quarters())
    image = open_collection("imagenet", tmp_path).train.pixels.read(0)
    assert np.abs(image.astype(int) - quarters()).max() <= 3


def test_a_damaged_image_is_told_when_it_is_read(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    (tmp_path / "train/n02110185/n02110185_5.JPEG").write_bytes(b"\xff\xd8\xff")
    pixels = open_collection("imagenet", tmp_path).train.pixels
    with pytest.raises(ImageError, match=r"^train/n02110185/n02110185_5\.JPEG: damaged"):
        pixels.read(4)


def test_progress_counts_folders_to_the_end(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_folders(tmp_path)
    told: list[tuple[int, int]] = []
    open_collection("imagenet", tmp_path, lambda done, total: told.append((done, total)))
    assert told == [(done, 8) for done in range(1, 9)]


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_part_is_named_with_the_archives(tmp_path: Path, part: str) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    shutil.rmtree(tmp_path / part)
    with pytest.raises(ConfigError, match=rf"{part}: no such file or folder.*ILSVRC2012_img_train\.tar"):
        open_collection("imagenet", tmp_path)


def test_train_without_class_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(ConfigError, match=r"train/n01440764: no such file or folder"):
        open_collection("imagenet", tmp_path)


def test_an_empty_class_folder_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    (tmp_path / "train" / "n99999999").mkdir()
    with pytest.raises(ConfigError, match=r"n99999999: no \.JPEG files"):
        open_collection("imagenet", tmp_path)


@pytest.mark.parametrize("file", ["meta.mat", "ILSVRC2012_validation_ground_truth.txt"])
def test_a_missing_file_of_the_devkit_is_named(tmp_path: Path, file: str) -> None:
    write_train(tmp_path)
    (write_flat(tmp_path) / file).unlink()
    with pytest.raises(ConfigError, match=rf"{file}: no such file.*ILSVRC2012_devkit_t12\.tar\.gz"):
        open_collection("imagenet", tmp_path)


def test_a_missing_validation_image_is_told(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    (tmp_path / "val" / "ILSVRC2012_val_00000003.JPEG").unlink()
    with pytest.raises(ConfigError, match=r"5 labels for the 4 images of .*number 3 is not there"):
        open_collection("imagenet", tmp_path)


def test_an_empty_val_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    (tmp_path / "val").mkdir()
    with pytest.raises(ConfigError, match=r"ILSVRC2012_val_00000001\.JPEG: no such file"):
        open_collection("imagenet", tmp_path)


def test_a_validation_image_of_another_name_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_flat(tmp_path)
    save_jpeg(tmp_path / "val" / "mine.JPEG", quarters())
    with pytest.raises(ConfigError, match=r"mine\.JPEG: not a name like"):
        open_collection("imagenet", tmp_path)


@pytest.mark.parametrize("label", ["0", "6", "-1", "fox"])
def test_a_label_that_the_devkit_does_not_know_is_refused_with_its_line(tmp_path: Path, label: str) -> None:
    write_train(tmp_path)
    file = write_flat(tmp_path) / "ILSVRC2012_validation_ground_truth.txt"
    file.write_text(f"2\n3\n{label}\n3\n4\n")
    with pytest.raises(ConfigError, match=rf"ground_truth\.txt:3: label '{label}' is not an ILSVRC2012_ID"):
        open_collection("imagenet", tmp_path)


def test_a_label_without_a_training_folder_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    file = write_flat(tmp_path) / "ILSVRC2012_validation_ground_truth.txt"
    file.write_text("2\n3\n5\n3\n4\n")
    with pytest.raises(ConfigError, match=r"ground_truth\.txt:3: class n00001740 has no folder"):
        open_collection("imagenet", tmp_path)


def test_a_validation_folder_of_an_unknown_class_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_folders(tmp_path)
    save_jpeg(tmp_path / "val/n09999999/a.JPEG", quarters())
    with pytest.raises(ConfigError, match=r"n09999999: the class has no folder in train"):
        open_collection("imagenet", tmp_path)


def test_val_both_flat_and_in_folders_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    write_folders(tmp_path)
    write_flat(tmp_path)
    with pytest.raises(ConfigError, match="both class folders and images"):
        open_collection("imagenet", tmp_path)


def test_a_damaged_meta_file_is_refused(tmp_path: Path) -> None:
    write_train(tmp_path)
    (write_flat(tmp_path) / "meta.mat").write_bytes(b"not matlab")
    with pytest.raises(ConfigError, match=r"meta\.mat: not the devkit's meta\.mat"):
        open_collection("imagenet", tmp_path)
