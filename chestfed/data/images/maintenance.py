"""Contents of a cache folder, and removal of what is damaged or no longer needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chestfed.data.images.database import Database
from chestfed.data.images.file_store import open_database

_TITLES: Final = {"pixels": "pixels", "facts": "facts of the check", "text": "text in pictures"}


@dataclass(frozen=True)
class Part:
    """One kind of result of a site.

    `unreadable` of the images have no pixels. `used` is the time of the last use, in seconds since 1970.
    """

    site: str
    what: str
    images: int
    unreadable: int
    used: float


def parts(cache_root: Path) -> list[Part]:
    """Contents of the folder, by site.

    Raises `ChestfedError` if a database cannot be read.
    """
    contents = []
    for database in _open_databases(cache_root):
        for kind, used in database.kinds().items():
            title, _, rest = kind.partition("-")
            what = f"pixels {rest}" if title == "pixels" else _TITLES.get(title, kind)
            unreadable = database.count(kind, "number < 0") if title == "pixels" else 0
            contents.append(Part(database.file.parent.name, what, database.count(kind), unreadable, used))
    return contents


def measure(cache_root: Path) -> int:
    """Bytes of all databases of the folder."""
    return sum(database.file.stat().st_size for database in _open_databases(cache_root))


def prune(cache_root: Path, unused_days: float | None = None) -> tuple[int, dict[str, int]]:
    """Remove damaged results and what no file of a site has any more; returns bytes freed, and damaged ones by site.

    With `unused_days` also kinds of results that were not used for so long.

    Raises `ChestfedError` if a database cannot be read or written.
    """
    before = measure(cache_root)
    damaged = {database.file.parent.name: database.prune(unused_days) for database in _open_databases(cache_root)}
    return before - measure(cache_root), damaged


def _open_databases(cache_root: Path) -> Iterator[Database]:
    for folder in sorted(path for path in cache_root.glob("*") if path.is_dir()):
        database = open_database(cache_root, folder.name)
        if database.file.exists():
            yield database
