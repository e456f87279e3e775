"""The database of a site: keys, and bits that have changed: a result is what was written, or is made again."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.core.errors import ChestfedError, SiteError
from chestfed.data.images.cache import CachedImages, fill_cache
from chestfed.data.images.database import KEY, Database, Row, pack_keys, unpack_keys
from chestfed.data.images.maintenance import prune
from tests.data.images.test_cache import SMALL, Table, make_site

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
