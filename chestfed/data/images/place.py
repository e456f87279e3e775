"""Where decoded images are kept, unless a folder is named: with the data, so that they are found from any folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: In place of a folder: the cache of the data.
AUTO: Final = Path("auto")
#: In the working folder: where earlier versions kept all, which is read if it is there.
_HERE: Final = Path("cache")
#: Beside the sites' folders.
BESIDE: Final = ".chestfed_cache"
#: Of each site.
FILE: Final = "images.sqlite"


def find_cache(given: Path, site: str, root: Path) -> Path:
    """The folder of the caches for a site whose files are below `root`.

    It is the given one. If none is given: `cache` in the working folder, if it holds this site; else `.chestfed_cache`
    in the folder that contains the site's; where nothing can be written there and there is no cache yet, one of the
    user, named by a digest of that folder.
    """
    if given != AUTO:
        return given
    if (_HERE / site / FILE).is_file():
        return _HERE
    around = root.resolve().parent
    beside = around / BESIDE
    exists = (beside / site / FILE).is_file()
    if os.access(beside / site / FILE, os.R_OK) or (not exists and _can_write(beside if beside.is_dir() else around)):
        return beside
    return _find_own() / hashlib.blake2b(os.fsencode(around), digest_size=6).hexdigest()


def list_caches(given: Path, data: Path | None) -> list[Path]:
    """The folders of caches that there are: the given one, or all that `find_cache` may have chosen for this data."""
    if given != AUTO:
        return [given]
    return list({folder.resolve(): folder for folder in _list_usual(data) if folder.is_dir()}.values())


def _list_usual(data: Path | None) -> Iterator[Path]:
    yield _HERE
    for around in (data, Path("synthetic_hospitals")):
        if around is not None:
            yield around.resolve() / BESIDE
    if _find_own().is_dir():
        yield from sorted(path for path in _find_own().iterdir() if path.is_dir())


def _find_own() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("chestfed", appauthor=False)


def _can_write(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
