"""Readers are found by name, imported only when a site wants them, and refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.sites import SiteConfig, load_site_config, open_site
from chestfed.data.sites.reader import READERS
from tests.cases import assert_refused, each
from tests.data.sites.small_sites import CONFIGS
from tests.testing.packages import offer
from tests.testing.plain_site import write_reader, write_site

READS = """
from pydantic import Field
from chestfed.data.sites.reader import Options, SiteReader

class OddOptions(Options):
    grade: int = Field(2, ge=1, le=4)

def read(source, options):
    raise NotImplementedError

READER = SiteReader("odd", read, OddOptions)
"""


def config_with(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str, source: str = READS) -> SiteConfig:
    offer(folder / "packages", monkeypatch, "odd_reader", {"odd": "odd_reader:READER"}, source)
    return load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd", *overrides])


def test_built_in_readers_need_no_package() -> None:
    assert set(READERS.built_in) == {"table", "chexpert", "chestxray8", "padchest", "mimic_cxr", "vindr"}
    assert set(READERS.names) >= set(READERS.built_in)


def test_an_unknown_reader_lists_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path / "packages", monkeypatch, "odd_reader", {"odd_hospital": "odd_reader:READER"}, READS)
    with assert_refused(ConfigError, "invalid value", key="reader", suggestion="odd_hospital") as caught:
        load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd_hopsital"])
    for text in ("table, odd_hospital", "package.module:Name"):
        assert text in str(caught.value)


def test_a_package_is_imported_when_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"from pathlib import Path\nPath({str(tmp_path / 'imported')!r}).touch()\n{READS}"
    offer(tmp_path / "packages", monkeypatch, "odd_reader", {"odd": "odd_reader:READER"}, source)
    load_site_config(CONFIGS / "chexpert.yaml")
    assert "odd" in READERS.names
    assert not (tmp_path / "imported").exists()
    load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd"])
    assert (tmp_path / "imported").exists()


def test_help_imports_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, monkeypatch, "odd_reader", {"odd": "odd_reader:READER"}, "raise SystemExit('was imported')\n")
    environment = {"PYTHONPATH": f"{tmp_path}:{CONFIGS.parent}", "PATH": ""}
    command = [sys.executable, "-m", "chestfed", "site", "--help"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import a_library_that_nobody_has\n", "ModuleNotFoundError: No module named 'a_library_that_nobody_has'"),
        ("RAEDER = 1\n", "has no 'READER'"),
        ("def READER(source):\n    pass\n", "expected an instance of SiteReader"),
    ],
    ids=["import", "name", "kind"],
)
def test_a_package_without_reader_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(tmp_path, monkeypatch, source=source)
    assert message in str(caught.value)
    assert "odd_reader" in str(caught.value)


def test_a_reader_is_found_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_reader.py").write_text(READS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_reader", raising=False)
    config = load_site_config(CONFIGS / "chexpert.yaml", ["reader={name: 'my_reader:READER', grade: 3}"])
    assert config.reader.model_dump() == {"name": "my_reader:READER", "grade": 3}
    with assert_refused(ConfigError, "unknown key", key="reader.grad", suggestion="grade"):
        load_site_config(CONFIGS / "chexpert.yaml", ["reader={name: 'my_reader:READER', grad: 3}"])


def test_a_missing_module_says_where_to_run() -> None:
    with assert_refused(ConfigError, "invalid value", key="reader"):
        load_site_config(CONFIGS / "chexpert.yaml", ["reader=nowhere.readers:READER"])


def test_two_packages_of_one_name_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path / "one", monkeypatch, "first_package", {"odd": "first_package:READER"}, READS)
    offer(tmp_path / "two", monkeypatch, "second_package", {"odd": "second_package:READER"}, READS)
    with pytest.raises(ConfigError) as caught:
        load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd"])
    for text in ("2 readers are called 'odd'", "package 'first_package'", "package 'second_package'"):
        assert text in str(caught.value)


def test_a_built_in_name_cannot_be_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, monkeypatch, "greedy", {"chexpert": "greedy:READER"}, READS)
    with assert_refused(ConfigError, "invalid value", key="reader"):
        load_site_config(CONFIGS / "chexpert.yaml")
    load_site_config(CONFIGS / "vindr.yaml")


def test_options_have_the_readers_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_with(tmp_path, monkeypatch, "reader.grade=3")
    assert config.reader.model_dump() == {"name": "odd", "grade": 3}
    assert load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd"]).reader.model_dump()["grade"] == 2
    for override, message in (
        ("grade=9", "'reader.grade' should be at most 4"),
        ("grade=two", "'reader.grade' should be a whole number"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_site_config(CONFIGS / "chexpert.yaml", ["reader=odd", f"reader.{override}"])
        assert message in str(caught.value)


def test_a_readers_bug_is_told_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch, "return raw_rows(", "1 / 0\n    return raw_rows(")
    with pytest.raises(ZeroDivisionError) as caught:
        open_site(load_site_config(config), tmp_path)
    (note,) = caught.value.__notes__
    assert "'plain'" in note
    assert note.endswith("labels.csv")


@each(
    ("old", "new", "message"),
    [
        ("return raw_rows(columns,", "return dict(columns) or (", "read() returned dict, not a pandas frame"),
        ("len(frame))\n", "len(frame)).drop(columns='study')\n", "no column 'study'"),
        ("len(frame))\n", "len(frame)).drop(columns='edema')\n", "no column 'edema'"),
        ('"view": "pa"', '"view": "PA"', "view: 6 cells are not one of pa, ap"),
        ('"train")', '"training")', "split: 4 cells are not one of train, valid, test"),
        ('frame["row"].to_numpy()', 'frame["row"].astype(str)', "row: not integers from 1"),
        ("column_findings(source, path, frame)", "{'edema': 2, 'cardiomegaly': 0}", "edema: not findings"),
    ],
)
def test_invalid_rows_are_the_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    config = write_site(tmp_path)
    write_reader(tmp_path, monkeypatch, old, new)
    with pytest.raises(ChestfedError) as caught:
        open_site(load_site_config(config), tmp_path)
    assert message in str(caught.value)
    assert "reader 'plain' returned invalid rows" in str(caught.value)
