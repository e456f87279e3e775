"""`initial_weights: imagenet`: the host's file with its digest, kept where PyTorch keeps it."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
import torch
from torch import hub

from chestfed.core.errors import ConfigError
from chestfed.learning.models import pretrained
from chestfed.learning.models.pretrained import IMAGENET, find_initial_weights
from chestfed.learning.models.weights import read_weights
from tests.cases import assert_refused


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with the file of one network; PyTorch's folder is empty."""
    folder = tmp_path / "host"
    folder.mkdir()
    torch.save({"a": torch.zeros(3)}, folder / "file")
    digits = hashlib.sha256((folder / "file").read_bytes()).hexdigest()[:8]
    (folder / "file").rename(folder / f"net-{digits}.pth")
    monkeypatch.setattr(pretrained, "_HOST", folder.as_uri())
    monkeypatch.setattr(pretrained, "_FILES", {"densenet121": f"net-{digits}.pth"})
    monkeypatch.setattr(hub, "get_dir", lambda: str(tmp_path / "torch"))
    return next(folder.iterdir())


def test_file_is_downloaded_once(host: Path) -> None:
    first = find_initial_weights(IMAGENET, "densenet121")
    assert first.read_bytes() == host.read_bytes()
    host.unlink()
    assert find_initial_weights(IMAGENET, "densenet121") == first


def test_another_digest_is_refused(host: Path) -> None:
    host.write_bytes(b"another")
    with assert_refused(ConfigError, "weights not downloaded", network="densenet121"):
        find_initial_weights(IMAGENET, "densenet121")


def test_damaged_file_is_refused(host: Path) -> None:
    find_initial_weights(IMAGENET, "densenet121").write_bytes(b"damaged")
    with assert_refused(ConfigError, "damaged weights"):
        find_initial_weights(IMAGENET, "densenet121")


def test_missing_network_is_explained(host: Path) -> None:
    host.unlink()
    with pytest.raises(ConfigError) as caught:
        find_initial_weights(IMAGENET, "densenet121")
    assert caught.value.kind == "weights not downloaded"
    assert "initial_weights=null" in str(caught.value)


def test_unpublished_network_is_refused() -> None:
    with assert_refused(ConfigError, "no ImageNet weights", network="small"):
        find_initial_weights(IMAGENET, "small")


def test_other_names_are_files() -> None:
    assert find_initial_weights("start.pth", "small") == Path("start.pth")


def test_compressed_weights_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.zeros(10_000)}, tmp_path / "plain.pt")
    assert read_weights(tmp_path / "plain.pt")["a"].shape == (10_000,)
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "small.pt", "w", 8) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was opened"))
    with assert_refused(ConfigError, "compressed weights", file="small.pt"):
        read_weights(tmp_path / "small.pt")
