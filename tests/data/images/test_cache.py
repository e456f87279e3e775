"""The cache: made once, exact, without names, safe against interruption and a second process."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from chestfed.core.errors import ChestfedError, ImageError, SeveralSitesError, SiteError
from chestfed.data.images import cache as module
from chestfed.data.images import database, file_store
from chestfed.data.images.cache import CachedImages, fill_cache, fill_caches
from chestfed.data.images.decode import decode
from chestfed.data.images.levels import Stored
from chestfed.data.images.preprocess import Preprocess
from tests.cases import assert_refused

SMALL = Preprocess(size=32)
#: A new interpreter would import for seconds.
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Table:
    name: str
    root: Path
    synthetic: bool
    frame: pd.DataFrame

    def stored(self) -> list[Stored]:
        return [Stored(inverted) for inverted in self.frame["inverted"].tolist()]


def make_site(
    folder: Path, count: int = 6, name: str = "patient{:05d}.png", shape: tuple[int, int] = (40, 50)
) -> Table:
    """A site of small random pictures, every second of them inverted."""
    root = folder / "site"
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = [f"images/{name.format(index)}" for index in range(count)]
    for path in names:
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(root / path)
    frame = pd.DataFrame({"image": names, "row": range(2, count + 2), "inverted": [i % 2 == 1 for i in range(count)]})
    return Table("toy", root, True, frame)


#: Pixels of another size, of this size, and a text.
WRONG = ("x'00'", "zeroblob(1024)", "'text'")


def change(cache: Path, statement: str) -> None:
    """Change the database of the site below a cache folder."""
    with closing(sqlite3.connect(cache / "toy" / "images.sqlite")) as connection, connection:
        connection.execute(statement)


def expected(table: Table, row: int, preprocess: Preprocess = SMALL) -> np.ndarray:
    return preprocess.apply(decode(table.root / table.frame["image"][row], table.stored()[row]))


def test_the_cache_has_the_decoded_squares(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    calls: list[tuple[int, int]] = []
    images = fill_cache(table, tmp_path / "cache", SMALL, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (6, 6)
    for row in range(6):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))
    assert len(set(images.digests.tolist())) == 6


def test_nothing_is_decoded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path)
    first = fill_cache(table, tmp_path / "cache", SMALL)
    monkeypatch.setattr(module, "prepare_image", lambda *_: pytest.fail("decoded again"))
    turned = Table("toy", table.root, True, table.frame.iloc[::-1].reset_index(drop=True))
    again = fill_cache(turned, tmp_path / "cache", SMALL)
    np.testing.assert_array_equal(again.records, first.records[::-1])


def test_changed_files_and_sizes_are_decoded(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    fill_cache(table, tmp_path / "cache", SMALL)
    Image.fromarray(np.full((40, 50), 7, np.uint8)).save(table.root / table.frame["image"][0])
    assert (fill_cache(table, tmp_path / "cache", SMALL).read([0])[0] == expected(table, 0)).all()
    assert fill_cache(table, tmp_path / "cache", Preprocess(size=48)).read([0])[0].shape == (48, 48)


def test_a_picture_digest_ignores_the_size(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    sources = fill_cache(table, tmp_path / "cache", SMALL).sources.tolist()
    assert len(set(sources)) == 6
    for preprocess in (Preprocess(size=48), Preprocess(size=32, fit="pad")):
        assert fill_cache(table, tmp_path / "cache", preprocess).sources.tolist() == sources
    for index, name in enumerate(table.frame["image"]):
        with Image.open(table.root / name) as picture:
            (picture.convert("RGB") if index < 3 else picture.copy()).save(table.root / name, compress_level=0)
    assert fill_cache(table, tmp_path / "cache", SMALL).sources.tolist() == sources


def test_a_picture_digest_tells_its_levels(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    first = fill_cache(table, tmp_path / "cache", SMALL).sources[0]
    path = table.root / table.frame["image"][0]
    with Image.open(path) as picture:
        levels = np.asarray(picture)
    other = levels.copy()
    other[0, 0] ^= 1
    digests = []
    for number, gray in enumerate((255 - levels, levels.reshape(50, 40), other)):
        Image.fromarray(gray).save(path)
        digests.append(fill_cache(table, tmp_path / str(number), SMALL).sources[0])
    assert first.tolist() not in [digest.tolist() for digest in digests]


@given(st.lists(st.tuples(st.sampled_from(("alter", "swap", "remove")), st.integers(0, 3)), max_size=6))
def test_the_cache_follows_the_files(events: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as home:
        table = make_site(Path(home), 4)
        files = [table.root / name for name in table.frame["image"]]
        fill_cache(table, Path(home) / "cache", SMALL)
        for number, (event, which) in enumerate(events):
            file, other = files[which], files[(which + 1) % 4]
            if event == "alter":
                Image.fromarray(np.full((40, 50), 10 + number, np.uint8)).save(file)
            elif event == "swap":
                file.rename(file.with_suffix(".kept"))
                other.rename(file)
                file.with_suffix(".kept").rename(other)
            else:
                (Path(home) / "cache" / "toy" / "images.sqlite").unlink()
            images = fill_cache(table, Path(home) / "cache", SMALL)
            for row in range(4):
                np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


def test_an_older_cache_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr("chestfed.data.images.preprocess.PREPROCESS_VERSION", 2)
        fill_cache(table, tmp_path / "cache", SMALL)
    change(tmp_path / "cache", "UPDATE pixels SET data = x'00'")
    images = fill_cache(table, tmp_path / "cache", SMALL)
    np.testing.assert_array_equal(images.read([0])[0], expected(table, 0))


@pytest.mark.slow
def test_processes_give_the_same_pixels(tmp_path: Path) -> None:
    table = make_site(tmp_path, 70)
    alone = fill_cache(table, tmp_path / "a", SMALL, workers=1)
    together = fill_cache(table, tmp_path / "b", SMALL, workers=2)
    assert alone.digests.tolist() == together.digests.tolist()
    assert alone.sources.tolist() == together.sources.tolist()


def test_bad_images_are_reported_or_counted(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    (table.root / table.frame["image"][1]).unlink()
    (table.root / table.frame["image"][3]).write_bytes(b"")
    with pytest.raises(SiteError) as caught:
        fill_cache(table, tmp_path / "cache", SMALL)
    text = str(caught.value)
    assert "has 2 problems" in text
    assert "images/patient00001.png: no such file (row 3 of the labels)" in text
    assert "images/patient00003.png: the file is empty (0 bytes) (row 5 of the labels)" in text
    assert "--skip-unreadable" in text
    images = fill_cache(table, tmp_path / "cache", SMALL, skip_unreadable=True)
    assert [problem.row for problem in images.quarantined] == [3, 5]
    assert (images.records < 0).tolist() == [False, True, False, True, False, False]
    with assert_refused(ImageError, "unreadable row"):
        images.read([1])


def test_sites_are_reported_together(tmp_path: Path) -> None:
    tables = {name: replace(make_site(tmp_path / name), name=name) for name in ("first", "second", "third")}
    decoded: list[str] = []

    def fill(*, skip_unreadable: bool = False) -> dict[str, CachedImages]:
        bind = partial(partial, lambda name, *_: decoded.append(name))
        return fill_caches(tables, tmp_path / "cache", SMALL, skip_unreadable=skip_unreadable, progress=bind)

    (tables["third"].root / tables["third"].frame["image"][1]).unlink()
    with pytest.raises(SiteError) as missing:
        fill()
    assert [(problem.kind, problem.row) for problem in missing.value.problems] == [("missing image", 3)]
    assert not decoded
    for name in ("first", "third"):
        (tables[name].root / tables[name].frame["image"][1]).write_bytes(b"")
    with pytest.raises(SeveralSitesError) as unreadable:
        fill()
    assert [error.site for error in unreadable.value.errors] == ["first", "third"]
    assert all(f"site '{name}' has 1 problem" in str(unreadable.value) for name in ("first", "third"))
    assert set(decoded) == set(tables)
    decoded.clear()
    assert [len(images.quarantined) for images in fill(skip_unreadable=True).values()] == [1, 0, 1]
    assert not decoded  # it was kept


def test_no_name_is_stored(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    images = fill_cache(table, tmp_path / "cache", SMALL)
    for file in images.database.file.parent.iterdir():
        assert b"patient0" not in file.read_bytes()
        assert os.name == "nt" or file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("harm", ["DELETE FROM pixels", *(f"UPDATE pixels SET data = {data}" for data in WRONG)])
def test_damaged_pixels_are_refused(tmp_path: Path, harm: str) -> None:
    table = make_site(tmp_path)
    images = fill_cache(table, tmp_path / "cache", SMALL)
    change(tmp_path / "cache", harm)
    with pytest.raises(ImageError):
        images.read([0])


def fill(table: Table, folder: Path, preprocess: Preprocess, batch: int, seals: int = 10**9, room: int = 0) -> None:
    """Fill the cache; the process dies at the row with this number, or runs out of disk beyond `room` bytes."""
    original, count = database._seal, 0

    def seal(*row: Any) -> bytes:
        nonlocal count
        count += 1
        if count == seals:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*row)

    database._seal, file_store._BATCH = seal, batch
    if room:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        fill_cache(table, folder, preprocess, workers=1)
    except ChestfedError as error:
        os._exit(7 if "cannot be written" in str(error) else 1)


#: Rows that are sealed in a batch of ten: a result and a file each.
CALLS = 20


def run(*arguments: Any) -> int | None:
    process = FORK.Process(target=fill, args=arguments)
    process.start()
    process.join(120)
    return process.exitcode


@pytest.mark.skipif(os.name == "nt", reason="POSIX limits")
def test_a_full_disk_keeps_finished_work(tmp_path: Path) -> None:
    table, big, totals = make_site(tmp_path, 24), Preprocess(size=320), set[int]()
    assert run(table, tmp_path / "cache", big, 4, 10**9, 1_600_000) == 7
    images = fill_cache(table, tmp_path / "cache", big, progress=lambda done, total: totals.add(total))
    assert max(totals) < 24
    np.testing.assert_array_equal(images.read([23])[0], expected(table, 23, big))


@pytest.mark.slow_but("0.1-32", "0.9-640")
@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal")
@pytest.mark.parametrize("size", [32, 640])  # of the larger ones a part reaches the disk before the transaction ends
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_killed_process_loses_one_batch(tmp_path: Path, size: int, part: float) -> None:
    table, preprocess, totals = make_site(tmp_path, 20), Preprocess(size=size), set[int]()
    assert run(table, tmp_path / "cache", preprocess, 10, CALLS + int(part * CALLS)) == -signal.SIGKILL
    images = fill_cache(table, tmp_path / "cache", preprocess, progress=lambda done, total: totals.add(total))
    assert totals == {10}
    for row in range(20):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row, preprocess))


def test_two_processes_fill_one_cache(tmp_path: Path) -> None:
    table = make_site(tmp_path, 40)
    both = [FORK.Process(target=fill, args=(table, tmp_path / "cache", SMALL, 3)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    images = fill_cache(table, tmp_path / "cache", SMALL)
    assert len(set(images.records.tolist())) == 40
    for row in range(40):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


def test_a_shortened_secret_is_refused(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    fill_cache(table, tmp_path / "cache", SMALL)
    change(tmp_path / "cache", "UPDATE secret SET value = x''")
    with assert_refused(ChestfedError, "damaged cache"):
        fill_cache(table, tmp_path / "cache", SMALL)


@pytest.mark.parametrize("damage", ["filled", "cut", "text", "version"])
def test_a_damaged_database_is_named(tmp_path: Path, damage: str) -> None:
    table = make_site(tmp_path)
    file = fill_cache(table, tmp_path / "cache", SMALL).database.file
    content = file.read_bytes()
    if damage == "version":
        change(tmp_path / "cache", "PRAGMA user_version = 9")
    else:
        filled = content[:16384] + b"\xff" * (len(content) - 16384)
        file.write_bytes({"filled": filled, "cut": content[:40_000], "text": b"no database" * 1000}[damage])
    with assert_refused(ChestfedError, "damaged cache", file=file.name):
        fill_cache(table, tmp_path / "cache", SMALL)
    file.unlink()
    np.testing.assert_array_equal(fill_cache(table, tmp_path / "cache", SMALL).read([0])[0], expected(table, 0))


def test_an_impossible_name_is_missing(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    table.frame["image"] = table.frame["image"].astype(object)
    table.frame.loc[0, "image"] = "a\0b.png"
    images = fill_cache(table, tmp_path / "cache", SMALL, skip_unreadable=True)
    assert [problem.kind for problem in images.quarantined] == ["missing image"]
