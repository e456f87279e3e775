"""`initial_weights: imagenet`: the host's file with its digest, kept where PyTorch keeps it."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import hub

from chestfed.core.errors import ConfigError
from chestfed.learning.models import find_absent_weights, network_options, without_absent_weights
from chestfed.learning.models.declaration import IMAGENET, ModelSpec, Published
from chestfed.learning.models.densenet import DENSENET121, SMALL
from chestfed.learning.models.efficientnet import LITE0
from chestfed.learning.models.pretrained import find_initial_weights
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
    monkeypatch.setattr(hub, "get_dir", lambda: str(tmp_path / "torch"))
    return next(folder.iterdir())


@pytest.fixture
def network(host: Path) -> ModelSpec:
    """A network whose weights the host has."""
    return replace(DENSENET121, imagenet=Published(host.name, host.parent.as_uri()))


def test_file_is_downloaded_once(host: Path, network: ModelSpec) -> None:
    first = find_initial_weights(IMAGENET, network)
    assert first.read_bytes() == host.read_bytes()
    host.unlink()
    assert find_initial_weights(IMAGENET, network) == first


def test_another_digest_is_refused(host: Path, network: ModelSpec) -> None:
    host.write_bytes(b"another")
    with assert_refused(ConfigError, "weights not downloaded", network="densenet121"):
        find_initial_weights(IMAGENET, network)


def test_damaged_file_is_refused(host: Path, network: ModelSpec) -> None:
    find_initial_weights(IMAGENET, network).write_bytes(b"damaged")
    with assert_refused(ConfigError, "damaged weights"):
        find_initial_weights(IMAGENET, network)


def test_missing_network_is_explained(host: Path, network: ModelSpec) -> None:
    host.unlink()
    with pytest.raises(ConfigError) as caught:
        find_initial_weights(IMAGENET, network)
    assert caught.value.kind == "weights not downloaded"
    assert "initial_weights=null" in str(caught.value)


def test_unpublished_network_is_refused() -> None:
    with assert_refused(ConfigError, "no ImageNet weights", network="small"):
        find_initial_weights(IMAGENET, SMALL)


def test_installed_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "content").write_bytes(b"weights")
    file = package / f"net-{hashlib.sha256(b'weights').hexdigest()[:8]}.pth"
    (package / "content").rename(file)
    monkeypatch.syspath_prepend(tmp_path)
    network = replace(LITE0, imagenet=Published(file.name, package="some_weights"))
    assert find_initial_weights(IMAGENET, network) == file
    file.write_bytes(b"others")
    with assert_refused(ConfigError, "damaged weights", network=LITE0.name):
        find_initial_weights(IMAGENET, network)
    file.unlink()
    with assert_refused(ConfigError, "weights not installed", network=LITE0.name):
        find_initial_weights(IMAGENET, network)
    with assert_refused(ConfigError, "weights not installed", network=LITE0.name):
        find_initial_weights(IMAGENET, replace(LITE0, imagenet=Published("a", package="no_such_weights")))


def test_other_names_are_files() -> None:
    assert find_initial_weights("start.pth", SMALL) == Path("start.pth")


def test_compressed_weights_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.zeros(10_000)}, tmp_path / "plain.pt")
    assert read_weights(tmp_path / "plain.pt")["a"].shape == (10_000,)
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "small.pt", "w", 8) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was opened"))
    with assert_refused(ConfigError, "compressed weights", file="small.pt"):
        read_weights(tmp_path / "small.pt")


@pytest.mark.parametrize("nested", [False, True])
def test_absent_weights_are_left_out(host: Path, nested: bool) -> None:
    options = network_options("densenet121", initial_weights=IMAGENET)
    if nested:
        options = network_options("features", network={"name": "densenet121", "initial_weights": IMAGENET})
    assert find_absent_weights(options) == DENSENET121.imagenet
    assert find_absent_weights(without_absent_weights(options)) is None
    assert not (host.parents[1] / "torch").exists()


def test_weights_that_are_here_stay(host: Path) -> None:
    assert DENSENET121.imagenet is not None
    folder = host.parents[1] / "torch" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / DENSENET121.imagenet.name).touch()
    options = network_options("densenet121", initial_weights=IMAGENET)
    assert without_absent_weights(options) is options
