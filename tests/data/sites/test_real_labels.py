"""The paper's dataset table from the real label files, to three decimals."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from chestfed.data.sites import SiteTable, load_site_config, open_site
from chestfed.data.sites.partition import cut_into_clients, hold_out
from chestfed.data.sites.stats import dataset_table
from tests.data.sites.small_sites import CONFIGS

pytestmark = pytest.mark.real_data


@pytest.fixture
def data() -> Path:
    folder = Path(os.environ.get("CHESTFED_DATA") or CONFIGS.parent.parent / "shared" / "data")
    if not (folder / "labels").is_dir():
        pytest.skip("no real label files: set CHESTFED_DATA to the folder that holds labels/")
    return folder


def open_labels(data: Path, site: str, file: str, *overrides: str) -> SiteTable:
    return open_site(load_site_config(CONFIGS / f"{site}.yaml", overrides), data, data / "labels" / file)


@pytest.mark.parametrize(
    ("site", "file", "images", "rows", "ratios"),
    [
        ("chexpert", "chexpert_train.csv.gz", 191_027, 227_395, [0.2112, 0.3424, 0.1197, 0.3104, 0.4135]),
        ("chestxray8", "Data_Entry_2017_v2020.csv.gz", 112_120, 112_120, [0.0248, 0.0205, 0.0416, 0.1031, 0.1188]),
        ("paper/vindr", "vinbigdata-train.csv.gz", 15_000, 15_000, [0.1533, 0.0, 0.0235, 0.0124, 0.0688]),
    ],
)
def test_the_papers_table_comes_out(
    data: Path, site: str, file: str, images: int, rows: int, ratios: list[float]
) -> None:
    frame = dataset_table([open_labels(data, site, file)])
    diseases = ["cardiomegaly", "edema", "consolidation", "atelectasis", "pleural_effusion"]
    ours, paper = frame.iloc[-2], frame.iloc[-1]  # with repeated positives, where there are such
    assert (ours["part"], paper["part"]) == ("train, oversampled" if rows > images else "train", "paper")
    assert (ours["images"], ours["rows"]) == (images, rows)
    np.testing.assert_allclose(ours[diseases].astype(float), ratios, rtol=0, atol=0.00006)
    np.testing.assert_allclose(ours[diseases].astype(float), paper[diseases].astype(float), rtol=0, atol=0.00056)


def test_chexpert_has_its_own_ratios(data: Path) -> None:
    table = open_labels(
        data, "chexpert", "chexpert_train.csv.gz", "upsample.cardiomegaly=0", "upsample.consolidation=0"
    )
    np.testing.assert_allclose(table.positive_ratios(), [0.1224, 0.3219, 0.0680, 0.3119, 0.4026], rtol=0, atol=0.00006)


def test_chexpert_has_all_its_patients(data: Path) -> None:
    table = open_labels(data, "chexpert", "chexpert_train.csv.gz", "views=all")
    assert (len(table.frame), table.frame["patient"].nunique()) == (223_414, 64_540)


def test_a_majority_is_rarer_than_any(data: Path) -> None:
    table = open_labels(data, "vindr", "vinbigdata-train.csv.gz", "reader.raters=majority")
    ratios = [0.1211, np.nan, 0.0081, 0.0041, 0.0423]
    np.testing.assert_allclose(table.positive_ratios(), ratios, rtol=0, atol=0.00006)


def test_real_samples_share_the_config(data: Path) -> None:
    config = load_site_config(CONFIGS / "chestxray8.yaml").model_copy(update={"root": "chestxray8_sample"})
    table = open_site(config, data)
    assert (len(table.frame), table.frame["patient"].nunique()) == (684, 463)
    assert table.labels().sum(axis=0).tolist() == [14, 74, 27, 80, 71]
    assert all((table.root / image).is_file() for image in table.frame["image"])
    train, test = hold_out(table, 0.25, 1)
    for part in (test, *cut_into_clients(train, 4, 1)):
        assert (part.labels().sum(axis=0) >= 2).all()
