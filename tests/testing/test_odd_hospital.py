"""The worked example of docs/own_reader.md: installed by pip, read, and checked by `check_site`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chestfed.core.errors import ConfigError, Problem, SiteError
from chestfed.data.sites import load_site_config, open_site
from chestfed.testing import CHECKS, check_site
from tests.cases import assert_refused
from tests.data.sites.own_tables import labels
from tests.data.sites.small_sites import CONFIGS, column

EXAMPLE = CONFIGS.parent / "docs" / "examples" / "odd_hospital"
CONFIG = EXAMPLE / "odd_hospital.yaml"
PAGE = CONFIGS.parent / "docs" / "own_reader.md"
#: Patient, planes of the images, and the coding, per study.
STUDIES = {
    "S-20240117-01": ("OH-000123", ("pa", "lateral"), {"heart": "3", "fluid": "0", "collapse": "?"}),
    "S-20240118-02": ("OH-000124", ("ap",), {"heart": "1", "fluid": "2"}),
    "S-20240119-03": ("OH-000123", ("pa",), {}),
    "S-20240120-04": ("OH-000125", ("pa",), {"heart": "2", "fluid": "0", "collapse": "4", "water": "1"}),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip put the package: what the page's command does, without the network."""
    target = tmp_path_factory.mktemp("site-packages")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(EXAMPLE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target


@pytest.fixture
def hospital(tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data root."""
    generator = np.random.default_rng(1)
    for study, (patient, planes, coding) in STUDIES.items():
        folder = tmp_path / "odd-hospital" / "archive" / study
        folder.mkdir(parents=True)
        files = [f"{study}-{letter}.png" for letter in "ab"[: len(planes)]]
        for file in files:
            Image.fromarray(generator.integers(0, 255, (40, 32), dtype=np.uint8)).save(folder / file)
        images = [{"file": file, "plane": plane} for file, plane in zip(files, planes, strict=True)]
        about = {"study": study, "patient": patient, "born": 1961, "year": 2024, "sex": "female", "images": images}
        (folder / "study.json").write_text(json.dumps({**about, "coding": coding}, indent=1), encoding="utf-8")
    monkeypatch.syspath_prepend(str(installed))
    yield tmp_path
    sys.modules.pop("odd_hospital", None)


def test_its_studies_become_rows(hospital: Path) -> None:
    table = open_site(load_site_config(CONFIG), hospital)
    n = None
    assert column(table, "patient") == ["OH-000123", "OH-000124", "OH-000123", "OH-000125"]
    assert column(table, "view") == ["pa", "ap", "pa", "pa"]
    assert column(table, "age") == [63.0] * 4
    assert labels(table) == [[1, n, 0], [0, n, 1], [n, n, n], [1, 1, 0]]


def test_reader_option_moves_the_grades(hospital: Path) -> None:
    table = open_site(load_site_config(CONFIG, ["reader.positive_from=3"]), hospital)
    assert column(table, "cardiomegaly") == [1.0, 0.0, None, 0.0]


def test_it_conforms(hospital: Path) -> None:
    assert check_site(CONFIG, hospital)["damaged label files"] == 2 * len(STUDIES)


def test_local_module_conforms(hospital: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLE / "odd_hospital.py", hospital / "beside.py")
    monkeypatch.chdir(hospital)
    assert check_site(CONFIG, hospital, overrides=["reader.name=beside:READER"])["repeatable"] == 4


DEFECTS = [
    ('"heart": "3"', '"heart": "many"', "bad label value"),
    ('"heart": "3"', '"hart": "3"', "bad label value"),
    ('"plane": "pa"', '"plane": "upside down"', "unknown view"),
    ('"born": 1961', '"borne": 1961', "malformed study"),
    ('"born": 1961,', '"born": 1961', "unreadable file"),
    ("S-20240117-01-b.png", "S-20240117-01-a.png", "contradictory rows"),
    ("S-20240117-01-b.png", "../../../x.png", "path outside the root"),
]


def test_study_defect_names_its_file(hospital: Path) -> None:
    path = hospital / "odd-hospital/archive/S-20240117-01/study.json"
    text = path.read_text(encoding="utf-8")
    for old, new, kind in DEFECTS:
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(SiteError) as caught:
            open_site(load_site_config(CONFIG), hospital)
        problems: list[Problem] = caught.value.problems
        assert [(problem.kind, problem.file) for problem in problems] == [(kind, "archive/S-20240117-01/study.json")]


def test_unknown_reader_key_is_refused(hospital: Path) -> None:
    for override in ("reader.positive_form=3", "reader.raters=any"):
        with assert_refused(ConfigError, "unknown key", key=override.partition("=")[0]):
            load_site_config(CONFIG, [override])
    with assert_refused(ConfigError, "invalid value", key="reader.positive_from"):
        load_site_config(CONFIG, ["reader.positive_from=9"])
    with assert_refused(ConfigError, "invalid value", key="label_files"):
        load_site_config(CONFIG, ["label_files.study=[x.json]"])


def test_the_page_shows_the_example_as_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    module = (EXAMPLE / "odd_hospital.py").read_text(encoding="utf-8")
    assert len(module.splitlines()) < 120
    for name in ("pyproject.toml", "odd_hospital.py", "odd_hospital.yaml"):
        assert f"{{literalinclude}} examples/odd_hospital/{name}\n" in page


def test_the_page_lists_every_check() -> None:
    page = PAGE.read_text(encoding="utf-8").split("## Check it")[1]
    assert dict(re.findall(r"^\| `([a-z ]+)` \| (.*) \|$", page, re.M)) == CHECKS
