"""The database of a site: keys, and bits that have changed: a result is what was written, or is made again."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ChestfedError, SiteError
from chestfed.data.images import database, maintenance
from chestfed.data.images.cache import CachedImages, fill_cache
from chestfed.data.images.database import KEY, Database, Row, pack_keys, unpack_keys
from chestfed.data.images.maintenance import prune
from tests.cases import assert_refused
from tests.data.images.test_cache import FORK, SMALL, Table, make_site

IMAGES = 4


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A site with one image that cannot be read, and its cache beside it."""
    table = make_site(tmp_path_factory.mktemp("site"), IMAGES)
    (table.root / table.frame["image"][3]).write_bytes(b"nothing")
    fill_cache(table, table.root.parent / "cache", SMALL, skip_unreadable=True)
    return table


@contextmanager
def copied(table: Table) -> Iterator[Path]:
    """A copy of the cache, to change."""
    with TemporaryDirectory() as home:
        yield Path(shutil.copytree(table.root.parent / "cache", Path(home) / "cache"))


def read(table: Table, cache: Path) -> list[Any]:
    """Everything that a cache says of the images."""
    images: CachedImages = fill_cache(table, cache, SMALL, skip_unreadable=True)
    pixels = [images.read([row])[0].tolist() for row in np.flatnonzero(images.records >= 0)]
    return [pixels, images.digests.tolist(), images.sources.tolist(), [str(entry) for entry in images.quarantined]]


def flip_cell(cell: Any, bit: int) -> Any:
    """The cell with one bit of its content changed."""
    if cell is None or isinstance(cell, int):
        return (cell or 0) ^ 1 << bit % 32
    content = bytearray(cell.encode() if isinstance(cell, str) else cell)
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    return bytes(content) if isinstance(cell, bytes) else content.decode("latin-1")


@pytest.mark.slow
@given(kind=st.sampled_from(["pixels-", "files"]), column=st.integers(0, 9), row=st.integers(0, 3), bit=st.integers(0))
def test_a_flipped_bit_of_a_cell_is_noticed(table: Table, kind: str, column: int, row: int, bit: int) -> None:
    with copied(table) as cache:
        (file,) = cache.glob("*/*.sqlite")
        with closing(sqlite3.connect(file)) as connection, connection:
            query = "SELECT name FROM sqlite_master WHERE name LIKE ?"
            ((table_name,),) = connection.execute(query, (f"{kind}%",)).fetchall()
            names = [column[1] for column in connection.execute(f"PRAGMA table_info('{table_name}')")]
            name, cells = (
                names[column % len(names)],
                connection.execute(f"SELECT * FROM '{table_name}'").fetchall()[row],
            )
            changed = flip_cell(cells[column % len(names)], bit)
            connection.execute(f"UPDATE '{table_name}' SET {name} = ? WHERE key = ?", (changed, cells[0]))
        again = Path(shutil.copytree(cache, cache.with_name("again")))
        assert prune(cache)[1] == {"toy": 1}
        expected = read(table, table.root.parent / "cache")
        assert read(table, cache) == expected
        assert read(table, again) == expected


def test_a_flipped_index_bit_is_noticed(table: Table) -> None:
    expected, chance, refused = read(table, table.root.parent / "cache"), random.Random(0), 0
    for _ in range(80):
        with copied(table) as cache:
            file = chance.choice(sorted(cache.glob("*/*.sqlite")))
            content = bytearray(file.read_bytes())
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
            try:
                assert read(table, cache) == expected
            except SiteError:
                raise
            except ChestfedError:
                refused += 1
    assert refused < 80


