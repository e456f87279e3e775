"""The cache: made once, exact, without names, safe against interruption and a second process."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from chestfed.core.errors import ChestfedError, ImageError, SiteError
from chestfed.images import cache as module
from chestfed.images import file_store
from chestfed.images.cache import fill_cache
from chestfed.images.decode import decode
from chestfed.images.levels import Stored
from chestfed.images.preprocess import Preprocess

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


def make_site(folder: Path, count: int = 6) -> Table:
    """A site of small random pictures."""
    root = folder / "site"
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = [f"images/patient{index:05d}.png" for index in range(count)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (40, 50), dtype=np.uint8)).save(root / name)
    frame = pd.DataFrame({"image": names, "row": range(2, count + 2), "inverted": [i % 2 == 1 for i in range(count)]})
    return Table("toy", root, True, frame)


def expected(table: Table, row: int) -> np.ndarray:
    return SMALL.apply(decode(table.root / table.frame["image"][row], table.stored()[row]))


def test_it_gives_back_what_decoding_and_resizing_give(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    told: list[tuple[int, int]] = []
    images = fill_cache(table, tmp_path / "cache", SMALL, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (6, 6)
    for row in range(6):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))
    assert len(set(images.digests.tolist())) == 6


def test_nothing_is_decoded_twice_and_rows_may_come_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_site(tmp_path)
    first = fill_cache(table, tmp_path / "cache", SMALL)
    monkeypatch.setattr(module, "prepared", lambda *_: pytest.fail("decoded again"))
    turned = Table("toy", table.root, True, table.frame.iloc[::-1].reset_index(drop=True))
    again = fill_cache(turned, tmp_path / "cache", SMALL)
    np.testing.assert_array_equal(again.records, first.records[::-1])


def test_a_changed_file_or_another_size_is_decoded_anew(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    fill_cache(table, tmp_path / "cache", SMALL)
    Image.fromarray(np.full((40, 50), 7, np.uint8)).save(table.root / table.frame["image"][0])
    assert (fill_cache(table, tmp_path / "cache", SMALL).read([0])[0] == expected(table, 0)).all()
    assert fill_cache(table, tmp_path / "cache", Preprocess(size=48)).read([0])[0].shape == (48, 48)


def test_the_digest_of_a_picture_is_the_same_at_every_size_and_when_it_is_saved_anew(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    sources = fill_cache(table, tmp_path / "cache", SMALL).sources.tolist()
    assert len(set(sources)) == 6
    for preprocess in (Preprocess(size=48), Preprocess(size=32, fit="pad")):
        assert fill_cache(table, tmp_path / "cache", preprocess).sources.tolist() == sources
    for index, name in enumerate(table.frame["image"]):
        with Image.open(table.root / name) as picture:
            (picture.convert("RGB") if index < 3 else picture.copy()).save(table.root / name, compress_level=0)
    assert fill_cache(table, tmp_path / "cache", SMALL).sources.tolist() == sources


def test_the_digest_of_a_picture_tells_its_inversion_shape_and_levels(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    first = fill_cache(table, tmp_path / "cache", SMALL).sources[0]
    path = table.root / table.frame["image"][0]
    with Image.open(path) as picture:
        levels = np.asarray(picture)
    other = levels.copy()
    other[0, 0] ^= 1
    found = []
    for number, gray in enumerate((255 - levels, levels.reshape(50, 40), other)):
        Image.fromarray(gray).save(path)
        found.append(fill_cache(table, tmp_path / str(number), SMALL).sources[0])
    assert first.tolist() not in [one.tolist() for one in found]


@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(("alter", "swap", "remove", "cut")), st.integers(0, 3)), max_size=6))
def test_whatever_happens_to_the_files_between_two_studies_the_cache_gives_what_they_hold(
    events: list[tuple[str, int]],
) -> None:
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
                pixels = next((Path(home) / "cache").rglob("*.u8"), None)
                if pixels is not None:
                    pixels.unlink() if event == "remove" else os.truncate(pixels, pixels.stat().st_size // 2)
            images = fill_cache(table, Path(home) / "cache", SMALL)
            for row in range(4):
                np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


def test_a_cache_of_an_earlier_version_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr("chestfed.images.preprocess.PREPROCESS_VERSION", 2)
        old = fill_cache(table, tmp_path / "cache", SMALL).file
    old.with_suffix(".sqlite").write_bytes(b"not read")
    images = fill_cache(table, tmp_path / "cache", SMALL)
    np.testing.assert_array_equal(images.read([0])[0], expected(table, 0))


def test_processes_give_the_same_pixels(tmp_path: Path) -> None:
    table = make_site(tmp_path, 70)
    alone = fill_cache(table, tmp_path / "a", SMALL, workers=1)
    together = fill_cache(table, tmp_path / "b", SMALL, workers=2)
    assert alone.digests.tolist() == together.digests.tolist()
    assert alone.sources.tolist() == together.sources.tolist()


def test_all_missing_and_unreadable_images_are_in_one_report_or_left_out_and_counted(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    (table.root / table.frame["image"][1]).unlink()
    (table.root / table.frame["image"][3]).write_bytes(b"")
    with pytest.raises(SiteError) as caught:
        fill_cache(table, tmp_path / "cache", SMALL)
    text = str(caught.value)
    assert "has 2 problems" in text
    assert "images/patient00001.png:3: no such file" in text
    assert "images/patient00003.png:5: the file is empty (0 bytes)" in text
    assert "--skip-unreadable" in text
    images = fill_cache(table, tmp_path / "cache", SMALL, skip_unreadable=True)
    assert [problem.row for problem in images.quarantined] == [3, 5]
    assert (images.records < 0).tolist() == [False, True, False, True, False, False]
    with pytest.raises(ImageError, match="no readable image"):
        images.read([1])


def test_no_file_name_is_stored_and_the_salt_is_the_owners(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    images = fill_cache(table, tmp_path / "cache", SMALL)
    for file in images.file.parent.iterdir():
        assert b"patient0" not in file.read_bytes()
    if os.name != "nt":
        assert (images.file.parent / "salt").stat().st_mode & 0o077 == 0


def test_a_damaged_cache_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    images = fill_cache(table, tmp_path / "cache", SMALL)
    with images.file.open("r+b") as file:
        file.write(b"\x00" * 900)
    with pytest.raises(ImageError, match=r"is damaged.*cache verify"):
        images.read([0])


def test_a_full_disk_is_a_clear_error_and_what_was_decoded_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_site(tmp_path, 10)
    monkeypatch.setattr(file_store, "_BATCH", 4)
    original, calls = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError(28, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(module.os, "fsync", fsync)
    with pytest.raises(ChestfedError, match=r"No space left on device.*Finished work is kept"):
        fill_cache(table, tmp_path / "cache", SMALL)
    told: list[int] = []
    images = fill_cache(table, tmp_path / "cache", SMALL, progress=lambda done, total: told.append(total))
    assert set(told) == {6}
    for row in range(10):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


def fill(table: Table, folder: Path, killed: str = "") -> None:
    """Fill the cache, three images at a time; `killed`: the process dies before or after its second `fsync`."""
    original, calls = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == 2 and killed == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(descriptor)
        if calls[0] == 2 and killed:
            os.kill(os.getpid(), signal.SIGKILL)

    module.os.fsync, file_store._BATCH = fsync, 3
    fill_cache(table, folder, SMALL)


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_while_filling_loses_a_batch_at_most(tmp_path: Path, moment: str) -> None:
    table = make_site(tmp_path, 10)
    process = FORK.Process(target=fill, args=(table, tmp_path / "cache", moment))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    told: list[int] = []
    images = fill_cache(table, tmp_path / "cache", SMALL, progress=lambda done, total: told.append(total))
    assert set(told) == {7}
    for row in range(10):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


def test_two_processes_at_once_fill_one_cache(tmp_path: Path) -> None:
    table = make_site(tmp_path, 40)
    both = [FORK.Process(target=fill, args=(table, tmp_path / "cache")) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    images = fill_cache(table, tmp_path / "cache", SMALL)
    assert sorted(images.records) == list(range(40))
    for row in range(40):
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))


@pytest.mark.parametrize("salt", [b"", bytes(100)])
def test_a_salt_that_is_not_whole_is_refused_and_not_worked_with(tmp_path: Path, salt: bytes) -> None:
    table = make_site(tmp_path)
    images = fill_cache(table, tmp_path / "cache", SMALL)
    (images.file.parent / "salt").write_bytes(salt)
    with pytest.raises(ChestfedError, match="Delete the folder"):
        fill_cache(table, tmp_path / "cache", SMALL)


def test_a_damaged_index_says_what_to_delete(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    images = fill_cache(table, tmp_path / "cache", SMALL)
    for file in (images.file.with_suffix(".sqlite"), images.file.with_name("files.sqlite")):
        content = file.read_bytes()
        file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        with pytest.raises(ChestfedError, match=f"{file.name}.*delete this file"):
            fill_cache(table, tmp_path / "cache", SMALL)
        file.unlink()
        np.testing.assert_array_equal(fill_cache(table, tmp_path / "cache", SMALL).read([0])[0], expected(table, 0))


def test_a_name_that_no_file_can_have_is_a_missing_image(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    table.frame["image"] = table.frame["image"].astype(object)
    table.frame.loc[0, "image"] = "a\0b.png"
    images = fill_cache(table, tmp_path / "cache", SMALL, skip_unreadable=True)
    assert [problem.kind for problem in images.quarantined] == ["missing image"]
