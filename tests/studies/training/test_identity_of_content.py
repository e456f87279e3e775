"""What names a study is all of its content, and each K says what it was trained with."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chestfed
from chestfed.core.errors import ChestfedError, ConfigError
from chestfed.data.collections.pixels import ArrayPixels, FilePixels
from chestfed.results.tables.collect import load_results
from chestfed.results.tables.made_with import MADE_WITH
from chestfed.results.tables.run_folder import RunFolder
from chestfed.results.tables.views import list_notes
from chestfed.studies.training import versions
from tests.cases import assert_refused

QUICK = ["federated.stage_steps=2", "federated.window=2", "federated.batch_size=4", "evaluation.resamples=0"]
QUICK += ["federated.stages=1"]


def make_samples(shape: tuple[int, ...], count: int, seed: int) -> list[tuple[np.ndarray, int]]:
    """Images of the same bytes in any shape, with labels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 256), dtype=np.uint8)
    return [(image.reshape(shape), row % 2) for row, image in enumerate(pixels)]


def run(out: Path, shape: tuple[int, ...] = (16, 16), **options: Any) -> chestfed.Study:
    clients = [make_samples(shape, 8, seed) for seed in (1, 2)]
    given = {"model": "resnet20", "overrides": QUICK, "quiet": True} | options
    study = chestfed.run(clients=clients, test=make_samples(shape, 20, 3), out=out, **given)
    assert isinstance(study, chestfed.Study)
    return study


def test_same_bytes_in_another_shape_are_other_data(tmp_path: Path) -> None:
    folders = {run(tmp_path, shape).folder for shape in ((16, 16), (8, 32))}
    assert len(folders) == 2
    same = np.zeros((1, 12, 36), np.uint8), np.zeros((1, 12, 12, 3), np.uint8)
    assert len({ArrayPixels(images).digest(0) for images in same}) == 2


def test_file_of_the_same_length_is_another_image(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"first")
    pixels = FilePixels(tmp_path, ["a.png"])
    before = pixels.digest(0)
    assert pixels.digest(0) == before
    (tmp_path / "a.png").write_bytes(b"other")
    os.utime(tmp_path / "a.png", ns=(1, 1))
    assert pixels.digest(0) != before


@pytest.mark.parametrize("tasks", [["a", "a"], ["mean", "b"], ["edema_missing", "b"]])
def test_twin_and_reserved_tasks_are_refused(tmp_path: Path, tasks: list[str]) -> None:
    two = [(image, [label, 1 - label]) for image, label in make_samples((16, 16), 8, 1)]
    with pytest.raises(ConfigError):
        chestfed.run(clients=[two], test=two, tasks=tasks, out=tmp_path, quiet=True)
    assert not list(tmp_path.glob("*/k1"))


@pytest.mark.parametrize("keys", [{"seed": 2**63}, {"seeds": [1, 2**63]}, {"seed": 2**63 - 1, "seeds": 2}])
def test_seed_that_no_table_holds_is_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        run(tmp_path, **keys)
    assert not list(tmp_path.glob("*/k1"))


@pytest.mark.slow
def test_k_of_another_version_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(tmp_path, k=[1, 2]).folder
    shutil.rmtree(folder / "k2")  # as if the study had been stopped after K=1
    assert json.loads((folder / "k1" / MADE_WITH).read_text())["made_with"][0]["torch"]
    now = versions.describe_maker
    monkeypatch.setattr(versions, "describe_maker", lambda machine: now(machine) | {"torch": "9.9.9"})
    with assert_refused(ChestfedError, "other versions", folder=folder.name):
        run(tmp_path, k=[1, 2], strict=True)
    run(tmp_path, k=[1, 2])
    results = load_results(RunFolder.open(folder))
    assert "9.9.9 (K=2)" in results.about["made_unalike"]
    assert results.about["made_unalike"] in list_notes(results)
    monkeypatch.undo()
    assert run(tmp_path, k=[1, 2]).folder == folder


@pytest.mark.parametrize("name", ["=1+1", "-a", "@a", "a/b", "..", "\x1b[2J", "a\x1b[2J", "<b>", "a<b>", "a\\b"])
def test_name_that_tables_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    method = {"name": name, "algorithm": "fedavg"}
    with pytest.raises(ConfigError):
        chestfed.run("digits_ih", methods=[method], out=tmp_path, quiet=True)
    assert not list(tmp_path.glob("digits*"))
