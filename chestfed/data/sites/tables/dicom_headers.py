"""A table made from the headers of a folder's DICOM files, for sites without a spreadsheet.

Only the elements that the site's YAML names are read, and only those of `dicom_tags.ROLES` may be named; pixels are
not. A row is the number of a file in the order of their paths, the first being 1: file names may hold patients' names,
and stay out of messages, except those of a check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import ImageError
from chestfed.core.processes.workers import parallel_map
from chestfed.data.dicom.file_kinds import DICOM, UNKNOWN, detect_kind, format_kinds, mark_strangers
from chestfed.data.dicom.files import refuse_bomb
from chestfed.data.dicom.tags import quiet, read, reason
from chestfed.data.sites.label_files.encodings import is_text
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import ROW

#: Name of such a table's rows in messages.
FILES: Final = "DICOM files"
#: The kind of problem, in a check alone, of files that are not images.
SET_ASIDE: Final = "files that are not images"
_UNREADABLE: Final = "unreadable header"
_SMALL_JOB: Final = 3000  # below this many files, starting processes takes longer than reading
_BATCH: Final = 64
_LARGEST: Final = 480_000_000  # bytes of a deflated file
_REMOVE: Final = "remove the file or make it readable; rows number the files in the order of their paths"
#: Advice about a file that cannot be read, by whether the message names it.
_ADVICE: Final = {True: _REMOVE, False: f"`chestfed site check` names it: {_REMOVE}"}


def read_headers(source: Source, tags: Sequence[str]) -> pd.DataFrame | None:
    """One row per DICOM file of `label_files.images`, as `read_elements` gives them.

    None, with a problem, if no file fits.
    """
    patterns = source.config.label_files["images"]
    paths = {path for pattern in patterns for path in source.root.glob(pattern) if path.is_file()}
    names = sorted(path.relative_to(source.root).as_posix() for path in paths)
    frame, aside = read_elements(source, names, tags)
    if frame.empty and not any(problem.kind == _UNREADABLE for problem in source.problems):
        text = f"no images in {source.root}; looked for {', '.join(patterns)}"
        text += f"; found: {format_kinds(aside)}" if aside else ""
        source.problem("missing file", patterns[0], text, advice="name the image files in label_files.images")
        return None
    return frame


def read_elements(source: Source, names: Sequence[str], tags: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """The elements of DICOM files (`names`, paths relative to the root), and the kinds of files that are not images.

    One row per image: `image`, its path, the elements as strings (empty is missing), and `ROW`, its place among the
    names. The values of an element with several are joined by backslashes. What cannot be read is a problem; it is
    named in a check of the site only, whose report stays where the images are.
    """
    images = [name for name in names if is_text(name)]
    if len(images) < len(names):  # tables, reports and terminals hold text
        text = f"{len(names) - len(images)} files or their folders have names that are not UTF-8"
        advice = "rename them, for example with convmv; they are left out of the rows"
        source.problem("unreadable file name", FILES, text, advice=advice)
    elements = list(dict.fromkeys(tags))
    with _count_headers(source, len(images)) as count:
        read = partial(_read_one, root=str(source.root), tags=elements)
        headers = []
        for header in parallel_map(
            read, images, small=_SMALL_JOB, chunk=_BATCH, what="reading headers", crashed=_report_crash
        ):
            headers.append(header)
            count(len(headers))
    kinds = mark_strangers(images, [header.kind for header in headers])
    aside = [kind for kind in kinds if kind not in (DICOM, UNKNOWN)]
    if aside and source.keep_going:
        text = f"{len(aside):,} files are not DICOM images and are skipped: {format_kinds(aside)}"
        source.problem(SET_ASIDE, FILES, text, advice="no action needed, unless one of them should be an image")
    places = []
    for place, (image, kind, header) in enumerate(zip(images, kinds, headers, strict=True)):
        if kind in (DICOM, UNKNOWN) and header.error:
            text = f"{image}: {header.error}" if source.keep_going else header.error
            source.problem(_UNREADABLE, FILES, text, place + 1, _ADVICE[source.keep_going])
        elif kind in (DICOM, UNKNOWN):
            places.append(place)
    frame = pd.DataFrame([headers[place].cells for place in places], columns=elements, dtype=object)
    frame["image"] = pd.Series([images[place] for place in places], dtype=object)
    frame[ROW] = np.array(places, dtype=np.int64) + 1
    return frame, aside


@dataclass(frozen=True)
class _Header:
    """Kind of a file, and its elements, or why they cannot be read."""

    kind: str
    cells: tuple[str | None, ...] = ()
    error: str = ""


def _report_crash(_: str) -> _Header:
    return _Header(UNKNOWN, error="crashes the process that reads it: damaged or too large for this machine's memory")


def _read_one(name: str, root: str, tags: list[str]) -> _Header:
    """The elements of a file, or why it cannot be read; nothing of the header is in the reason."""
    from pydicom.errors import InvalidDicomError

    kind, path = detect_kind(root, name), Path(root, name)
    if kind not in (DICOM, UNKNOWN):
        return _Header(kind)
    try:
        if path.stat().st_size == 0:
            return _Header(kind, error="is empty (0 bytes)")
        with quiet():
            refuse_bomb(path, _LARGEST)
            dataset = read(path, tags)
            return _Header(kind, tuple(_format_value(dataset.get(tag)) for tag in tags))
    except ImageError as error:
        return _Header(kind, error=f"is a {error}")
    except InvalidDicomError:
        return _Header(kind, error="is not a DICOM file")
    except OSError as error:
        return _Header(kind, error=f"cannot be read: {error.strerror or 'truncated'}")
    except Exception as error:  # pydicom raises many kinds on damaged files
        return _Header(kind, error=f"has a damaged header: {reason(error)}")


def _format_value(value: object) -> str | None:
    if value is None:
        return None
    several = isinstance(value, list | tuple) or type(value).__name__ == "MultiValue"
    text = "\\".join(map(str, value)) if several else str(value)  # type: ignore[call-overload]
    return text.strip("\0 \t\r\n") or None


@contextmanager
def _count_headers(source: Source, total: int) -> Iterator[Callable[[int], None]]:
    """Tells the source's `progress`; without one, a bar on a terminal."""
    if source.progress is not None:
        progress = source.progress
        yield lambda done: progress(done, total)
    elif total >= _SMALL_JOB and sys.stderr.isatty():
        from rich.progress import Progress

        from chestfed.core.console import open_console

        with Progress(console=open_console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"headers of {source.config.site}", total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield lambda _: None
