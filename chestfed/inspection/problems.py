"""What a check finds: each kind of problem is an error (the check fails) or a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from chestfed.core.errors import Problem
from chestfed.inspection.scan import Scan
from chestfed.sites.opening import Survey
from chestfed.sites.tables.dicom_headers import SET_ASIDE

UNREADABLE: Final = "unreadable image"
UNSUITABLE: Final = "other kind of image"
SPLITS_SHARE_PICTURE: Final = "same picture in two splits"
SITES_SHARE_PICTURE: Final = "same picture in another site"
WRONG_CHECKSUM: Final = "wrong checksum"

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
    ONE_CLASS := "disease without positives",
    NO_LABELS := "disease without labels",
    OTHER_SITE := "other site not read",
    NO_VIEWS := "views not known",
    POLARITY := "negative or not",
    PICTURES_READ := "how the pictures were read",
    TEXT_DECLARED := "text in the picture, by its header",
    NO_CHECKSUM := "files without checksum, or checksums without file",
    REMARK := "how the labels were read",
    SET_ASIDE,
)


@dataclass(frozen=True, eq=False)
class Looked:
    """An inspected site: its rows as far as they can be read, and its images if they were inspected."""

    survey: Survey
    scan: Scan | None

    def where(self, row: int) -> str:
        """File and row of the label file that a row of the table comes from."""
        return f"{self.survey.files[row]}:{self.survey.table.frame['row'].iat[row]}"

    def problems(self, kind: str, rows: Iterable[int], tell: Callable[[int], str] | str, advice: str) -> list[Problem]:
        """One problem per row of the table; `tell` is the message, or a function of the row."""
        numbers, files = self.survey.table.frame["row"].to_numpy(), self.survey.files
        return [
            Problem(kind, files[row], tell if isinstance(tell, str) else tell(row), int(numbers[row]), advice)
            for row in rows
        ]


def sort_out(problems: Sequence[Problem]) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Errors and warnings."""
    errors = tuple(problem for problem in problems if problem.kind not in WARNINGS)
    return errors, tuple(problem for problem in problems if problem.kind in WARNINGS)


#: Of the errors, and of the warnings, those that are read first, the most harmful to a result at the top.
FIRST: Final = (
    SPLITS_SHARE_PICTURE,
    "patient in two splits",
    "similar patients",
    SITES_SHARE_PICTURE,
    PATIENTS_SHARE_PICTURE,
    POLARITY,
    NO_VIEWS,
    ONE_CLASS,
    NO_LABELS,
    SITES_SHARE_PATIENT,
)


def by_kind(problems: Iterable[Problem]) -> dict[str, list[Problem]]:
    """The problems of each kind, in the order in which the kinds occur."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    return kinds
