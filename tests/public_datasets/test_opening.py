"""Opening a collection by its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from chestfed.core.errors import ConfigError
from chestfed.public_datasets.opening import COLLECTIONS, open_collection


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("CIFAR-10", "cifar10"), ("fashionmnist", "fashion_mnist"), ("cats-vs-dogs", "cats_vs_dogs"), ("stl", "stl10")],
)
def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path, typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown collection '{typed}'; did you mean '{meant}'\?"):
        open_collection(typed, tmp_path)


def test_a_name_like_none_is_answered_with_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"known collections: cifar10, cifar100, .*digits"):
        open_collection("zzzz", tmp_path)


@pytest.mark.parametrize("name", [name for name, entry in COLLECTIONS.items() if entry.needs_root])
def test_a_missing_root_says_where_to_get_the_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"nowhere: no such folder; get .*http.*|nowhere: .*get .*Kaggle"):
        open_collection(name, tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=f"collection '{name}' needs the folder of its files; get "):
        open_collection(name, None)


@pytest.mark.parametrize("name", [name for name, entry in COLLECTIONS.items() if entry.needs_root])
def test_an_empty_root_names_what_is_expected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r": no such file or folder; get "):
        open_collection(name, tmp_path)


def test_the_table_of_the_documentation_has_every_collection() -> None:
    page = (Path(__file__).parents[2] / "docs" / "collections.md").read_text(encoding="utf-8")
    assert [name for name in COLLECTIONS if f"| `{name}` |" not in page] == []


def test_every_collection_says_what_it_is_where_it_is_and_on_what_terms() -> None:
    assert all(entry.description and entry.source and entry.license for entry in COLLECTIONS.values())


def test_the_digits_need_no_folder() -> None:
    collection = open_collection("digits", None)
    stored = load_digits()
    assert collection.class_names == tuple("0123456789")
    assert collection.train.classes.tolist() == stored.target.tolist()
    assert collection.train.classes.dtype == np.int64
    assert len(collection.train.pixels) == 1797
    image = collection.train.pixels.read(5)
    assert image.dtype == np.uint8
    assert image.shape == (8, 8)
    np.testing.assert_allclose(image, stored.images[5] / 16 * 255, atol=0.5)
    assert max(collection.train.pixels.read(row).max() for row in range(20)) == 255
    assert collection.test is None
