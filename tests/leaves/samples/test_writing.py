"""Reproducible to the byte, whole or not at all, and marked as synthetic everywhere."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from chestfed.core.errors import ChestfedError
from chestfed.core.randomness import numpy_stream
from chestfed.leaves.samples import writing
from chestfed.leaves.samples.drawing.acquisition import expose
from chestfed.leaves.samples.drawing.phantom import draw_film
from chestfed.leaves.samples.frame import Frame
from chestfed.leaves.samples.hospitals import HOSPITALS, draw_hospital_images, list_hospitals
from chestfed.leaves.samples.writing import is_complete, write_hospitals
from tests.cases import assert_refused


def digests(folder: Path) -> dict[str, str]:
    """Of all files but locks, and the images that other tests decoded."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".samples.lock"]
    files = [path for path in files if ".chestfed_cache" not in path.parts]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_only(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(writing, "HOSPITALS", HOSPITALS[:count])
    monkeypatch.setattr(writing, "list_hospitals", lambda size: HOSPITALS[:count])


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers(tiny_hospitals: Path, tmp_path: Path) -> None:
    write_hospitals(tmp_path, seed=1, size="tiny", workers=2)
    assert digests(tmp_path) == digests(tiny_hospitals)


@pytest.mark.slow
def test_another_seed_gives_other_pictures(
    tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_only(monkeypatch, 1)
    write_hospitals(tmp_path, seed=2, size="tiny", workers=1)
    ours = digests(tmp_path / "synthetic-chexpert")
    theirs = digests(tiny_hospitals / "synthetic-chexpert")
    names = [name for name in ours.keys() & theirs.keys() if name.endswith(".jpg")]
    assert names
    assert all(ours[name] != theirs[name] for name in names)


def test_drawing_is_timed_on_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first image that loads what is loaded once does not count; hospitals that are there take nothing."""
    write_only(monkeypatch, 2)
    sizes = {hospital.name: 100 * (n + 1) for n, hospital in enumerate(HOSPITALS)}
    clock, drawn = [0.0], list[str]()

    def draw(job: Any) -> None:
        part, hospital, film, _ = job
        clock[0] += 1.0 if hospital.name in drawn else 50.0
        drawn.append(hospital.name)
        path = part / writing.PATHS[hospital.name](film)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(sizes[hospital.name]))

    monkeypatch.setattr(writing, "_write_film", draw)
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    counts = [len(writing.draw_hospital_images(hospital, 1, 24)) for hospital in HOSPITALS[:2]]
    mean = (100 * counts[0] + 200 * counts[1]) / sum(counts)
    assert writing.time_drawing(tmp_path, size="tiny") == pytest.approx((sum(counts), mean))
    (tmp_path / HOSPITALS[0].folder).mkdir()
    assert writing.time_drawing(tmp_path, size="tiny") == pytest.approx((counts[1], 200))
    (tmp_path / HOSPITALS[1].folder).mkdir()
    assert writing.time_drawing(tmp_path, size="tiny") == (0, 0)


@pytest.mark.slow
def test_drawing_takes_as_long_as_estimated(tmp_path: Path) -> None:
    seconds, size = writing.time_drawing(tmp_path, size="tiny")
    before = time.process_time()
    write_hospitals(tmp_path, size="tiny", workers=1)
    assert 0.5 < seconds / (time.process_time() - before) < 2
    pictures = [path for path in tmp_path.rglob("*") if path.suffix in (".jpg", ".png", ".dicom")]
    assert 0.5 < size / np.mean([path.stat().st_size for path in pictures]) < 2


def test_every_hospital_is_marked(tiny_hospitals: Path) -> None:
    folders = sorted(path.name for path in tiny_hospitals.iterdir() if path.is_dir() and path.name != ".chestfed_cache")
    assert folders == sorted(hospital.folder for hospital in HOSPITALS)
    for name in folders:
        assert name.startswith("synthetic-")
        assert "SYNTHETIC" in (tiny_hospitals / name / "SYNTHETIC.txt").read_text()


def test_every_picture_file_is_marked(tiny_hospitals: Path) -> None:
    pictures = [path for path in tiny_hospitals.rglob("*") if path.suffix in (".jpg", ".png", ".dicom")]
    assert len(pictures) > 100
    assert all(b"SYNTHETIC phantom, no patient" in path.read_bytes() for path in pictures)


def test_existing_hospitals_are_left_alone(tiny_hospitals: Path) -> None:
    drawn: list[int] = []
    before = {path: path.stat().st_mtime_ns for path in tiny_hospitals.rglob("*.jpg")}
    summaries = write_hospitals(tiny_hospitals, seed=1, size="tiny", progress=lambda done, total: drawn.append(done))
    assert drawn == []
    assert before == {path: path.stat().st_mtime_ns for path in tiny_hospitals.rglob("*.jpg")}
    assert [summary.folder.name for summary in summaries] == [hospital.folder for hospital in HOSPITALS]


def test_completeness_has_a_seed_and_size(tiny_hospitals: Path) -> None:
    assert is_complete(tiny_hospitals, seed=1, size="tiny")
    assert not is_complete(tiny_hospitals, seed=2, size="tiny")
    assert not is_complete(tiny_hospitals, seed=1, size="default")


@pytest.mark.slow
def test_an_interrupted_write_is_resumed(tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_only(monkeypatch, 2)

    def interrupt(done: int, total: int) -> None:
        if done == total - 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_hospitals(tmp_path, seed=1, size="tiny", workers=1, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [HOSPITALS[0].folder]
    assert not is_complete(tmp_path, seed=1, size="tiny")
    write_hospitals(tmp_path, seed=1, size="tiny", workers=1)
    assert digests(tmp_path / HOSPITALS[1].folder) == digests(tiny_hospitals / HOSPITALS[1].folder)


def test_leftovers_of_a_kill_are_replaced(
    tiny_hospitals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_only(monkeypatch, 1)
    left = tmp_path / f".{HOSPITALS[0].folder}.part" / "train"
    left.mkdir(parents=True)
    (left / "half.jpg").write_bytes(b"half")
    write_hospitals(tmp_path, seed=1, size="tiny", workers=1)
    assert digests(tmp_path / HOSPITALS[0].folder) == digests(tiny_hospitals / HOSPITALS[0].folder)
    assert not left.exists()


def test_another_folder_is_refused(tiny_hospitals: Path, tmp_path: Path) -> None:
    place = tmp_path / HOSPITALS[2].folder
    place.mkdir()
    (place / "mine.txt").write_text("precious")
    with assert_refused(ChestfedError, "another folder in its place"):
        write_hospitals(tmp_path, seed=1, size="tiny", workers=1)
    assert (place / "mine.txt").read_text() == "precious"
    assert not (tmp_path / HOSPITALS[0].folder).exists()


def test_hospitals_of_two_seeds_do_not_mix(tiny_hospitals: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_hospitals / HOSPITALS[0].folder, tmp_path / HOSPITALS[0].folder)
    with assert_refused(ChestfedError, "another folder in its place") as caught:
        write_hospitals(tmp_path, seed=2, workers=1)
    assert "--set samples.seed=1 --set samples.size=tiny" in str(caught.value)


def test_an_unknown_size_is_refused(tmp_path: Path) -> None:
    with assert_refused(ChestfedError, "unknown size"):
        write_hospitals(tmp_path, size="huge")


def test_a_full_disk_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as Pillow's, which names no file

    monkeypatch.setattr(writing, "_write_all", full)
    with assert_refused(ChestfedError, "cannot be written") as error:
        write_hospitals(tmp_path, size="tiny")
    assert "another folder" in str(error.value)


def test_half_pictures_show_the_same_patients() -> None:
    for full, halved in zip(HOSPITALS[:2], list_hospitals("default"), strict=False):
        films = [film for film in draw_hospital_images(full, 1, 24) if film.view != "lateral"][:6]
        pairs = [[draw_film(film, each.look, 1, full.name) for each in (full, halved)] for film in films]
        assert {(2 * half.shape[0], 2 * half.shape[1]) for _, half in pairs} == {full.look.shape}
        trained = [[cv2.resize(each, (64, 64), interpolation=cv2.INTER_AREA) for each in pair] for pair in pairs]
        alike = [np.corrcoef(*(each.ravel() for each in pair))[0, 1] for pair in trained]
        assert np.median(alike) > 0.85  # other exposures are drawn


def test_half_pictures_are_as_noisy() -> None:
    """Their pixels are larger, and as noisy as the mean of four of the others."""
    plain = replace(HOSPITALS[0].look, black=(0.2, 0), white=(0.8, 0), gamma=(1.0, 0), collimated=0.0, edges=0.0)
    noise = []
    for look in (plain, plain.halve()):
        frame = Frame(look.rows, look.rows, look.rows / 38, (look.rows / 2, look.rows / 2))
        gray = expose(np.full((look.rows, look.rows), 2.0, np.float32), frame, look, numpy_stream(1), portable=False)
        noise.append(cv2.resize(gray, (64, 64), interpolation=cv2.INTER_AREA)[20:, 10:50].std())
    assert noise[1] == pytest.approx(noise[0], rel=0.15)
