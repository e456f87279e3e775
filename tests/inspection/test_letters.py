"""The pass that looks for text in a site's pictures: kept, resumed, and cautious about what it cannot look at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from chestfed.core.errors import ChestfedError
from chestfed.images import file_store
from chestfed.inspection import letters
from chestfed.inspection.letters import UNKNOWN, Letters, scan_letters
from chestfed.inspection.scan import Scan, scan_images
from chestfed.sites import open_site
from tests.images.test_burned_in import chest, written
from tests.inspection.planted import IMAGES, Hospital
from tests.sites.own_tables import config


def scanned(folder: Path) -> Scan:
    table = open_site(config(folder, {}), folder)
    return scan_images(table, folder / "cache", workers=1)


def test_a_pass_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Hospital(tmp_path).save()
    scan = scanned(tmp_path)
    monkeypatch.setattr(file_store, "_BATCH", 8)
    looked: list[Path] = []
    original = letters.decode
    monkeypatch.setattr(letters, "decode", lambda *job: (looked.append(job[0]), original(*job))[1])

    def stop(done: int, total: int) -> None:
        assert (done, total) == (8, IMAGES)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_letters(scan, tmp_path / "cache", workers=1, progress=stop)
    before = set(looked)
    assert 8 <= len(before) < IMAGES
    looked.clear()
    told: list[tuple[int, int]] = []
    found = scan_letters(scan, tmp_path / "cache", workers=1, progress=lambda *step: told.append(step))
    assert told == [(8, 16), (16, 16)]
    assert len(looked) == 16
    assert found.counts().looked_at == IMAGES
    looked.clear()
    again = scan_letters(scan, tmp_path / "cache", workers=1)
    assert looked == []
    assert again.letters == found.letters


def test_a_picture_that_changes_is_looked_at_anew(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.save()
    Image.fromarray(chest()).save(hospital.image(0))
    assert scan_letters(scanned(tmp_path), tmp_path / "cache", workers=1).counts().text == 0
    Image.fromarray(written(chest(), "DOE JANE 4711", (40, 520), 22)).save(hospital.image(0))
    found = scan_letters(scanned(tmp_path), tmp_path / "cache", workers=1)
    assert found.counts().text == 1
    assert 0 not in found.presentable


def test_unreadable_and_blank_pictures_are_not_presentable_and_the_unreadable_not_counted(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.save()
    hospital.image(0).write_bytes(b"")
    Image.new("L", (96, 96), 9).save(hospital.image(3))
    found = scan_letters(scanned(tmp_path), tmp_path / "cache", workers=1)
    assert found.letters[0] is None
    assert found.counts().looked_at == IMAGES - 1
    assert not {0, 3} & set(found.presentable.tolist())


def test_a_picture_that_is_gone_since_the_scan_is_flagged_and_not_kept_as_such(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.save()
    scan = scanned(tmp_path)
    content = hospital.image(4).read_bytes()
    stamp = hospital.image(4).stat()
    hospital.image(4).write_bytes(b"x" * len(content))
    found = scan_letters(scan, tmp_path / "cache", workers=1)
    assert found.letters[4] == Letters(UNKNOWN)
    assert found.letters[4].flagged
    assert (found.counts().unknown, 4 in found.presentable) == (1, False)
    hospital.image(4).write_bytes(content)
    os.utime(hospital.image(4), ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert scan_letters(scan, tmp_path / "cache", workers=1).counts().unknown == 0


def test_kept_results_that_are_damaged_are_told_plainly(tmp_path: Path) -> None:
    Hospital(tmp_path).save()
    scan = scanned(tmp_path)
    scan_letters(scan, tmp_path / "cache", workers=1)
    (file,) = (tmp_path / "cache").rglob("text-*.sqlite")
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(ChestfedError, match=r"this index cannot be read.*delete this file"):
        scan_letters(scan, tmp_path / "cache", workers=1)
