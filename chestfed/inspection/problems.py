"""What a check finds: each kind of problem is an error (the check fails) or a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from chestfed.core.errors import Problem
from chestfed.inspection.scan import Scan
from chestfed.sites.opening import Survey
from chestfed.sites.spreadsheet.dicom_headers import SET_ASIDE

MISSING_IMAGE: Final = "missing image"
UNREADABLE: Final = "unreadable image"
SPLITS_SHARE_PICTURE: Final = "same picture in two splits"
PATIENTS_SHARE_PICTURE: Final = "same picture of two patients"
SITES_SHARE_PICTURE: Final = "same picture in another site"
REPEATED: Final = "same picture twice"
NEAR_REPEATED: Final = "nearly the same picture"
SITES_NEAR: Final = "nearly the same picture in another site"
SITES_SHARE_PATIENT: Final = "patient in another site"
WRONG_SUFFIX: Final = "wrong extension"
COLOURED: Final = "picture with colors"
BLANK_PICTURE: Final = "blank picture"
ONE_CLASS: Final = "disease without positives"
NO_LABELS: Final = "disease without labels"
OTHER_SITE: Final = "other site not read"
PATIENTS_ALIKE: Final = "patients of almost the same name in two splits"
NO_VIEWS: Final = "views not known"
POLARITY: Final = "negative or not"
GRAY_LEVELS: Final = "how the gray levels were read"
WRONG_CHECKSUM: Final = "wrong checksum"
NO_CHECKSUM: Final = "files without checksum, or checksums without file"
REMARK: Final = "how the labels were read"

#: Every other kind is an error.
WARNINGS: Final = (
    PATIENTS_SHARE_PICTURE,
    REPEATED,
    NEAR_REPEATED,
    SITES_NEAR,
    SITES_SHARE_PATIENT,
    WRONG_SUFFIX,
    COLOURED,
    BLANK_PICTURE,
    ONE_CLASS,
    NO_LABELS,
    OTHER_SITE,
    PATIENTS_ALIKE,
    NO_VIEWS,
    POLARITY,
    GRAY_LEVELS,
    NO_CHECKSUM,
    REMARK,
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
