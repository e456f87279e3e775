"""Readers are found by name, imported only when a site wants them, and refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.sites import load_site_config, open_site
from chestfed.sites.registry import BUILT_IN, make_reader, reader_names
from tests.sites.small_sites import CONFIGS
from tests.testing.packages import offer
from tests.testing.plain_site import write_reader, write_site

READS = "class Reader:\n    def read(self, source):\n        return None\n"
WITH_OPTIONS = """
from pydantic import Field
from chestfed.sites.reader import StrictModel

class Options(StrictModel):
    grade: int = Field(2, ge=1, le=4)

class Reader:
    Options = Options
    def __init__(self, options):
        self.options = options
    def read(self, source):
        return None
"""


def config_with(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str, source: str = READS) -> object:
    offer(folder / "packages", monkeypatch, "odd_reader", {"odd": "odd_reader:Reader"}, source)
    return load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd", *overrides])


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_reader_of_chestfed_is_there_without_any_package(name: str) -> None:
    assert callable(make_reader(name).read)
    assert name in reader_names()


def test_an_unknown_reader_is_refused_with_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tmp_path / "packages", monkeypatch, "odd_reader", {"odd_hospital": "odd_reader:Reader"}, READS)
    with pytest.raises(ConfigError) as caught:
        load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd_hopsital"])
    for text in (
        "unknown reader 'odd_hopsital'; did you mean 'odd_hospital'?",
        "vindr, odd_hospital",
        "chestfed.readers",
    ):
        assert text in str(caught.value)


def test_a_package_is_imported_only_for_a_site_that_names_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"from pathlib import Path\nPath({str(tmp_path / 'imported')!r}).touch()\n{READS}"
    offer(tmp_path / "packages", monkeypatch, "odd_reader", {"odd": "odd_reader:Reader"}, source)
    load_site_config(CONFIGS / "chexpert.yaml")
    assert "odd" in reader_names()
    assert not (tmp_path / "imported").exists()
    load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd"])
    assert (tmp_path / "imported").exists()


def test_help_imports_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, monkeypatch, "odd_reader", {"odd": "odd_reader:Reader"}, "raise SystemExit('was imported')\n")
    environment = {"PYTHONPATH": f"{tmp_path}:{CONFIGS.parent}", "PATH": ""}
    command = [sys.executable, "-m", "chestfed", "site", "--help"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import a_library_that_nobody_has\n", "ModuleNotFoundError: No module named 'a_library_that_nobody_has'"),
        ("Raeder = 1\n", "AttributeError"),
        ("def Reader():\n    pass\n", "is no class with a method read(self, source)"),
        ("class Reader:\n    Options = dict\n" + READS.split("\n", 1)[1], "Options is no pydantic model"),
    ],
    ids=["import", "name", "kind", "options"],
)
def test_a_package_that_offers_no_reader_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(tmp_path, monkeypatch, source=source)
    assert message in str(caught.value)
    assert "reader 'odd' of package 'odd_reader': odd_reader:Reader" in str(caught.value)


def test_two_packages_with_one_name_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path / "one", monkeypatch, "first_package", {"odd": "first_package:Reader"}, READS)
    offer(tmp_path / "two", monkeypatch, "second_package", {"odd": "second_package:Reader"}, READS)
    with pytest.raises(ConfigError) as caught:
        load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd"])
    for text in ("2 readers are called 'odd'", "package 'first_package'", "package 'second_package'"):
        assert text in str(caught.value)


def test_a_name_of_chestfed_cannot_be_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, monkeypatch, "greedy", {"chexpert": "greedy:Reader"}, READS)
    with pytest.raises(ConfigError, match="a reader of chestfed itself, and package 'greedy'"):
        load_site_config(CONFIGS / "chexpert.yaml")
    load_site_config(CONFIGS / "vindr.yaml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("options={grad: 3}", "unknown key 'grad'; did you mean 'grade'?"),
        ("options={grade: 9}", "'grade': Input should be less than or equal to 4"),
        ("options={grade: two}", "'grade': Input should be a valid integer"),
    ],
)
def test_options_are_checked_by_the_readers_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(tmp_path, monkeypatch, override, source=WITH_OPTIONS)
    assert message in str(caught.value)
    assert "'options'" in str(caught.value)


def test_options_reach_the_reader_and_have_their_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_with(tmp_path, monkeypatch, source=WITH_OPTIONS)
    assert make_reader("odd", {"grade": 3}).options.grade == 3  # type: ignore[attr-defined]
    assert make_reader("odd").options.grade == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("reader", ["chexpert", "odd"])
def test_options_for_a_reader_that_takes_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    with pytest.raises(ConfigError, match=r"takes no options; found grade"):
        config_with(tmp_path, monkeypatch, f"reader={reader}", "options={grade: 3}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return raw_rows(columns,", "return dict(columns) or (", "read() returned dict, not a pandas frame"),
        ("len(frame))\n", "len(frame)).drop(columns='study')\n", "no column 'study'"),
        ("len(frame))\n", "len(frame)).drop(columns='edema')\n", "no column 'edema'"),
        ('"view": "pa"', '"view": "PA"', "view: 6 cells are none of pa, ap"),
        ('"train")', '"training")', "split: 4 cells are none of train, valid, test"),
        ('frame["row"].to_numpy()', 'frame["row"].astype(str)', "row: not whole numbers from 1"),
        ("column_findings(source, path, frame)", "{'edema': 2, 'cardiomegaly': 0}", "edema: not findings"),
    ],
)
def test_rows_that_are_none_are_the_readers_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch, old, new)
    with pytest.raises(ChestfedError) as caught:
        open_site(load_site_config(config), tmp_path)
    assert message in str(caught.value)
    assert "reader 'plain' returned rows that are none" in str(caught.value)
