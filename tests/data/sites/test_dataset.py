"""A site in Python: its table, and a dataset that anybody's `DataLoader` takes."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import chestfed
from chestfed.core.errors import ConfigError, SiteError
from chestfed.data.images.batches import EvalBatches
from chestfed.data.images.cache import fill_cache
from chestfed.data.images.preprocess import Preprocess
from tests.cases import assert_refused
from tests.data.sites import own_tables
from tests.data.sites.own_tables import save_rows, wide
from tests.data.sites.small_sites import CONFIGS

VIEWS = ("PA", "AP", "lateral", "PA")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of 80 images of 20 patients; a few labels are missing."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "site").mkdir()
    generator, rows = np.random.default_rng(1), []
    for number in range(80):
        Image.fromarray(generator.integers(0, 255, (36, 40), dtype=np.uint8)).save(folder / f"site/{number}.png")
        values = [1, 0, "" if number % 3 else 1, 0, number % 2]
        patient, split = f"Doe-{99 - number // 4}", "test" if number >= 72 else "train"
        rows.append(wide(number, *values, MRN=patient, Projection=VIEWS[number % 4], Set=split))
    save_rows(folder / "site/labels.csv", rows)
    own_tables.config(folder, {})
    return folder


@pytest.fixture(scope="module")
def site(home: Path) -> chestfed.Site:
    return chestfed.load_site(home / "site.yaml", data=home, cache=home / "cache")


def test_a_site_has_config_and_table(site: chestfed.Site) -> None:
    assert (site.name, len(site.diseases), len(site.table)) == ("st-example", 5, 80)
    assert site.config.reader.name == "table"
    assert site.table["split"].value_counts().to_dict() == {"train": 72, "test": 8, "valid": 0}


def test_a_dataset_is_that_of_training(site: chestfed.Site) -> None:
    dataset = site.dataset("train", size=32)
    table = site.site_table.select("train")
    images = fill_cache(table, site.cache, Preprocess(size=32))
    batch = next(iter(EvalBatches(images, table.labels(), 72)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = [dataset[index] for index in range(len(dataset))]
    assert torch.equal(torch.stack([image for image, _ in pairs]), batch.images)
    assert torch.equal(torch.stack([labels for _, labels in pairs]).isnan(), batch.labels.isnan())
    assert np.array_equal(dataset.labels, batch.labels.numpy(), equal_nan=True)
    assert (pairs[0][0].shape, pairs[0][0].dtype, pairs[0][1].shape) == ((3, 32, 32), torch.float32, (5,))


def test_patients_are_numbers_of_all_splits(site: chestfed.Site) -> None:
    everything = site.dataset("all", size=32)
    train, test = site.dataset("train", size=32), site.dataset("test", size=32)
    assert len(everything) == len(train) + len(test) == 80
    assert set(train.patients.tolist()) & set(test.patients.tolist()) == set()
    assert everything.patients.tolist() == [number // 4 for number in range(80)]
    assert site.table["image"].to_numpy()[test.rows].tolist() == [f"{number}.png" for number in range(72, 80)]
    assert b"Doe" not in pickle.dumps(everything)
    assert "Doe" not in repr(site) + repr(site.site_table)


def test_views_are_chosen(site: chestfed.Site) -> None:
    assert len(site.dataset("all", size=32, views="frontal")) == 60
    assert len(site.dataset("all", size=32, views=["lateral"])) == 20
    for arguments in ({"split": "tset"}, {"views": "front"}, {"split": "valid"}, {"size": 20}):
        with pytest.raises(ConfigError):
            site.dataset(**{"size": 32, **arguments})  # type: ignore[arg-type]


@pytest.mark.slow
def test_forked_and_spawned_loaders_agree(site: chestfed.Site) -> None:
    dataset = site.dataset("test", size=32)
    alone = [dataset[index][0] for index in range(8)]
    for start in ("fork", "spawn"):
        loader = DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context=start)
        assert torch.equal(torch.cat([images for images, _ in loader]), torch.stack(alone)), start


def test_augmentation_is_seeded(site: chestfed.Site) -> None:
    plain, augmented = site.dataset("test", size=32), site.dataset("test", size=32, augment=True)
    torch.manual_seed(1)
    first, second = augmented[0][0], pickle.loads(pickle.dumps(augmented))[0][0]
    torch.manual_seed(1)
    assert torch.equal(augmented[0][0], first)
    assert not torch.equal(first, second)
    assert not torch.equal(first, plain[0][0])


def test_unreadable_images_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    Image.fromarray(np.eye(40, dtype=np.uint8) * 200).save(tmp_path / "site/2.png")
    save_rows(tmp_path / "site/labels.csv", [wide(1), wide(2, 1, 1, 1, 1, 1)])
    own_tables.config(tmp_path, {})
    site = chestfed.load_site(tmp_path / "site.yaml", data=tmp_path, cache=tmp_path / "cache")
    with pytest.raises(SiteError):
        site.dataset(size=32)
    dataset = site.dataset(size=32, skip_unreadable=True)
    assert (len(dataset), dataset.rows.tolist(), dataset[0][1].tolist()) == (1, [1], [1.0] * 5)


def test_where_the_files_are_must_be_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    with assert_refused(ConfigError, "no data root"):
        chestfed.load_site(home / "site.yaml")
    monkeypatch.setenv("CHESTFED_DATA", str(home))
    assert len(chestfed.load_site(home / "site.yaml", overrides=["views=[lateral]"]).table) == 20


def test_the_example_in_the_docs_runs(tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (CONFIGS.parent / "docs" / "images.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "hospitals").symlink_to(tiny_hospitals)
    (tmp_path / "site_configs").symlink_to(CONFIGS)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/images.md", "exec"), names)
    assert names["images"].shape[1:] == (3, 320, 320)
    assert names["labels"].shape[1:] == (5,)


def test_sizes_splits_and_transforms_are_as_written(site: chestfed.Site) -> None:
    doubled = site.dataset("training", size=(32, 32), transform=lambda image: image * 2)  # type: ignore[arg-type]
    plain = site.dataset("train", size=32)
    assert torch.equal(doubled[0][0], plain[0][0] * 2)
    assert len(doubled) == len(plain)
    assert "72 images of 18 patients" in repr(plain)
    for size in ((32, 64), 31, 32.5, "32", (32, 32, 32)):
        with assert_refused(ConfigError, "not a size", key="size"):
            site.dataset("train", size=size)  # type: ignore[arg-type]


def test_errors_name_arguments_of_python(tmp_path: Path, home: Path) -> None:
    with pytest.raises(SiteError) as caught:
        chestfed.load_site(home / "site.yaml", data=tmp_path / "nowhere")
    assert "data=" in str(caught.value)
    assert "--data" not in str(caught.value)
