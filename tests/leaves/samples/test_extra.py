"""A further hospital of one's own: whole or not at all, the same bytes each time, and marked as synthetic."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chestfed.core.errors import ChestfedError
from chestfed.leaves.samples.extra import SHAPES, write_extra
from tests.cases import assert_refused
from tests.leaves.samples.test_writing import digests


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["readers", "long"])
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, shape: str) -> None:
    for name in ("a", "b"):
        write_extra(tmp_path / name, "st-x", shape, size="tiny")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


@pytest.mark.slow
def test_every_shape_is_marked_as_synthetic(tmp_path: Path) -> None:
    for shape in SHAPES:
        written = write_extra(tmp_path, f"st-{shape}", shape, size="tiny")
        assert written.folder.name == f"synthetic-st-{shape}"
        assert "SYNTHETIC" in (written.folder / "SYNTHETIC.txt").read_text()
        pictures = [path for path in written.pictures.rglob("*") if path.suffix in (".png", ".dcm")]
        assert len(pictures) == written.images == 36
        assert all(b"SYNTHETIC phantom, no patient" in path.read_bytes() for path in pictures)


def test_an_extra_hospital_is_left_alone(tmp_path: Path) -> None:
    first = write_extra(tmp_path, "st-x", "list", size="tiny")
    before = digests(tmp_path)
    assert write_extra(tmp_path, "st-x", "list", size="tiny") == first
    assert digests(tmp_path) == before
    with assert_refused(ChestfedError, "another folder in its place"):
        write_extra(tmp_path, "st-x", "long", size="tiny")
    shutil.rmtree(first.folder)
    first.folder.mkdir()
    with assert_refused(ChestfedError, "another folder in its place"):
        write_extra(tmp_path, "st-x", "list", size="tiny")


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_extra(tmp_path, "st-x", "list", size="tiny", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("name", "shape", "size", "kind"),
    [
        ("St X", "list", "tiny", "not a short name"),
        ("x", "square", "tiny", "unknown shape"),
        ("x", "list", "huge", "unknown size"),
    ],
)
def test_unknown_shapes_are_refused(tmp_path: Path, name: str, shape: str, size: str, kind: str) -> None:
    with assert_refused(ChestfedError, kind):
        write_extra(tmp_path, name, shape, size=size)
