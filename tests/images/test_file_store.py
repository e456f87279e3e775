"""What a bad day does to the cache: no good image is lost, and none is decoded twice."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from chestfed.cli import app
from chestfed.core.errors import ChestfedError, SiteError
from chestfed.core.workers import spread
from chestfed.images import cache, file_store, index
from chestfed.images.cache import CachedImages, fill_cache
from chestfed.images.decode import prepared
from chestfed.images.file_store import NOT_READ_NOW
from chestfed.images.levels import Stored
from chestfed.inspection import facts
from tests.cases import each
from tests.images.lethal import decode_or_die
from tests.images.test_cache import FORK, SMALL, Table, expected, make_site

BAD_DAYS = {
    "I/O error": OSError(errno.EIO, "Input/output error"),
    "stale handle": OSError(errno.ESTALE, "Stale file handle"),
    "out of handles": OSError(errno.EMFILE, "Too many open files"),
    "access denied": PermissionError(errno.EACCES, "Permission denied"),
    "no memory, by the system": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "no memory": MemoryError(),
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "_PAUSES", (0.0, 0.0))


@contextmanager
def counting(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None = None, times: int = 10**6
) -> Iterator[list[str]]:
    """The names of the files that are decoded; the first of them fails so often."""
    seen: list[str] = []

    def decoding(path: Path, *how: Any) -> tuple[np.ndarray, bytes]:
        seen.append(path.name)
        if error is not None and path.name == "patient00002.png" and seen.count(path.name) <= times:
            raise error
        return prepared(path, *how)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "prepared", decoding)
        yield seen


def filled(table: Table, folder: Path, **more: bool) -> CachedImages:
    images = fill_cache(table, folder, SMALL, **more)
    for row in np.flatnonzero(images.records >= 0).tolist():
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))
    return images


@each("name", BAD_DAYS)
def test_an_error_of_the_machine_is_reported_as_such_and_forgotten(tmp_path: Path, name: str) -> None:
    table = make_site(tmp_path)
    with pytest.MonkeyPatch.context() as patch, counting(patch, BAD_DAYS[name]) as seen:
        patch.setattr(file_store, "_PAUSES", (0.0, 0.0))
        with pytest.raises(SiteError) as caught:
            fill_cache(table, tmp_path / "cache", SMALL)
        (problem,) = caught.value.problems
        assert (problem.kind, problem.file, problem.row) == (NOT_READ_NOW, "images/patient00002.png", 4)
        assert "may be fine" in problem.advice
        assert seen.count("patient00002.png") == (1 if "denied" in name else 3)
        skipping = filled(table, tmp_path / "cache", skip_unreadable=True)
        assert [one.kind for one in skipping.quarantined] == [NOT_READ_NOW]
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        assert filled(table, tmp_path / "cache").quarantined == ()
        assert seen == ["patient00002.png"]


def test_an_error_that_passes_is_overcome_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting(monkeypatch, BAD_DAYS["I/O error"], times=2) as seen:
        assert filled(make_site(tmp_path), tmp_path / "cache").quarantined == ()
    assert seen.count("patient00002.png") == 3
    assert len(seen) == 6 + 2


def test_an_error_of_the_disk_inside_a_decoder_is_none_of_the_file(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image.Image, "crop", lambda *_: (_ for _ in ()).throw(BAD_DAYS["I/O error"]))
        patch.setattr(file_store, "_PAUSES", ())
        with pytest.raises(SiteError) as caught:
            fill_cache(table, tmp_path / "cache", SMALL)
        assert {problem.kind for problem in caught.value.problems} == {NOT_READ_NOW}
        path = table.root / table.frame["image"][0]
        with pytest.raises(OSError, match="Input/output"):
            facts.look_at(path, Stored())
    filled(table, tmp_path / "cache")


def test_a_site_check_forgets_an_error_of_the_machine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chestfed.inspection import check_site
    from tests.inspection.planted import Hospital
    from tests.sites.own_tables import config

    Hospital(tmp_path).save()
    site, cached = config(tmp_path, {}), tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(facts, "decode_stored", lambda *_: (_ for _ in ()).throw(BAD_DAYS["I/O error"]))
        report = check_site(site, tmp_path, cache_root=cached, workers=1)
    assert {problem.kind for problem in report.errors} == {NOT_READ_NOW}
    assert report.counts.files is not None
    assert report.counts.files.readable == 0
    assert check_site(site, tmp_path, cache_root=cached, workers=1).passed


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal")
def test_a_killed_decoder_costs_one_image_and_only_this_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path, 4)
    kind = cache.pixels(SMALL)._replace(work=partial(decode_or_die, SMALL))
    monkeypatch.setattr(cache, "pixels", lambda _: kind)
    monkeypatch.setattr(file_store, "spread", partial(spread, small=1))
    (table.root / "kill").touch()
    images = fill_cache(table, tmp_path / "cache", SMALL, workers=2, skip_unreadable=True)
    assert [(problem.kind, problem.row) for problem in images.quarantined] == [(NOT_READ_NOW, 4)]
    (table.root / "kill").unlink()
    told: list[int] = []
    images = fill_cache(table, tmp_path / "cache", SMALL, workers=2, progress=lambda done, total: told.append(total))
    assert (images.quarantined, set(told)) == ((), {1})


def move(table: Table) -> Table:
    root = table.root.rename(table.root.with_name("moved"))
    return Table(table.name, root, True, table.frame)


def copy(table: Table) -> Table:
    root = Path(shutil.copytree(table.root, table.root.with_name("copy"), copy_function=shutil.copyfile))
    return Table(table.name, root, True, table.frame)


def touch(table: Table) -> Table:
    for file in table.root.rglob("*.png"):
        os.utime(file, (1, 1))
    return table


def rename(table: Table) -> Table:
    names = [name.replace("patient", "p") for name in table.frame["image"]]
    for old, new in zip(table.frame["image"], names, strict=True):
        (table.root / old).rename(table.root / new)
    return Table(table.name, table.root, True, table.frame.assign(image=names))


CHANGES = {"moved folder": move, "copied without times": copy, "touched": touch, "renamed": rename}


@each("name", CHANGES)
def test_the_same_content_is_found_again_and_not_decoded(tmp_path: Path, name: str) -> None:
    table = make_site(tmp_path)
    first = fill_cache(table, tmp_path / "cache", SMALL)
    size = first.file.stat().st_size
    changed = CHANGES[name](table)
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        again = fill_cache(changed, tmp_path / "cache", SMALL)
        assert seen == []
        assert again.records.tolist() == first.records.tolist()
        assert again.file.stat().st_size == size
        patch.setattr(file_store, "_result_of", lambda *_: pytest.fail("opened again"))
        fill_cache(changed, tmp_path / "cache", SMALL)


def test_a_file_replaced_by_another_of_the_same_size_and_time_is_noticed(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    filled(table, tmp_path / "cache")
    path = table.root / table.frame["image"][0]
    before = path.stat()
    other = tmp_path / "other.png"
    for number, replace in enumerate((path.write_bytes, lambda _: other.replace(path))):
        Image.fromarray(np.full((40, 50), 9 + number, np.uint8)).save(other)
        content = other.read_bytes()
        other.write_bytes(content + bytes(before.st_size - len(content)))
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        replace(other.read_bytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        filled(table, tmp_path / "cache")


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path)

    def growing(path: Path, *how: Any) -> tuple[np.ndarray, bytes]:
        found = prepared(path, *how)
        if path.name == "patient00002.png":
            path.write_bytes(path.read_bytes() + b"more")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(cache, "prepared", growing)
        with pytest.raises(SiteError, match="it changed while it was read"):
            fill_cache(table, tmp_path / "cache", SMALL)
    filled(table, tmp_path / "cache")


def read_as_nobody(table: Table, folder: Path, state: str, told: Connection) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    if state == "complete":
        cache.prepared = lambda *_: pytest.fail("decoded again")
    try:
        images = fill_cache(table, folder, SMALL)
        told.send(str(sum(int(images.read([row])[0].sum()) for row in range(len(table.frame)))))
    except ChestfedError as error:
        told.send(f"ERROR {error}")


@pytest.fixture
def others() -> Iterator[Path]:
    """A folder that other users can enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def as_reader(root: Path, table: Table, site: str = "site", state: str = "complete") -> str:
    """What another user, or this one without rights to write, gets from the cache."""
    here, there = FORK.Pipe(duplex=False)
    seen = Table(table.name, root / site, True, table.frame)
    process = FORK.Process(target=read_as_nobody, args=(seen, root / "cache", state, there))
    process.start()
    there.close()
    process.join(120)
    assert process.exitcode == 0
    return here.recv()


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_complete_cache_serves_a_reader_who_may_not_write_and_another_user_if_it_is_opened(others: Path) -> None:
    table = make_site(others)
    images = filled(table, others / "cache")
    total = str(sum(int(images.read([row])[0].sum()) for row in range(6)))
    if os.geteuid() == 0:
        assert as_reader(others, table).startswith("ERROR")
        assert "chmod -R g+rX" in as_reader(others, table)
    copy(table)
    (table.root / table.frame["image"][0]).rename(others / "away.png")
    for path in (others / "cache").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (others / "cache").chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in (others / "cache").rglob("*")}
    assert as_reader(others, table, "copy") == total
    assert "patient00000.png:2: no such file" in as_reader(others, table)
    Image.new("L", (40, 50)).save(table.root / table.frame["image"][0])
    assert "cannot be written" in as_reader(others, table, state="lacking")
    assert {path: path.stat().st_mtime_ns for path in (others / "cache").rglob("*")} == before


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_in_a_folder_of_a_group_everything_is_the_groups(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o2770)
    images = fill_cache(make_site(tmp_path), tmp_path / "cache", SMALL)
    for path in images.file.parent.iterdir():
        if path.name != "cache.json":
            assert path.stat().st_mode & 0o777 == 0o660, path.name
    assert images.file.parent.stat().st_mode & stat.S_IWGRP


