"""Contents of a cache folder, and removal of what is damaged or no longer needed."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chestfed.data.images.database import FILES, Database, digest_pixels, has_table, only_writer, read_rows
from chestfed.data.images.place import FILE

_DAY: Final = 86_400  # seconds
#: Rows and pages that are removed at once; in between, others can read.
_ROWS_AT_ONCE: Final = 200
_PAGES_AT_ONCE: Final = 2_000
_TITLES: Final = {"pixels": "pixels", "facts": "facts of the check", "text": "text in pictures"}


@dataclass(frozen=True)
class CachedResults:
    """One kind of result of a site.

    `unreadable` of the images have no pixels. `used` is the time of the last use, in seconds since 1970.
    """

    site: str
    what: str
    images: int
    unreadable: int
    used: float


def parts(cache_root: Path) -> list[CachedResults]:
    """Contents of the folder, by site.

    Raises `ChestfedError` if a database cannot be read.
    """
    contents = []
    for database in _open_databases(cache_root):
        for kind, used in database.kinds().items():
            title, _, rest = kind.partition("-")
            what = f"pixels {rest}" if title == "pixels" else _TITLES.get(title, kind)
            unreadable = database.count(kind, "number < 0") if title == "pixels" else 0
            contents.append(CachedResults(database.file.parent.name, what, database.count(kind), unreadable, used))
    return contents


def measure(cache_root: Path) -> int:
    """Bytes of all databases of the folder."""
    return sum(database.file.stat().st_size for database in _open_databases(cache_root))


def prune(cache_root: Path, unused_days: float | None = None) -> tuple[int, dict[str, int]]:
    """Remove damaged results and what no file of a site has any more; returns bytes freed, and damaged ones by site.

    With `unused_days` also kinds of results that were not used for so long.

    Raises `ChestfedError` if a database cannot be read or written.
    """
    before, damaged = measure(cache_root), {}
    for database in _open_databases(cache_root):
        with only_writer(database):
            damaged[database.file.parent.name] = _prune(database, unused_days)
    return before - measure(cache_root), damaged


def _open_databases(cache_root: Path) -> Iterator[Database]:
    for folder in sorted(path for path in cache_root.glob("*") if path.is_dir()):
        database = Database(folder / FILE)  # itself, not a copy of it
        if database.file.exists():
            yield database


def _prune(database: Database, unused_days: float | None) -> int:
    """Remove damaged rows, those that no file needs, and kinds not used for so long; returns the damaged ones.

    What goes is looked for with a reader's lock, and removed in short transactions.
    """
    limit = time.time() - (float("inf") if unused_days is None else unused_days * _DAY)
    with database.open_reading() as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise ValueError("its structure")
    for kind, used in database.kinds().items():
        if used < limit:
            _remove_rows(database, kind, _list_values(database, f'SELECT key FROM "{kind}"'))
            with database.open_writing() as connection:
                connection.execute("DELETE FROM kinds WHERE name = ?", (kind,))
                connection.execute(f'DROP TABLE IF EXISTS "{kind}"')
    kinds = database.kinds()
    with database.open_reading() as connection:
        tables = [table for table in (FILES, *kinds) if has_table(connection, table)]
        damaged = {table: _find_damaged(connection, table) for table in tables}
    for table, keys in damaged.items():
        _remove_rows(database, table, keys)
    used_numbers: set[object] = set()
    for table in tables:
        if table != FILES and FILES in tables:
            query = f'SELECT key FROM "{table}" WHERE key NOT IN (SELECT c1 FROM {FILES})'
            _remove_rows(database, table, _list_values(database, query))
        used_numbers.update(_list_values(database, f'SELECT number FROM "{table}"'))
    numbers = [number for number in _list_values(database, "SELECT number FROM pixels") if number not in used_numbers]
    _remove_rows(database, "pixels", numbers, "number")
    _give_pages_back(database)
    return sum(map(len, damaged.values()))


def _list_values(database: Database, query: str) -> list[object]:
    """The only column of a query."""
    with database.open_reading() as connection:
        return [value for (value,) in connection.execute(query)]


def _remove_rows(database: Database, table: str, keys: Sequence[object], column: str = "key") -> None:
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        part = [(key,) for key in keys[start : start + _ROWS_AT_ONCE]]
        with database.open_writing() as connection:
            connection.executemany(f'DELETE FROM "{table}" WHERE {column} IS ?', part)


def _give_pages_back(database: Database) -> None:
    """Shorten the file by its free pages."""
    before, free = -1, 0
    while before != free:
        before = free
        with database.open_writing(transaction=False) as connection:
            connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()


def _find_damaged(connection: sqlite3.Connection, kind: str) -> list[object]:
    """Keys of the rows that differ from their digests, or whose pixels do."""
    rows = read_rows(connection, kind)
    return [row[0] for row, sound in rows if not (sound and _has_sound_pixels(connection, *row[1:3]))]


def _has_sound_pixels(connection: sqlite3.Connection, number: int, digest: bytes) -> bool:
    pixels = connection.execute("SELECT data FROM pixels WHERE number = ?", (number,)).fetchone()
    return number < 0 or (pixels is not None and digest_pixels(pixels[0]) == digest)
