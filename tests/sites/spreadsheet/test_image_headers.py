"""Tables that name their images by an element of the DICOM headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import ConfigError
from chestfed.inspection import check_site
from tests.cases import each
from tests.sites.own_tables import config, labels, onehot, open_table, problems, save_dicom, save_rows
from tests.sites.small_sites import column

SECRET = "Moon7"


def table(element: str = "AccessionNumber", **images: Any) -> dict[str, Any]:
    return {
        "layout": "onehot",
        "columns": {"image": "File", "patient": "MRN", "view": "ViewPosition"},
        "images": {"header": element, "elements": ["ViewPosition"], "roots": ["img"], **images},
        "words": {"view": {"LL": "lateral"}},
    }


def films(folder: Path, **first: str) -> None:
    """Two images of one study, one of another, and a report."""
    for n, (accession, patient, view) in enumerate((("007", "a", "PA"), ("007", "a", "LL"), ("A9", "b", "AP"))):
        told = {"AccessionNumber": accession, "PatientID": patient, "ViewPosition": view, "SOPInstanceUID": f"1.2.{n}"}
        path = folder / f"site/img/{SECRET}/IM{n}"
        save_dicom(path, **{**told, "StudyInstanceUID": f"1.9.{accession[-1]}", **(first if n == 0 else {})})
    save_dicom(folder / "site/img/SR", SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11", AccessionNumber="007")


def test_all_images_of_a_study_share_the_labels_of_its_row(tmp_path: Path) -> None:
    films(tmp_path)
    found = open_table(tmp_path, table(), [onehot(1, File="A9", Edema=1), onehot(2, File="007", Edema=0)])
    assert column(found, "image") == [f"img/{SECRET}/IM{n}" for n in (2, 0, 1)]
    assert column(found, "view") == ["ap", "pa", "lateral"]
    assert column(found, "row") == [2, 3, 3]
    assert [row[1] for row in labels(found)] == [1, 0, 0]


@pytest.mark.parametrize(("element", "cell"), [("SOPInstanceUID", "1.2.2"), ("StudyInstanceUID", "1.9.9")])
def test_images_may_be_named_by_uids(tmp_path: Path, element: str, cell: str) -> None:
    films(tmp_path)
    assert column(open_table(tmp_path, table(element), [onehot(1, File=cell)]), "image") == [f"img/{SECRET}/IM2"]


def test_rows_without_an_image_are_named_or_dropped(tmp_path: Path) -> None:
    films(tmp_path)
    rows = [onehot(1, File="A9"), onehot(2, File="7"), onehot(3, File="")]
    found = problems(tmp_path, table(), rows)
    assert [(problem.kind, problem.row) for problem in found] == [("blank name", 4), ("unmatched row", 3)]
    assert len(open_table(tmp_path, table(unmatched="drop"), rows[:2]).frame) == 1
    (problem,) = problems(tmp_path, table(unmatched="drop"), rows[1:2])
    assert problem.kind == "nothing left"


def test_a_number_that_patients_share_and_a_uid_that_files_share_are_problems(tmp_path: Path) -> None:
    films(tmp_path, PatientID="c", SOPInstanceUID="1.2.1")
    rows = [onehot(1, File="007"), onehot(2, File="A9")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, problem.row) == ("ambiguous image", 2)
    films(tmp_path, SOPInstanceUID="1.2.1")
    (problem,) = problems(tmp_path, table("SOPInstanceUID"), [onehot(1, File="1.2.1")])
    assert problem.message == "several files have this row's SOPInstanceUID"


def test_a_number_of_which_one_image_has_no_patient_is_a_problem_and_no_patients_at_all_are_none(
    tmp_path: Path,
) -> None:
    films(tmp_path, PatientID="")
    rows = [onehot(1, File="007"), onehot(2, File="A9")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, problem.row) == ("ambiguous image", 2)
    films(tmp_path, PatientID="")
    save_dicom(tmp_path / f"site/img/{SECRET}/IM1", AccessionNumber="007", PatientID="", SOPInstanceUID="1.2.1")
    assert problems(tmp_path, table(), rows) == []


def test_rows_of_another_patient_than_their_image_are_problems_that_name_nobody(tmp_path: Path) -> None:
    films(tmp_path)
    save_dicom(tmp_path / "site/img/IM3", AccessionNumber="B1", PatientID="", SOPInstanceUID="1.2.3")
    slipped = [onehot(1, File="A9", MRN="a"), onehot(2, File="007", MRN="b"), onehot(3, File="B1", MRN="a")]
    found = problems(tmp_path, table(), slipped)
    assert [(problem.kind, problem.row) for problem in found] == [("another patient", 2), ("another patient", 3)]
    assert found[0].message == "'MRN' is not the PatientID in the header of this row's image"


def test_patients_that_the_table_calls_otherwise_are_not_compared_with_headers(tmp_path: Path) -> None:
    films(tmp_path)
    assert problems(tmp_path, table(), [onehot(1, File="A9", MRN="p1"), onehot(2, File="007", MRN="p2")]) == []
    assert problems(tmp_path, table(), [onehot(1, File="A9", MRN="b"), onehot(2, File="007", MRN="a")]) == []


def test_two_rows_of_one_study_are_a_problem(tmp_path: Path) -> None:
    films(tmp_path)
    found = problems(tmp_path, table(), [onehot(1, File="A9", Edema=1), onehot(2, File="A9", Edema=0)])
    assert [(problem.kind, problem.row) for problem in found] == [("duplicate image", 3)]


def test_an_unreadable_header_is_a_problem_that_names_nothing_but_in_a_check(tmp_path: Path) -> None:
    films(tmp_path)
    (tmp_path / f"site/img/{SECRET}/IM9").touch()
    rows = [onehot(1, File="A9"), onehot(2, File="007")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, SECRET in str(problem)) == ("unreadable header", False)
    save_rows(tmp_path / "site/labels.csv", rows)
    report = check_site(config(tmp_path, table()), tmp_path, images=False)
    assert [SECRET in problem.message for problem in report.errors] == [True]
    assert "structured report 1" in str(report.warnings)


@each(
    ("images", "message"),
    [
        ({"suffix": ".dcm"}, "'suffix' has no effect together with 'header'"),
        ({"header": None}, "'elements' needs 'header'"),
        ({"header": "PatientName"}, "header"),
        ({"elements": ["ViewPosition", "PatientSex"]}, "no key of 'columns' names 'PatientSex'"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, images: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, table(**images))


def test_elements_that_may_not_be_read_are_refused(tmp_path: Path) -> None:
    strange = {**table(elements=["PatientName"]), "columns": {"image": "File", "patient": "PatientName"}}
    with pytest.raises(ConfigError, match="may identify a person"):
        config(tmp_path, strange)