def run(*command: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cache", *command])
    return (1 if isinstance(result.exception, ChestfedError) else result.exit_code), result.output


def test_a_cache_is_listed_verified_and_pruned(tmp_path: Path) -> None:
    table, folder = make_site(tmp_path, 8), tmp_path / "cache"
    (table.root / table.frame["image"][7]).write_bytes(b"nothing")
    images = fill_cache(table, folder, SMALL, skip_unreadable=True)
    assert run("verify", str(tmp_path)) == (0, f"{tmp_path}: no cache found\n")
    assert run("prune", str(tmp_path / "none")) == (0, f"{tmp_path / 'none'}: no cache found\n")
    code, shown = run("list", str(folder))
    assert code == 0
    assert [cell.strip() for cell in shown.splitlines()[3].split("  ") if cell.strip()][:4] == [
        "toy",
        f"pixels {images.file.stem.removeprefix('pixels-')}",
        "8",
        "1",
    ]
    assert run("verify", str(folder))[0] == 0
    with images.file.open("r+b") as file:
        file.seek(3 * 32 * 32)
        file.write(b"\x01\x02\x03")
    code, shown = run("verify", str(folder))
    assert (code, "8 checked, 1 damaged" in shown.replace("\n", " ")) == (1, True)
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        filled(table, folder, skip_unreadable=True)
        assert seen == ["patient00003.png"]
    Image.new("L", (40, 50), 7).save(table.root / table.frame["image"][0])
    filled(table, folder, skip_unreadable=True)
    assert images.file.stat().st_size == 9 * 32 * 32
    code, shown = run("prune", str(folder))
    assert (code, images.file.stat().st_size) == (0, 7 * 32 * 32)
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        filled(table, folder, skip_unreadable=True)
        assert seen == []
    assert run("verify", str(folder))[0] == 0
    assert run("prune", str(folder), "--unused", "1")[0] == 0
    assert images.file.exists()
    os.utime(images.file.with_suffix(".sqlite"), (1, 1))
    run("prune", str(folder), "--unused", "1")
    assert not images.file.exists()


def test_lost_pixels_are_decoded_again(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    images = filled(table, tmp_path / "cache")
    os.truncate(images.file, 4 * 32 * 32 - 1)
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        filled(table, tmp_path / "cache")
        assert len(seen) == 3
    images.file.unlink()
    filled(table, tmp_path / "cache")


def test_the_same_picture_twice_in_a_site_has_one_record(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    shutil.copyfile(table.root / table.frame["image"][0], table.root / table.frame["image"][2])
    images = filled(table, tmp_path / "cache")
    assert images.records[0] == images.records[2]
    assert images.file.stat().st_size == 5 * 32 * 32


@each("many", [1, 100])
def test_keys_that_end_with_zeros_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(index, "_MANY", many)
    kept = index.Index(tmp_path / "some.sqlite", {"number": np.int64, "blob": index.KEY})
    keys = [b"a" * 15 + b"\0", b"a" * 14 + b"\0\0", b"b" * 16]
    kept.keep([(key, number, key) for number, key in enumerate(keys)])
    known, found = kept.find(index.packed([*keys[::-1], bytes(16), keys[0]]))
    assert known.tolist() == [True, True, True, False, True]
    assert found["number"][known].tolist() == [2, 1, 0, 0]
    assert index.blobs(found["blob"][known]) == [keys[2], keys[1], keys[0], keys[0]]


def test_an_index_that_another_process_is_just_making_holds_nothing_yet(tmp_path: Path) -> None:
    kept = index.Index(tmp_path / "some.sqlite", {"number": np.int64})
    kept.file.touch()  # as sqlite leaves it between opening it and the first table
    assert (kept.count(), list(kept.all())) == (0, [])
    assert not kept.has(index.packed([b"a" * 16])).any()
    kept.keep([(b"a" * 16, 1)])
    assert kept.has(index.packed([b"a" * 16])).all()