def test_keys_ending_in_zeros_differ(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.sqlite")
    database.create()
    keys = [b"a" * 15 + b"\0", b"a" * 14 + b"\0\0", b"b" * 16]
    database.add({"some": [Row(key, (number, key)) for number, key in enumerate(keys)]})
    known, numbers, cells = database.find("some", {"n": np.int64, "blob": KEY}, pack_keys([*keys[::-1], bytes(16)]))
    assert (known.tolist(), numbers.tolist()) == ([True, True, True, False], [-1] * 4)
    assert cells["n"].tolist() == [2, 1, 0, 0]
    assert unpack_keys(cells["blob"][known]) == keys[::-1]


def test_a_database_just_being_made_is_empty(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.sqlite")
    database.file.touch()  # as sqlite leaves it between opening it and the first table
    assert (database.count("some"), database.has("some", b"a" * 16)) == (0, False)
    database.create()
    database.add({"some": [Row(b"a" * 16, (1,))]})
    assert database.has("some", b"a" * 16)


def _hold(file: Path, ready: Event, release: Event) -> None:
    """A process that has the lock of a cache for writing, and the lock of who fills it."""
    with FileLock(file.with_suffix(".lock")), closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        ready.set()
        release.wait(60)


@contextmanager
def locked(cache: Path) -> Iterator[tuple[Database, Event, int]]:
    """A cache that another process has locked, until the event is set; with its process id."""
    (file,) = cache.rglob("images.sqlite")
    ready, release = FORK.Event(), FORK.Event()
    process = FORK.Process(target=_hold, args=(file, ready, release))
    process.start()
    try:
        assert ready.wait(60)
        assert process.pid is not None
        yield Database(file), release, process.pid
    finally:
        release.set()
        process.join(60)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not say who has a lock")
def test_busy_cache_is_waited_for_and_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(database, "_PATIENCE", 0.05)
    find = database.find_lock_holder
    with copied(table) as cache, locked(cache) as (file, release, process):

        def release_named(path: Path) -> str:
            holder = find(path)
            release.set()
            return holder

        with monkeypatch.context() as patch:
            patch.setattr(database, "_LONGEST", 0.0)
            with assert_refused(ChestfedError, "busy cache", file=file.file.name) as error:
                Database(file.file).count("files")
            assert str(process) in str(error.value.fields["process"])
        monkeypatch.setattr(database, "find_lock_holder", release_named)
        assert file.count("files") == IMAGES
        assert str(process) in capsys.readouterr().err


def test_a_batch_takes_no_lock(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with copied(table) as cache:
        images = fill_cache(table, cache, SMALL, skip_unreadable=True)
        expected, connections = images.read([0, 1, 2]).tolist(), list[int]()
        with locked(cache):
            monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: connections.append(1))
            assert images.read([0, 1, 2]).tolist() == expected
        assert not connections


def test_a_fork_reads_by_connections_of_its_own(table: Table) -> None:
    with copied(table) as cache:
        images = fill_cache(table, cache, SMALL, skip_unreadable=True)
        images.read([0])
        kept = database._thread_readers()
        process = FORK.Process(
            target=lambda: os._exit(int(database._thread_readers() is kept or not images.read([1]).any()))
        )
        process.start()
        process.join(60)
        assert process.exitcode == 0


def test_what_is_added_later_is_read(tmp_path: Path) -> None:
    table = make_site(tmp_path)
    half = Table("toy", table.root, True, table.frame.iloc[:3])
    first = fill_cache(half, tmp_path / "cache", SMALL)
    first.read([0])
    images = fill_cache(table, tmp_path / "cache", SMALL)
    assert images.read(range(6)).tolist() == read(table, tmp_path / "cache")[0]


def test_threads_keep_few_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_KEPT", 2)
    tables = [make_site(tmp_path / str(number), 2) for number in range(3)]
    caches = [fill_cache(table, table.root.parent / "cache", SMALL) for table in tables]
    for images in caches * 2:
        images.read([0, 1])
    assert len(database._thread_readers()._open) == 2


def test_what_the_disk_reports_is_not_damage(tmp_path: Path) -> None:
    (tmp_path / "images.sqlite").mkdir()
    with assert_refused(ChestfedError, "cache cannot be read", code="SQLITE_CANTOPEN"):
        Database(tmp_path / "images.sqlite").count("files")


def test_pruning_waits_for_who_fills_the_cache(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with copied(table) as cache, locked(cache) as (_, release, _):
        monkeypatch.setattr(database, "print", lambda *_, **__: release.set(), raising=False)
        prune(cache)
        assert release.is_set()


def test_pruning_lets_others_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, write = [], Database.open_writing

    @contextmanager
    def counted(self: Database, **options: Any) -> Iterator[sqlite3.Connection]:
        with write(self, **options) as connection:
            yield connection
        with closing(sqlite3.connect(self.file, timeout=0)) as reader:
            batches.append(reader.execute("SELECT count(*) FROM pixels").fetchone()[0])

    with copied(table) as cache:
        (file,) = cache.rglob("images.sqlite")
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DELETE FROM files")
        monkeypatch.setattr(maintenance, "_ROWS_AT_ONCE", 1)
        monkeypatch.setattr(Database, "open_writing", counted)
        prune(cache)
    assert [*range(IMAGES - 1)] == sorted(set(batches) - {IMAGES - 1})
