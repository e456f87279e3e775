"""Problems that a check finds: each kind is an error (the check fails) or a warning.

Problems of a table's rows are made when they are read, so that a million of them take no more memory than their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.core.errors import Problem
from chestfed.data.checks.scan import Scan
from chestfed.data.sites.opening import Survey
from chestfed.data.sites.tables.dicom_headers import SET_ASIDE

SPLITS_SHARE_HEADER: Final = "patient of the header in two splits"
UNREADABLE: Final = "unreadable image"
UNSUITABLE: Final = "other kind of image"
SPLITS_SHARE_PICTURE: Final = "same picture in two splits"
SITES_SHARE_PICTURE: Final = "same picture in another site"
SEVERAL_PERSONS: Final = "patient of several persons"

#: Errors that are warnings where `allow` in the site's YAML names them.
SPLITS_NEAR: Final = "nearly the same picture in two splits"
OPPOSITE_LABELS: Final = "opposite labels of one picture"
NORMAL_AND_FINDING: Final = "no finding beside a finding"

#: Every other kind is an error.
WARNINGS: Final = (
    PATIENTS_SHARE_PICTURE := "same picture of two patients",
    REPEATED := "same picture twice",
    NEAR_REPEATED := "nearly the same picture",
    SITES_NEAR := "nearly the same picture in another site",
    SITES_SHARE_PATIENT := "patient in another site",
    WRONG_SUFFIX := "wrong extension",
    COLOURED := "picture with colors",
    BLANK_PICTURE := "blank picture",
    FLAT := "nearly white, black or empty picture",
    ONE_CLASS := "disease without positives",
    NO_LABELS := "disease without labels",
    OTHER_SITE := "other site not read",
    NO_VIEWS := "views not known",
    UNREAD := "columns not read",
    OPPOSITE := "opposite meaning",
    HEADERS_DIFFER := "table and header differ",
    HEADERS_UNREAD := "headers not read",
    POLARITY := "negative or not",
    TURNED := "turned or not",
    PICTURES_READ := "how the pictures were read",
    TEXT_DECLARED := "text in the picture, by its header",
    REMARK := "how the labels were read",
    SET_ASIDE,
)

#: Kinds of errors and of warnings that are read first, the most harmful to a result at the top.
FIRST: Final = (
    SPLITS_SHARE_PICTURE,
    SPLITS_NEAR,
    "patient in two splits",
    SPLITS_SHARE_HEADER,
    "similar patients",
    SEVERAL_PERSONS,
    SITES_SHARE_PICTURE,
    PATIENTS_SHARE_PICTURE,
    OPPOSITE_LABELS,
    NORMAL_AND_FINDING,
    HEADERS_DIFFER,
    HEADERS_UNREAD,
    OPPOSITE,
    POLARITY,
    TURNED,
    NO_VIEWS,
    ONE_CLASS,
    NO_LABELS,
    SITES_SHARE_PATIENT,
)
_ROWS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, eq=False)
class Inspection:
    """An inspected site: its rows as far as they can be read, and its images if they were inspected."""

    survey: Survey
    scan: Scan | None

    def locate(self, row: int) -> str:
        """File and row of the label file that a row of the table comes from."""
        return f"{self.survey.files[row]}:{self.survey.table.frame['row'].iat[row]}"

    def report_rows(self, kind: str, rows: Any, describe: Describe, advice: str) -> RowProblems:
        """One problem per row of the table; `rows` are places in it, of any kind of sequence of integers."""
        return RowProblems(self.survey, kind, np.fromiter(rows, np.int64), describe, advice)


#: The message of a problem of a row: of its place, and the printable name of its image.
Describe = Callable[[int, str], str]


@dataclass(frozen=True, eq=False)
class RowProblems(Sequence[Problem]):
    """Problems of one kind, one for each of some rows of a table."""

    survey: Survey
    kind: str
    rows: np.ndarray  #: places in the table, int64 `[n]`
    describe: Describe
    advice: str

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Problem]:
        frame, files = self.survey.table.frame, self.survey.files
        for start in range(0, len(self.rows), _ROWS_AT_ONCE):
            part = frame[["image", "row"]].iloc[self.rows[start : start + _ROWS_AT_ONCE]]
            places = self.rows[start : start + _ROWS_AT_ONCE].tolist()
            for row, image, line in zip(places, part["image"].tolist(), part["row"].tolist(), strict=True):
                yield Problem(self.kind, files[row], self.describe(row, printable(image)), line, self.advice)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [*RowProblems(self.survey, self.kind, self.rows[place], self.describe, self.advice)]
        return next(iter(RowProblems(self.survey, self.kind, self.rows[[place]], self.describe, self.advice)))


class Problems(Sequence[Problem]):
    """Problems in the order in which they were found."""

    def __init__(self, parts: Iterable[Sequence[Problem]]) -> None:
        self._parts = [part for part in parts if len(part)]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Problem]:
        return chain.from_iterable(self._parts)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        place += len(self) if place < 0 else 0
        for part in self._parts:
            if 0 <= place < len(part):
                return part[place]
            place -= len(part)
        raise IndexError("no such problem")

    def __repr__(self) -> str:
        return repr([*self])

    @cached_property
    def kinds(self) -> dict[str, Problems]:
        """The problems of each kind, in the order in which the kinds occur."""
        kinds: dict[str, list[Sequence[Problem]]] = {}
        for part in self._parts:
            if isinstance(part, RowProblems):
                kinds.setdefault(part.kind, []).append(part)
            else:
                for kind, members in _group(part).items():
                    kinds.setdefault(kind, []).append(members)
        return {kind: Problems(parts) for kind, parts in kinds.items()}

    @property
    def advice(self) -> list[str]:
        """Advice about them, each text once."""
        texts: dict[str, None] = {}
        for part in self._parts:
            texts |= dict.fromkeys([part.advice] if isinstance(part, RowProblems) else [row.advice for row in part])
        return [text for text in texts if text]

    def list_rows(self) -> dict[str, np.ndarray]:
        """The rows of the label files, int64 `[n]`, by file; problems of no single row are left out."""
        rows: dict[str, list[np.ndarray]] = {}
        for part in self._parts:
            if isinstance(part, RowProblems):
                codes, files = pd.factorize(np.asarray(part.survey.files, dtype=object)[part.rows])
                lines = part.survey.table.frame["row"].to_numpy()[part.rows]
            else:
                places = [
                    (problem.file, row) for problem in part for row in problem.rows or (problem.row,) if row is not None
                ]
                codes, files = pd.factorize(np.array([file for file, _ in places], dtype=object))
                lines = np.array([row for _, row in places], dtype=np.int64)
            for code, file in enumerate(files):
                rows.setdefault(file, []).append(lines[codes == code])
        return {file: np.concatenate(numbers) for file, numbers in rows.items()}


def split_by_severity(parts: Iterable[Sequence[Problem]], allowed: Collection[str] = ()) -> tuple[Problems, Problems]:
    """Errors and warnings; kinds that the site allows are warnings."""
    mild = {*WARNINGS, *allowed}
    errors: list[Sequence[Problem]] = []
    warnings: list[Sequence[Problem]] = []
    for part in parts:
        for members in [part] if isinstance(part, RowProblems) else _group(part).values():
            (warnings if members and members[0].kind in mild else errors).append(members)
    return Problems(errors), Problems(warnings)


def printable(name: str) -> str:
    """A file name without signs that would steer a terminal."""
    return name if name.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in name)


def _group(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    """The problems of each kind, in the order in which the kinds occur."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    return kinds
