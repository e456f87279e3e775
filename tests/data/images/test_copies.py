"""Copies of a cache on a local disk: SQLite opens the copy alone, and what was added is sent back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.images import cache as module
from chestfed.data.images import copies
from chestfed.data.images.cache import fill_cache
from chestfed.data.images.copies import VARIABLE
from chestfed.data.images.database import Database
from chestfed.data.images.maintenance import parts
from tests.cases import assert_refused
from tests.data.images.test_cache import SMALL, Table, change, expected, make_site

Node = Callable[[str], Path]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Go on as another machine, with a disk of its own."""

    def go(name: str) -> Path:
        disk = tmp_path / name
        disk.mkdir(exist_ok=True)
        monkeypatch.setenv(VARIABLE, str(disk))
        return disk

    return go


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder on which SQLite must not open a file."""
    folder, connect = tmp_path / "shared", sqlite3.connect

    def refuse_shared(place: str, *given: Any, **named: Any) -> sqlite3.Connection:
        assert folder.as_uri() not in str(place)
        return connect(place, *given, **named)

    monkeypatch.setattr(sqlite3, "connect", refuse_shared)
    return folder


def check(table: Table, shared: Path) -> None:
    images = fill_cache(table, shared, SMALL, workers=1)
    for row in range(len(table.frame)):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


def test_a_second_machine_decodes_nothing(
    tmp_path: Path, shared: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_site(tmp_path)
    node("first")
    check(table, shared)
    assert [path.name for path in (shared / "toy").iterdir()] == ["images.sqlite"]
    assert (shared / "toy" / "images.sqlite").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(module, "prepare_image", lambda *_: pytest.fail("decoded again"))
    disk = node("second")
    check(table, shared)
    assert all(path.stat().st_mode & 0o077 == 0 for path in [*disk.iterdir(), *disk.rglob("*.sqlite")])


def test_what_a_machine_adds_reaches_others(tmp_path: Path, shared: Path, node: Node) -> None:
    table = make_site(tmp_path)
    half = Table("toy", table.root, True, table.frame.iloc[:3])
    for name, part in (("first", half), ("second", table)):
        node(name)
        check(part, shared)
    disk = node("first")
    check(table, shared)
    (copy,) = disk.rglob("images.sqlite")
    assert copy.read_bytes() == (shared / "toy" / "images.sqlite").read_bytes()


def test_a_complete_cache_is_copied_once(
    tmp_path: Path, shared: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_site(tmp_path)
    node("first")
    check(table, shared)
    monkeypatch.setattr(copies, "_copy", lambda *_: pytest.fail("copied again"))
    check(table, shared)


def test_a_lost_shared_cache_is_sent_again(tmp_path: Path, shared: Path, node: Node) -> None:
    table = make_site(tmp_path)
    node("first")
    check(table, shared)
    shutil.rmtree(shared)
    check(table, shared)
    assert (shared / "toy" / "images.sqlite").is_file()


def test_a_read_only_cache_is_enough(tmp_path: Path, shared: Path, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path)
    node("first")
    check(table, shared)
    before = (shared / "toy" / "images.sqlite").read_bytes()
    monkeypatch.setattr(Database, "writable", property(lambda self: not self.file.is_relative_to(shared)))
    (table.root / table.frame["image"][0]).touch()  # another stamp is to be kept
    node("second")
    check(table, shared)
    assert (shared / "toy" / "images.sqlite").read_bytes() == before


def test_a_file_being_written_is_not_copied(
    tmp_path: Path, shared: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_site(tmp_path)
    node("first")
    check(table, shared)
    (shared / "toy" / "images.sqlite-journal").write_bytes(b"begun")
    monkeypatch.setattr(copies, "_PAUSES", ())
    disk = node("second")
    with assert_refused(ChestfedError, "busy cache", file="images.sqlite"):
        fill_cache(table, shared, SMALL, workers=1)
    assert not [*disk.rglob("images.sqlite*")]


def test_the_cache_itself_is_listed(tmp_path: Path, node: Node) -> None:
    table = make_site(tmp_path)
    node("first")
    check(table, tmp_path / "cache")
    change(tmp_path / "cache", "UPDATE kinds SET used = 5")
    assert [part.used for part in parts(tmp_path / "cache")] == [5]


@pytest.mark.parametrize("given", ["", "nowhere"])
def test_no_folder_for_copies_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(VARIABLE, given and str(tmp_path / given))
    with assert_refused(ConfigError, "no such folder", option=VARIABLE):
        fill_cache(make_site(tmp_path), tmp_path / "cache", SMALL)


@pytest.mark.skipif(os.name == "nt", reason="POSIX rights")
def test_copies_open_to_others_are_refused(tmp_path: Path, shared: Path, node: Node) -> None:
    table, disk = make_site(tmp_path), node("first")
    check(table, shared)
    (copy,) = disk.iterdir()
    copy.chmod(0o755)
    with assert_refused(ChestfedError, "not private", option=VARIABLE):
        fill_cache(table, shared, SMALL)
