"""Releases from a local server: resumed, checked, unpacked, and opened as sites."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chestfed.core.bundled import bundled
from chestfed.core.errors import ChestfedError, ConfigError, DamagedError, NotWrittenError
from chestfed.data.films.fetch import RECEIPT, fetch_release
from chestfed.data.films.registry import Release, find_release, releases
from chestfed.data.films.unpack import git_id
from chestfed.data.sites import load_site_config, open_site
from docs.generate.releases import page as make_page
from tests.cases import assert_refused, each
from tests.data.films.server import Web, film, make_release, served, sha256, tarred, zipped

GUANGZHOU = {
    "chest_xray/train/NORMAL/IM-0115-0001.jpeg": film(1),
    "chest_xray/train/PNEUMONIA/person1_bacteria_1.jpeg": film(2),
    "chest_xray/test/PNEUMONIA/person1_virus_6.jpeg": film(3),
    "chest_xray/train/.DS_Store": b"x",
    "__MACOSX/chest_xray/train/NORMAL/._IM-0115-0001.jpeg": b"x",
}


@pytest.fixture
def web() -> Iterator[Web]:
    with served() as server:
        yield server


@pytest.fixture
def guangzhou(web: Web) -> Release:
    web.files["/guangzhou"] = zipped(GUANGZHOU)
    return make_release(web, "guangzhou", digest=sha256(web.files["/guangzhou"]), size=len(web.files["/guangzhou"]))


def test_a_release_becomes_a_site(tmp_path: Path, guangzhou: Release) -> None:
    assert fetch_release(guangzhou, tmp_path) == 1
    table = open_site(load_site_config(bundled("site_configs") / guangzhou.site), tmp_path)
    assert table.frame["image"].tolist() == [
        name.partition("/")[2] for name in sorted(GUANGZHOU)[1:] if "DS" not in name
    ]
    assert table.labels()[:, 0].tolist() == [1, 0, 1]
    assert table.frame["patient"].tolist() == ["person1", "IM-0115", "person1"]
    assert {path.name for path in (tmp_path / "guangzhou").iterdir()} == {"train", "test", RECEIPT}


def test_a_complete_release_is_not_asked_for(tmp_path: Path, web: Web, guangzhou: Release) -> None:
    fetch_release(guangzhou, tmp_path)
    web.asked.clear()
    assert fetch_release(guangzhou, tmp_path) == 0
    assert web.asked == []


def test_a_cut_download_is_continued(
    tmp_path: Path, web: Web, guangzhou: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chestfed.data.films.download._CHUNK", 100)
    web.cut_after = 300
    with assert_refused(ChestfedError, "cannot be downloaded"):
        fetch_release(guangzhou, tmp_path)
    assert (tmp_path / "guangzhou" / "ChestXRay2017.zip.part").stat().st_size == 300
    assert fetch_release(guangzhou, tmp_path) == 1
    assert web.asked[1:] == [("/guangzhou", "bytes=300-")]


def test_a_changed_file_is_not_continued(
    tmp_path: Path, web: Web, guangzhou: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chestfed.data.films.download._CHUNK", 100)
    web.cut_after = 300
    old, web.files["/guangzhou"] = web.files["/guangzhou"], zipped({"other": b"x" * 900})
    with pytest.raises(ChestfedError):
        fetch_release(guangzhou, tmp_path)
    web.files["/guangzhou"] = old
    assert fetch_release(guangzhou, tmp_path) == 1


def test_ctrl_c_leaves_a_part_to_continue(tmp_path: Path, guangzhou: Release) -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_release(guangzhou, tmp_path, progress=stop)
    assert (tmp_path / "guangzhou" / "ChestXRay2017.zip.part").stat().st_size > 0
    assert fetch_release(guangzhou, tmp_path) == 1


def test_a_wrong_digest_is_refused(tmp_path: Path, web: Web) -> None:
    web.files["/guangzhou"] = zipped(GUANGZHOU)
    with pytest.raises(DamagedError):
        fetch_release(make_release(web, "guangzhou", digest=sha256(b"another")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_digest_is_trusted_once(tmp_path: Path, web: Web, guangzhou: Release) -> None:
    release = make_release(web, "guangzhou", digest=None)
    with assert_refused(ConfigError, "first download not trusted"):
        fetch_release(release, tmp_path)
    assert web.asked == []
    fetch_release(release, tmp_path, trust=True)
    receipt = json.loads((tmp_path / "guangzhou" / RECEIPT).read_text())["ChestXRay2017.zip"]
    assert receipt["digest"] == guangzhou.files[0].digest
    assert receipt["published"] is False
    subprocess.run(["rm", "-r", tmp_path / "guangzhou" / "train"], check=True)
    web.files["/guangzhou"] = zipped({**GUANGZHOU, "chest_xray/train/NORMAL/IM-0001-0001.jpeg": film(9)})
    with pytest.raises(DamagedError):  # the recorded digest counts now
        fetch_release(release, tmp_path)


def test_a_repository_is_checked_by_content(tmp_path: Path, web: Web) -> None:
    web.files["/hannover"] = tarred({"r-1/data.csv": b"a,b\n", "r-1/png/a.png": b"a", "r-1/png/b.png": b"b"})
    ids = {"data.csv": "7d9e2ce7e6b3bb6a0f4fdb4d4a4a0c3a3a0b0a00", "png": "0" * 40}
    with assert_refused(DamagedError, "not the file of the release"):
        fetch_release(make_release(web, "hannover", git=ids), tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "png").mkdir()
    for name in ("a", "b"):
        (tmp_path / "png" / f"{name}.png").write_bytes(name.encode())
    right = {"png": git_id(tmp_path / "png")}
    assert fetch_release(make_release(web, "hannover", git=right), tmp_path) == 1


def test_git_ids_are_those_of_git(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b.txt", "a/b/c", "a/b-c"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "PATH": "/usr/bin:/bin:/usr/local/bin"}

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", "a")
    assert git_id(tmp_path / "a") == git("rev-parse", git("write-tree") + ":a")


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@each(
    ("content", "keys"),
    [
        (tarred({"r/../../evil.png": b"x"}), {}),
        (tarred({"/r/png/evil.png": b"x"}), {}),
        (zipped({"r/..\\..\\evil.png": b"x"}), {}),
        (tarred({"r/png/a.png": b"x"}, link("r/png/b.png", tarfile.SYMTYPE)), {}),
        (tarred({"r/png/a.png": b"x"}, link("r/png/b.png", tarfile.LNKTYPE)), {}),
        (tarred({"r/png/a.png": b"x"}, link("r/png/b.png", tarfile.FIFOTYPE)), {}),
        (tarred({"r/png/a.png": bytes(100_000)}), {"most": 50_000}),
        (zipped({"r/png/a.png": bytes(100_000)}), {"most": 50_000}),
        (tarred({"r/other.txt": b"x"}), {}),
        (b"no archive", {}),
        (tarred({"r/png/a.png": film(1)})[:-20], {}),
    ],
)
def test_a_hostile_archive_is_refused(tmp_path: Path, content: bytes, keys: dict[str, int]) -> None:
    with served() as web:
        web.files["/hannover"] = content
        release = make_release(web, "hannover", digest=sha256(content), **keys)
        with pytest.raises(DamagedError):
            fetch_release(release, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_much_larger_file_is_refused(tmp_path: Path, web: Web, guangzhou: Release) -> None:
    release = make_release(web, "guangzhou", digest=guangzhou.files[0].digest, size=100)
    with assert_refused(ChestfedError, "larger than the release"):
        fetch_release(release, tmp_path)


def test_a_server_that_refuses_is_named(tmp_path: Path, web: Web, guangzhou: Release) -> None:
    web.files.clear()
    with assert_refused(ChestfedError, "cannot be downloaded"):
        fetch_release(guangzhou, tmp_path)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path, guangzhou: Release) -> None:
    (tmp_path / "guangzhou").write_text("x", encoding="utf-8")
    with assert_refused(ChestfedError, "cannot be written", option="--data"):
        fetch_release(guangzhou, tmp_path)


def test_a_full_disk_is_reported(tmp_path: Path, guangzhou: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chestfed.data.films.download._Resuming._receive", _no_space)
    with pytest.raises(NotWrittenError) as caught:
        fetch_release(guangzhou, tmp_path)
    assert caught.value.reason == "No space left on device"


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_part_has_images_and_label_files() -> None:
    release = find_release("nih")
    assert [file.name for file in release.select_files(1)][-2:] == ["test_list.txt", "images_001.tar.gz"]
    assert len(release.select_files(None)) == 15
    with assert_refused(ConfigError, "unknown part"):
        release.select_files(13)


def test_the_registry_has_sites_and_digests() -> None:
    for name, release in releases().items():
        config = load_site_config(bundled("site_configs") / release.site)
        assert config.root == release.folder, name
        assert set(config.diseases) == set(release.findings), name
        assert release.note or release.files, name
        digests = [file.digest or str(file.identifiers) for file in release.files if file.is_checked]
        assert len(set(digests)) == len(digests)
        assert all(file.is_checked for file in release.files if file.verified)
        assert all(file.url.startswith("https://") for file in release.files)


def test_the_page_has_every_release() -> None:
    page = make_page()
    for name, release in releases().items():
        assert f"| `{name}` | {release.hospital}, {release.country} | {release.films:,} |" in page
        assert f" | {release.license} | {release.check} |" in page.replace("\\", "")
