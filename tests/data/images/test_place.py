"""Where decoded images are kept: with the data, whatever the working folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import chestfed
from chestfed.data.images import cache, place
from chestfed.data.images.place import AUTO, find_cache, list_caches
from tests.command_line import call

SITE = "site_configs/synthetic/chexpert.yaml"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the images that are decoded, in this process."""
    names: list[str] = []
    original = cache.prepare_image

    def count(path: Path, *how: Any) -> Any:
        names.append(path.name)
        return original(path, *how)

    monkeypatch.setattr(cache, "prepare_image", count)
    return names


def open_valid(data: Path) -> int:
    return len(chestfed.load_site(SITE, data=data).dataset("valid", size=32, workers=1))


def copy_site(tiny_hospitals: Path, folder: Path) -> Path:
    shutil.copytree(tiny_hospitals / "synthetic-chexpert", folder / "data" / "synthetic-chexpert")
    return folder / "data"


def test_another_folder_decodes_nothing_again(
    tmp_path: Path, tiny_hospitals: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copy_site(tiny_hospitals, tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        images = open_valid(data)
        assert not Path("cache").exists()
    assert len(decoded) == images > 0
    assert (data / ".chestfed_cache" / "chexpert" / "images.sqlite").is_file()
    assert "chexpert" in call("cache", "list", "--data", data, folder=tmp_path / "two").out


def test_cache_of_the_working_folder_is_read(
    tmp_path: Path, tiny_hospitals: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copy_site(tiny_hospitals, tmp_path)
    monkeypatch.chdir(tmp_path)
    images = len(chestfed.load_site(SITE, data=data, cache="cache").dataset("valid", size=32, workers=1))
    assert open_valid(data) == images == len(decoded)
    assert not (data / ".chestfed_cache").exists()


def test_read_only_data_have_a_cache_of_the_user(
    tmp_path: Path, tiny_hospitals: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = copy_site(tiny_hospitals, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(place, "_can_write", lambda _: False)
    images = open_valid(data)
    assert open_valid(data) == images == len(decoded)
    assert not (data / ".chestfed_cache").exists()
    own = find_cache(AUTO, "chexpert", data / "synthetic-chexpert")
    assert own.parent == tmp_path / "home" / "chestfed"
    assert list_caches(AUTO, data) == [own]
