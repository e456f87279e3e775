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

from chestfed.app.cli import app
from chestfed.core.errors import ChestfedError, SiteError
from chestfed.core.processes.workers import parallel_map
from chestfed.data.checks import facts
from chestfed.data.images import cache, decode, file_store
from chestfed.data.images.cache import CachedImages, fill_cache
from chestfed.data.images.decode import prepare_image
from chestfed.data.images.file_store import NOT_READ_NOW
from chestfed.data.images.levels import Stored
from tests.cases import each
from tests.data.images.lethal import decode_or_die
from tests.data.images.test_cache import FORK, SMALL, Table, change, expected, make_site

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
        return prepare_image(path, *how)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "prepare_image", decoding)
        yield seen


def filled(table: Table, folder: Path, **more: bool) -> CachedImages:
    images = fill_cache(table, folder, SMALL, **more)
    for row in np.flatnonzero(images.records >= 0).tolist():
        np.testing.assert_array_equal(images.read([row])[0], expected(table, row))
    return images


@each("name", BAD_DAYS)
def test_an_error_of_the_machine_is_not_kept(tmp_path: Path, name: str) -> None:
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
        assert [entry.kind for entry in skipping.quarantined] == [NOT_READ_NOW]
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        assert filled(table, tmp_path / "cache").quarantined == ()
        assert seen == ["patient00002.png"]


def test_an_error_that_passes_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting(monkeypatch, BAD_DAYS["I/O error"], times=2) as seen:
        assert filled(make_site(tmp_path), tmp_path / "cache").quarantined == ()
    assert seen.count("patient00002.png") == 3
    assert len(seen) == 6 + 2


def test_a_disk_error_is_not_of_the_file(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "decode_plain_png", lambda *_: (_ for _ in ()).throw(BAD_DAYS["I/O error"]))
        patch.setattr(file_store, "_PAUSES", ())
        with pytest.raises(SiteError) as caught:
            fill_cache(table, tmp_path / "cache", SMALL)
        assert {problem.kind for problem in caught.value.problems} == {NOT_READ_NOW}
        path = table.root / table.frame["image"][0]
        with pytest.raises(OSError, match="Input/output"):
            facts.look_at(path, Stored())
    filled(table, tmp_path / "cache")


def test_a_site_check_keeps_no_machine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chestfed.data.checks import check_site
    from tests.data.checks.planted import Hospital
    from tests.data.sites.own_tables import config

    Hospital(tmp_path).save()
    site, cached = config(tmp_path, {}), tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(facts, "decode_stored", lambda *_: (_ for _ in ()).throw(BAD_DAYS["I/O error"]))
        report = check_site(site, tmp_path, cache_root=cached, workers=1)
    assert {problem.kind for problem in report.errors} == {NOT_READ_NOW}
    assert report.counts.files is not None
    assert report.counts.files.readable == 0
    assert check_site(site, tmp_path, cache_root=cached, workers=1).passed


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal")
def test_a_killed_decoder_costs_one_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path, 4)
    kind = cache.pixels(SMALL)._replace(work=partial(decode_or_die, SMALL))
    monkeypatch.setattr(cache, "pixels", lambda _: kind)
    monkeypatch.setattr(file_store, "parallel_map", partial(parallel_map, small=1))
    (table.root / "kill").touch()
    images = fill_cache(table, tmp_path / "cache", SMALL, workers=2, skip_unreadable=True)
    assert [(problem.kind, problem.row) for problem in images.quarantined] == [(NOT_READ_NOW, 4)]
    (table.root / "kill").unlink()
    totals: list[int] = []
    images = fill_cache(table, tmp_path / "cache", SMALL, workers=2, progress=lambda done, total: totals.append(total))
    assert (images.quarantined, set(totals)) == ((), {1})


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
def test_known_content_is_not_decoded(tmp_path: Path, name: str) -> None:
    table = make_site(tmp_path)
    first = fill_cache(table, tmp_path / "cache", SMALL)
    changed = CHANGES[name](table)
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        again = fill_cache(changed, tmp_path / "cache", SMALL)
        assert seen == []
        assert again.records.tolist() == first.records.tolist()
        patch.setattr(file_store, "_work_on_file", lambda *_: pytest.fail("opened again"))
        fill_cache(changed, tmp_path / "cache", SMALL)


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
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


