"""One patient's sex, ages and dates must fit one person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chestfed.data.checks import check_site
from chestfed.data.checks.problems import SEVERAL_PERSONS, UNREAD
from chestfed.data.sites.config import SiteConfig
from tests.leaves.drafts.campaign.maker import Place

ROWS = [("A", "F", 40, "2001-03-04"), ("A", "F", 42, "2003-03-04"), ("B", "M", 60, "2001-01-01"), ("C", "", None, "")]
ROWS += [("D", "F", 90, "2009-01-01")]  # the age of all older persons


def check(folder: Path, rows: list[tuple[Any, ...]], **table: Any) -> Any:
    place = Place(folder)
    columns = {"image": "File", "patient": "Patient", "sex": "Sex", "age": "Age", "date": "Date"}
    cells = [dict(zip(("Patient", "Sex", "Age", "Date"), row, strict=True)) for row in rows]
    place.save([{"File": f"{n}.png", **of, "Edema": n % 2, "consent": "yes"} for n, of in enumerate(cells)])
    keys: dict[str, Any] = {"site": "st", "title": "St", "reader": "table", "root": str(folder), "views": "all"}
    keys |= {"label_files": {"table": ["labels.csv"]}, "diseases": ["edema"], "labels": {"edema": ["Edema"]}}
    keys |= {"uncertain": "missing", "blank": "missing", "table": {"columns": columns, **table}}
    return check_site(SiteConfig.model_validate(keys), folder, images=False)


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        (("A", "F", 43, "2004-01-01"), None),
        (("B", "F", 60, "2001-01-01"), [4]),
        (("A", "F", 71, "2004-01-01"), [2]),
        (("A", "F", 71, "2034-01-01"), None),
        (("B", "M", 64, ""), [4]),
        (("C", "M", 64, ""), None),
        (("A", "F", 40, "2006-02-01"), [2]),
        (("A", "F", 39, "2003-03-05"), [2]),
        (("A", "F", 42, "2004-03-03"), None),
        (("D", "F", 90, "2001-03-04"), None),
    ],
    ids=["later", "two sexes", "ages", "years", "one date", "one age", "same age", "back", "birthday", "top age"],
)
def test_several_persons_are_an_error(tmp_path: Path, more: tuple[Any, ...], rows: list[int] | None) -> None:
    errors = check(tmp_path, [*ROWS, more]).errors.kinds.get(SEVERAL_PERSONS, [])
    assert [problem.row for problem in errors] == (rows or [])


def test_patient_of_most_images_is_first(tmp_path: Path) -> None:
    many = [("E", "FM"[n % 2], 50, "2001-01-01") for n in range(7)]
    errors = check(tmp_path, [*ROWS, ("B", "F", 60, "2001-01-01"), *many]).errors.kinds[SEVERAL_PERSONS]
    assert [problem.row for problem in errors] == [8, 4]


def test_column_that_is_not_read_is_named(tmp_path: Path) -> None:
    report = check(tmp_path, ROWS)
    assert "'consent'" in report.warnings.kinds[UNREAD][0].message
    roles = dict(
        zip(("File", "Patient", "Sex", "Age", "Date"), ("image", "patient", "sex", "age", "date"), strict=True)
    )
    assert report.inspection.survey.table.columns == {**roles, "Edema": "edema", "consent": ""}
    assert UNREAD not in check(tmp_path, ROWS, ignore=["consent"]).kinds
    assert "'absent'" in check(tmp_path, ROWS, ignore=["consent", "absent"]).warnings.kinds[UNREAD][0].message


def test_month_before_day_is_recognized(tmp_path: Path) -> None:
    rows = [("A", "F", 40, "03/31/2001"), ("A", "F", 41, "12/01/2002"), ("A", "F", 44, "01/12/2005")]
    assert SEVERAL_PERSONS not in check(tmp_path, [*rows, ("B", "M", 60, "12/31/2001")]).errors.kinds


def test_age_is_computed_from_two_dates(tmp_path: Path) -> None:
    columns = {"image": "File", "patient": "Patient", "date": "Date", "birth": "Age"}
    rows = [
        ("A", "F", "1961-03-05", "2001-03-04"),
        ("A", "F", "1961-03-05", "2001-03-05"),
        ("B", "F", "", "2001-01-01"),
    ]
    rows += [
        ("E", "F", "1961-12-01", "2001-06-05"),
        ("F", "F", "5/6/1961", "2001-06-04"),
        ("G", "F", "5/6/25", "2026-06-04"),
    ]
    rows += [("C", "F", "1804-01-01", "2001-01-01"), ("D", "F", "2005-01-01", "2001-01-01")]
    report = check(tmp_path, rows, columns=columns)
    assert report.inspection.survey.table.frame["age"].fillna(-1).tolist() == [39, 40, -1, 39, 39, -1, -1, -1]
    assert "no age for 3 rows" in " ".join(map(str, report.warnings))
    for wrong in ({"date": None}, {"age": "Sex"}):
        with pytest.raises(ValidationError, match=r"columns\.birth"):
            check(tmp_path, rows, columns=columns | wrong)
