"""Sites of which no image can be read, though others may be left out, and diseases with images of one class."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chestfed.core.errors import ConfigError
from chestfed.data.sites.table import SiteTable
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.training.data.clients import ClientData
from chestfed.studies.training.data.experiment import Experiment, load_images
from chestfed.studies.training.data.sites import OWN_TEST, TEST, TRAIN, UNUSED, StudySite, open_sites
from tests.cases import assert_refused
from tests.studies.training.tiny_studies import SETTINGS, read_rows

FILE = Path(__file__).parents[3] / "pipelines" / "source_addition_samples.yaml"


def without(hospitals: Path, folder: Path, lost: Callable[[tuple[StudySite, ...]], SiteTable]) -> Experiment:
    """The data of a study whose sites have lost the images of a table."""
    shutil.copytree(hospitals, folder / "hospitals")
    pipeline = load_pipeline(FILE, SETTINGS).resolve()
    rows = read_rows(pipeline, FILE, folder / "hospitals")
    table = lost(rows.sites)
    for image in set(table.frame["image"]):
        (table.root / image).write_bytes(b"")
    (data,) = load_images([rows], folder / "cache", skip_unreadable=True)
    return data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (lambda sites: sites[0].select(TEST), "the test images of chexpert"),
        (lambda sites: sites[1].select(TRAIN), "the training images of chestxray8"),
    ],
)
def test_part_without_readable_image_refused(
    lost: Callable[[tuple[StudySite, ...]], SiteTable], named: str, tiny_hospitals: Path, tmp_path: Path
) -> None:
    with assert_refused(ConfigError, "no readable image", parts=[named]):
        without(tiny_hospitals, tmp_path, lost)


@pytest.mark.slow
def test_unreadable_hospital_is_not_scored(tiny_hospitals: Path, tmp_path: Path) -> None:
    data = without(tiny_hospitals, tmp_path, lambda sites: sites[1].select(OWN_TEST))
    assert "chestxray8" in data.joins
    assert list(data.hospitals) == ["chexpert"]


def test_federation_member_has_no_test_set(tiny_hospitals: Path, tmp_path: Path) -> None:
    pipeline = load_pipeline(FILE, SETTINGS).resolve()
    site = open_sites(pipeline, FILE, tiny_hospitals)[1]
    rows = Experiment(pipeline, prepare_machine(pipeline.runtime), (site.move([OWN_TEST], UNUSED, "not scored"),))
    (data,) = load_images([rows], tmp_path / "cache")
    assert data.clients[0].training_rows > 0
    assert not len(data.test.labels)


def test_one_class_diseases_are_named() -> None:
    images: Any = SimpleNamespace(records=np.zeros(2))
    labels = [[1, 1, np.nan, 1], [1, 0, np.nan, 0]], [[0, np.nan, 0, 1], [1, np.nan, 0, 0]]
    clients = tuple(ClientData("", images, np.array(values), np.ones(2, int)) for values in labels)
    pipeline: Any = SimpleNamespace(tasks=("edema", "mass", "hernia", "nodule"))
    study = Experiment(pipeline, None, clients=clients)  # type: ignore[arg-type]
    assert study.find_lacking(1) == {"edema": "negatives", "hernia": "labels"}
    assert study.find_lacking(2) == {"hernia": "positives"}
