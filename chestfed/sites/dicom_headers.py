"""A table made from the headers of a folder's DICOM files, for sites without a spreadsheet.

Only the elements that the site's YAML names are read, and only those of `dicom_tags.ROLES` may be named; pixels are
not. A row is the number of a file in the order of their paths, the first being 1: file names may hold patients' names,
and stay out of messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.dicom_files import refuse_bomb
from chestfed.dicom_tags import quiet, read
from chestfed.errors import ImageError
from chestfed.sites.source import Source
from chestfed.workers import spread

#: What messages call the rows of such a table.
FILES: Final = "DICOM files"
_SMALL_JOB: Final = 500  # fewer files than this are not worth the start of processes
_BATCH: Final = 64
_LARGEST: Final = 480_000_000  # bytes of a deflated file


def read_headers(source: Source, tags: Sequence[str]) -> pd.DataFrame | None:
    """One row per file: `image`, its path relative to the root, the elements as strings (empty is missing), and `row`.

    The values of an element with several are joined by backslashes. None, with a problem, if there are no files.
    """
    patterns = source.config.label_files["images"]
    found = {path for pattern in patterns for path in source.root.glob(pattern) if path.is_file()}
    names = sorted(path.relative_to(source.root).as_posix() for path in found)
    images = [name for name in names if _is_text(name)]
    if len(images) < len(names):  # tables, reports and terminals hold text
        text = f"{len(names) - len(images)} files or their folders have names that are not UTF-8"
        advice = "rename them, for example with convmv; they are left out of the rows"
        source.problem("unreadable file name", FILES, text, advice=advice)
    if not images:
        text = f"no images in {source.root}; looked for {', '.join(patterns)}"
        source.problem("missing file", patterns[0], text, advice="name the images in label_files.images")
        return None
    wanted = list(dict.fromkeys(tags))
    rows: list[list[str | None]] = []
    with _counting(source, len(images)) as count:
        paths = [str(source.root / image) for image in images]
        read = partial(_read_one, tags=wanted)
        results = spread(read, paths, small=_SMALL_JOB, chunk=_BATCH, what="reading headers", crashed=_crashed)
        for place, cells in enumerate(results):
            if isinstance(cells, str):
                advice = "remove the file or make it readable; rows number the files in the order of their paths"
                source.problem("unreadable header", FILES, cells, place + 1, advice)
            rows.append([None] * len(wanted) if isinstance(cells, str) else cells)
            count(place + 1)
    frame = pd.DataFrame(rows, columns=wanted, dtype=object)
    frame["image"], frame["row"] = images, np.arange(1, len(images) + 1)
    bad = {problem.row for problem in source.problems if problem.kind == "unreadable header"}
    return frame[~frame["row"].isin(bad).to_numpy()].reset_index(drop=True)


def _is_text(name: str) -> bool:
    """Whether a path can be written as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _crashed(_: str) -> list[str | None] | str:
    return "ends the process that reads it: damaged, or too large for this machine's memory"


def _read_one(path: str, tags: list[str]) -> list[str | None] | str:
    """The elements of a file, or why it cannot be read; nothing of the header is in the reason."""
    from pydicom.errors import InvalidDicomError

    try:
        with quiet():
            refuse_bomb(Path(path), _LARGEST)
            dataset = read(path, tags)
            return [_text(dataset.get(tag)) for tag in tags]
    except ImageError as error:
        return f"is a {error}"
    except InvalidDicomError:
        return "is no DICOM file"
    except OSError as error:
        return f"cannot be read: {error.strerror or 'cut short'}"
    except Exception as error:  # pydicom raises many kinds on damaged files
        return f"has a damaged header ({type(error).__name__})"


def _text(value: object) -> str | None:
    if value is None:
        return None
    several = isinstance(value, list | tuple) or type(value).__name__ == "MultiValue"
    text = "\\".join(map(str, value)) if several else str(value)  # type: ignore[call-overload]
    return text.strip("\0 \t\r\n") or None


@contextmanager
def _counting(source: Source, total: int) -> Iterator[Callable[[int], None]]:
    """Tells the source's `progress`; without one, a bar on a terminal."""
    if source.progress is not None:
        told = source.progress
        yield lambda done: told(done, total)
    elif total >= _SMALL_JOB and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"headers of {source.config.site}", total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield lambda _: None
