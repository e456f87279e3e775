"""`chestfed datasets` on the command line."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from chestfed.data.films.registry import releases
from tests.command_line import call
from tests.data.films.server import film, make_release, served, zipped


def test_the_list_has_every_release(tmp_path: Path) -> None:
    for words in (("datasets",), ("datasets", "list")):
        done = call(*words, folder=tmp_path)
        assert done.code == 0
        assert all(name in done.out for name in releases())


def test_a_release_is_shown_with_its_license(tmp_path: Path) -> None:
    done = call("datasets", "show", "hannover", folder=tmp_path)
    release = releases()["hannover"]
    assert all(text in done.out for text in (release.license, release.license_source, release.citation))
    assert call("datasets", "show", "hanover", folder=tmp_path).code == 1


def test_owner_of_a_closed_release_is_named(tmp_path: Path) -> None:
    done = call("datasets", "get", "mimic_cxr", "--data", "d", folder=tmp_path)
    assert done.code == 1
    assert all(text in done.err for text in ("https://physionet.org/content/mimic-cxr-jpg/", "570.0 GB", "377,110"))


def test_get_says_how_to_cite(tmp_path: Path) -> None:
    with served() as web:
        web.files["/guangzhou"] = zipped({"chest_xray/train/NORMAL/IM-0115-0001.jpeg": film(1)})
        with patch("chestfed.data.films.registry.releases", lambda: {"guangzhou": make_release(web, "guangzhou")}):
            refused = call("datasets", "get", "guangzhou", "--data", "d", folder=tmp_path)
            done = call("datasets", "get", "guangzhou", "--data", "d", "--trust-first-download", folder=tmp_path)
    assert refused.code == 1
    assert "--trust-first-download" in refused.err
    assert done.code == 0, done.err
    assert releases()["guangzhou"].citation in done.out
    assert "chestfed site check site_configs/films/guangzhou.yaml --data d" in done.out
    assert (tmp_path / "d" / "guangzhou" / "train" / "NORMAL").is_dir()


def test_without_a_folder_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHESTFED_DATA", raising=False)
    assert call("datasets", "get", "hannover", folder=tmp_path).code == 1


def test_earlier_name_works_with_a_hint(tmp_path: Path) -> None:
    now, earlier = (call(name, "show", "hannover", folder=tmp_path) for name in ("datasets", "films"))
    assert (earlier.code, earlier.out) == (0, now.out)
    assert "chestfed datasets" in earlier.err
    assert "datasets" not in now.err