def test_a_file_that_changes_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_site(tmp_path)

    def growing(path: Path, *how: Any) -> tuple[np.ndarray, bytes]:
        result = prepare_image(path, *how)
        if path.name == "patient00002.png":
            path.write_bytes(path.read_bytes() + b"more")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(cache, "prepare_image", growing)
        with pytest.raises(SiteError) as caught:
            fill_cache(table, tmp_path / "cache", SMALL)
        assert [problem.kind for problem in caught.value.problems] == ["image not read this time"]
    filled(table, tmp_path / "cache")


def read_as_nobody(table: Table, folder: Path, state: str, pipe: Connection) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    if state == "complete":
        cache.prepare_image = lambda *_: pytest.fail("decoded again")
    try:
        images = fill_cache(table, folder, SMALL)
        pipe.send(str(sum(int(images.read([row])[0].sum()) for row in range(len(table.frame)))))
    except ChestfedError as error:
        pipe.send(f"ERROR {error}")


@pytest.fixture
def public_folder() -> Iterator[Path]:
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
def test_a_complete_cache_serves_other_users(public_folder: Path) -> None:
    table = make_site(public_folder)
    images = filled(table, public_folder / "cache")
    total = str(sum(int(images.read([row])[0].sum()) for row in range(6)))
    if os.geteuid() == 0:
        assert as_reader(public_folder, table).startswith("ERROR")
        assert "chmod -R g+rX" in as_reader(public_folder, table)
    copy(table)
    (table.root / table.frame["image"][0]).rename(public_folder / "away.png")
    for path in (public_folder / "cache").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (public_folder / "cache").chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in (public_folder / "cache").rglob("*")}
    assert as_reader(public_folder, table, "copy") == total
    assert "patient00000.png: no such file" in as_reader(public_folder, table)
    Image.new("L", (40, 50)).save(table.root / table.frame["image"][0])
    assert "cannot be written" in as_reader(public_folder, table, state="lacking")
    assert {path: path.stat().st_mtime_ns for path in (public_folder / "cache").rglob("*")} == before


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_groups_folder_is_the_groups(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o2770)
    images = fill_cache(make_site(tmp_path), tmp_path / "cache", SMALL)
    folder = images.database.file.parent
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o660, path.name
    assert folder.stat().st_mode & stat.S_IWGRP


def run(*command: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cache", *command])
    return (1 if isinstance(result.exception, ChestfedError) else result.exit_code), result.output


def test_a_cache_is_listed_and_pruned(tmp_path: Path) -> None:
    table, folder = make_site(tmp_path, 8), tmp_path / "cache"
    (table.root / table.frame["image"][7]).write_bytes(b"nothing")
    name = cache.pixels(SMALL).name

    def rows() -> tuple[int, int]:
        return database.count("pixels"), database.count(name)

    database = fill_cache(table, folder, SMALL, skip_unreadable=True).database
    for missing in (str(tmp_path), str(tmp_path / "none")):
        assert run("list", missing) == run("prune", missing) == (0, f"{missing}: no cache found\n")
    code, shown = run("list", str(folder))
    (line,) = (line for line in shown.splitlines() if "toy" in line)
    assert (code, line.split()[:5]) == (0, ["toy", "pixels", name.removeprefix("pixels-"), "8", "1"])
    change(folder, "UPDATE pixels SET data = zeroblob(1024) WHERE number = 4")
    Image.new("L", (40, 50), 7).save(table.root / table.frame["image"][0])
    filled_but_damaged = fill_cache(table, folder, SMALL, skip_unreadable=True)
    assert (filled_but_damaged.quarantined[0].row, rows()) == (9, (8, 9))
    code, shown = run("prune", str(folder))
    assert (code, "1 damaged" in shown, rows()) == (0, True, (6, 7))
    with pytest.MonkeyPatch.context() as patch, counting(patch) as seen:
        filled(table, folder, skip_unreadable=True)
        assert seen == ["patient00003.png"]
    assert "0 damaged" in run("prune", str(folder), "--unused", "1")[1]
    assert rows() == (7, 8)
    change(folder, "UPDATE kinds SET used = 1")
    size = database.file.stat().st_size
    run("prune", str(folder), "--unused", "1")
    assert (rows(), database.kinds()) == ((0, 0), {})
    assert database.file.stat().st_size < size
    filled(table, folder, skip_unreadable=True)


def test_equal_pictures_have_one_record(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    shutil.copyfile(table.root / table.frame["image"][0], table.root / table.frame["image"][2])
    images = filled(table, tmp_path / "cache")
    assert images.records[0] == images.records[2]
    assert images.database.count("pixels") == 5
