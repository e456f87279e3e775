"""What two sites of a study share is found before training."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from chestfed.core.errors import ConfigError
from chestfed.data.images.preprocess import Preprocess
from chestfed.data.sites.table import SiteTable
from chestfed.studies.experiment.data import Overlap, SiteEntry
from chestfed.studies.experiment.device import prepare_machine
from chestfed.studies.experiment.loading import load_pipeline
from chestfed.studies.experiment.resolved import identity
from chestfed.studies.training.data.experiment import Experiment, load_images
from chestfed.studies.training.data.overlap import SiteOverlap
from chestfed.studies.training.data.sites import TEST, TRAIN, UNUSED, StudySite
from tests.cases import assert_refused
from tests.studies.training.test_held_out import PIPELINE

#: Of a site as one client.
ENTRY = SiteEntry(config="site.yaml")


def site(folder: Path, name: str, count: int = 6, patients: str = "") -> SiteTable:
    """Two images per patient: the first two patients train, the last one is scored."""
    root = folder / name
    root.mkdir()
    levels = np.random.default_rng(list(name.encode())).integers(0, 256, (count, 40, 40), dtype=np.uint8)
    for number, gray in enumerate(levels):
        Image.fromarray(gray).save(root / f"{number}.png")
    owners = [f"{patients or name}{number // 2}" for number in range(count)]
    frame = pd.DataFrame({"image": [f"{number}.png" for number in range(count)], "row": range(2, count + 2)})
    frame = frame.assign(patient=owners, study=owners, view="pa", inverted=False, repeats=1, edema=np.float32(0))
    frame = frame.assign(sex="F", age=np.float32(np.nan)).astype({"view": "category", "sex": "category"})
    return SiteTable(name, name, root, True, ("edema",), frame)


def load(folder: Path, *sites: SiteTable, **overlap: object) -> tuple[list[list[int]], list[object]]:
    """Label rows that each client keeps, by records; then the pairs that share something."""
    pipeline = (
        load_pipeline(PIPELINE)
        .resolve()
        .model_copy(update={"overlap": Overlap.model_validate(overlap), "preprocess": Preprocess(size=32)})
    )
    studied = []
    for number, table in enumerate(sites):
        roles = [TRAIN] * 4 + [UNUSED if number else TEST] * 2
        splits = ["train"] * 4 + ["test"] * 2
        frame = table.frame.assign(role=roles, client=[table.name] * 4 + [""] * 2, split=splits, reason="")
        studied.append(StudySite(ENTRY, table.with_frame(frame), 1, table.diseases, (table.name,), {}))
    rows = Experiment(pipeline, prepare_machine(pipeline.runtime), tuple(studied))
    (data,) = load_images([rows], folder / "cache")
    for study in data.sites:
        moved = study.table.frame["reason"] != ""
        assert (study.table.frame["role"][moved] == UNUSED).all()
    return [(client.images.records - 1).tolist() for client in data.clients], [  # the cache counts from 1
        (pair.sites, pair.pictures, pair.patients, pair.rows_left_out) for pair in data.shared
    ]


def copy(source: SiteTable, row: int, target: SiteTable, other: int) -> None:
    with Image.open(source.root / f"{row}.png") as picture:
        picture.convert("RGB").save(target.root / f"{other}.png", compress_level=0)


def test_nothing_shared_changes_nothing(tmp_path: Path) -> None:
    north, south = site(tmp_path, "one", patients="p"), site(tmp_path, "two", patients="p")
    for table in (north, south):
        Image.new("L", (40, 40), 9).save(table.root / "0.png")
    assert load(tmp_path, north, south) == ([[0, 1, 2, 3], [0, 1, 2, 3]], [])


def test_shared_image_refused_without_names(tmp_path: Path) -> None:
    north, south = site(tmp_path, "one"), site(tmp_path, "two")
    copy(north, 0, south, 3)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, north, south)
    text = str(caught.value)
    assert "one and two: 1 pictures, 1 patients" in text
    assert re.search(r"picture [0-9a-f]{32}: row 2 and row 5", text)
    assert "overlap.found: drop" in text
    assert not re.search(r"\.png|one0|two1", text)


def test_shared_patient_dropped_at_one_site(tmp_path: Path) -> None:
    north, south = site(tmp_path, "one"), site(tmp_path, "two")
    copy(north, 0, south, 3)
    assert load(tmp_path, north, south, found="drop") == ([[0, 1, 2, 3], [0, 1]], [(("one", "two"), 1, 1, 2)])


def test_scored_images_stay(tmp_path: Path) -> None:
    north, south = site(tmp_path, "one"), site(tmp_path, "two")
    copy(north, 5, south, 0)
    (first, second), (pair,) = load(tmp_path, north, south, found="drop")
    assert (len(first), len(second)) == (4, 2)
    assert pair == (("one", "two"), 1, 1, 2)


def test_declared_patient_names_compared(tmp_path: Path) -> None:
    north, south = site(tmp_path, "one", patients="p"), site(tmp_path, "two", patients="p")
    declared = {"same_patient_ids": [["one", "two"]]}
    shared = (SiteOverlap(("one", "two"), 0, 2, 4),)
    with assert_refused(ConfigError, "shared patients", shared=shared):
        load(tmp_path, north, south, **declared)
    three = site(tmp_path, "three", patients="q")
    assert load(tmp_path, north, three, same_patient_ids=[["one", "three"]])[1] == []
    with assert_refused(ConfigError, "unknown site", site="four"):
        load(tmp_path, north, south, same_patient_ids=[["one", "four"]])


def test_three_equal_hospitals_noticed(tmp_path: Path) -> None:
    north = site(tmp_path, "one")
    for name in ("two", "three"):
        shutil.copytree(north.root, tmp_path / name)
    others = [SiteTable(name, name, tmp_path / name, True, north.diseases, north.frame) for name in ("two", "three")]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, north, *others)
    assert str(caught.value).count("4 pictures, 2 patients") == 3
    with assert_refused(ConfigError, "nothing left", site="two", images=4):
        load(tmp_path, north, *others, found="drop")


def test_the_option_names_no_run() -> None:
    plain = load_pipeline(PIPELINE, ["held_out.sites=[vindr]"]).resolve()
    dropping = load_pipeline(PIPELINE, ["held_out.sites=[vindr]", "overlap.found=drop"]).resolve()
    assert identity(plain) == identity(dropping)
