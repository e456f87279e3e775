"""Text that is burned into a site's pictures: which are flagged, and by what.

A pass of its own after the scan, for it takes some ten times as long per image. What it finds is kept as the facts of
the scan are, so that it can be stopped and a second one is quick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ImageError
from chestfed.images.burned_in import burned_in, declared
from chestfed.images.decode import decode
from chestfed.images.file_store import Kind, SiteStore
from chestfed.images.levels import Stored
from chestfed.inspection.scan import Scan

#: Raised when the same picture gives another result than before.
LETTERS_VERSION: Final = 2
#: The value of `Letters.found` if the picture cannot be read.
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class Letters:
    """What is known of text in one picture."""

    #: What the detector sees: `none`, `marker` (the L or R beside the patient), `text`; `unknown` without a picture.
    found: str
    annotation: bool | None = None  #: the value of BurnedInAnnotation; None if it has none, or there is no DICOM header
    overlays: int = 0  #: number of DICOM overlays

    @property
    def flagged(self) -> bool:
        """Whether the tag, an overlay or the detector indicates text, or the picture could not be read."""
        return self.annotation is True or self.overlays > 0 or self.found not in ("none", "marker")


@dataclass(frozen=True)
class LetterCounts:
    """How many pictures are flagged, by what; one picture may count several times but in `flagged`."""

    looked_at: int  #: readable pictures
    headers: int  #: of them, DICOM files
    #: tag_yes, tag_no, tag_silent: what BurnedInAnnotation says in these headers.
    tag_yes: int
    tag_no: int
    tag_silent: int
    overlays: int  #: headers with overlays
    #: text, marker: what the detector sees.
    text: int
    marker: int
    unknown: int  #: pictures that the detector could not read
    flagged: int  #: any of tag, overlay, text and unknown


@dataclass(frozen=True, eq=False)
class LetterScan:
    """The letters of a scan's rows, in their order; None for a row without a readable picture."""

    scan: Scan
    letters: tuple[Letters | None, ...]

    @property
    def presentable(self) -> np.ndarray:
        """Rows with a picture that no flag is on, and that is not blank: int `[m]`."""
        blank = self.scan.frame["blank"].to_numpy(dtype=bool)
        shown = [one is not None and not one.flagged for one in self.letters]
        return np.flatnonzero(np.array(shown, dtype=bool) & ~blank)

    def counts(self) -> LetterCounts:
        """How many are flagged."""
        known = [one for one in self.letters if one is not None]
        seen = Counter(one.found for one in known)
        headers = int(((self.scan.frame["format"] == "DICOM") & self.scan.readable).sum())
        yes, no = (sum(one.annotation is word for one in known) for word in (True, False))
        return LetterCounts(
            looked_at=len(known),
            headers=headers,
            tag_yes=yes,
            tag_no=no,
            tag_silent=headers - yes - no,
            overlays=sum(one.overlays > 0 for one in known),
            text=seen["text"],
            marker=seen["marker"],
            unknown=seen[UNKNOWN],
            flagged=sum(one.flagged for one in known),
        )


def scan_letters(
    scan: Scan, cache_root: Path, *, workers: int | None = None, progress: Callable[[int, int], None] | None = None
) -> LetterScan:
    """Look for text in every readable picture of a scan; results of an earlier call are reused.

    Raises `ChestfedError` if the results cannot be saved.
    """
    table, rows = scan.table, np.flatnonzero(scan.readable)
    store = SiteStore(cache_root, table.with_frame(table.frame.iloc[rows]))
    files = store.complete(LETTERS, workers=workers, progress=progress)
    letters: list[Letters | None] = [None] * len(table.frame)
    for place, row in enumerate(rows.tolist()):
        letters[row] = Letters(UNKNOWN)
        if files.known[place]:
            kind, annotation, overlays = (files.cells[name][place] for name in LETTERS.columns)
            letters[row] = Letters(kind, None if annotation is None else bool(annotation), int(overlays))
    return LetterScan(scan, tuple(letters))


def look_for_letters(path: Path, stored: Stored) -> Letters:
    """The letters of one file; never raises on its content.

    Raises `OSError` or `MemoryError` if it cannot be read.
    """
    try:
        found = burned_in(decode(path, stored)).kind
        header = declared(path)
    except ImageError:  # changed since the scan
        return Letters(UNKNOWN)
    return Letters(found) if header is None else Letters(found, *header)


def _encode(letters: Letters) -> tuple[tuple[str, int | None, int], None]:
    annotation = None if letters.annotation is None else int(letters.annotation)
    return (letters.found, annotation, letters.overlays), None


#: What is kept of each file.
LETTERS: Final = Kind(
    f"text-{LETTERS_VERSION}",
    {"found": object, "annotation": object, "overlays": object},
    look_for_letters,
    _encode,
    "looking for text in images",
)
