"""`site new` for a table whose rows are matched with the AccessionNumber of DICOM headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from chestfed.data.sites import load_site_config, open_site
from chestfed.leaves.drafts.draft import draft_site
from chestfed.leaves.drafts.proposal import Proposal, parse_answers
from chestfed.reports.pages.site_report import make_report
from chestfed.reports.pages.site_report.sections import describe_site
from tests.data.checks.planted import dicom, picture
from tests.data.checks.planted import save as save_dicom

UNMATCHED = "images.unmatched=drop"
DROP = ("rows.duplicate=drop", "rows.contradictory=drop")
CONTRADICTORY, IDENTICAL, SHORT = 5, 7, 3


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """18 exams, number 5 of two images; rows: one without image, one twice, one twice with another label, one IPP
    without its leading zero.
    """
    (tmp_path / "dicom").mkdir()
    rows = ["IPP,Accession,Sex,Edema"]
    for number in range(18):
        patient = f"0{100 + number}"
        for image in range(2 if number == CONTRADICTORY else 1):
            uid = f"1.2.{number}.{image}"
            elements = {"PatientID": patient, "AccessionNumber": f"ACC{number:03}", "ViewPosition": "PA"}
            file = tmp_path / f"dicom/{number}_{image}.dcm"
            save_dicom(dicom(picture(2 * number + image), **elements, SOPInstanceUID=uid), file)
        row = f"{patient.lstrip('0') if number == SHORT else patient},ACC{number:03},F,{number % 2}"
        rows += [row] * (2 if number == IDENTICAL else 1)
    rows += [f"0{100 + CONTRADICTORY},ACC{CONTRADICTORY:03},F,0", "0100,ACC999,F,1"]
    (tmp_path / "table.csv").write_text("\n".join(rows), encoding="utf-8")
    return tmp_path


def draft(folder: Path, *keys: str, columns: tuple[str, ...] = ()) -> Proposal:
    codes = ["labels:1=positive", "labels:0=negative"]
    answers = parse_answers(columns=list(columns), codes=codes, keys=list(keys), no_split=True)
    return draft_site("st-anne", folder / "dicom", folder / "table.csv", answers)


def test_unmatched_row_is_asked_once(hospital: Path) -> None:
    asked = [question for question in draft(hospital, *DROP).questions if UNMATCHED in " ".join(question.answers)]
    assert ["row 22" in question.text for question in asked] == [True]
    answered = draft(hospital, *DROP, UNMATCHED)
    assert not answered.questions
    assert any("row 22" in text and "left out" in text for text in answered.first)


def test_differing_rows_have_file_numbers(hospital: Path) -> None:
    (question,) = draft(hospital, UNMATCHED).questions
    assert "rows 7, 21)" in question.text


def test_a_copied_row_counts_once(hospital: Path) -> None:
    table = hospital / "table.csv"
    rows = table.read_text(encoding="utf-8").split("\n")
    table.write_text("\n".join([*rows[:-2], rows[6]]), encoding="utf-8")  # of the exam with two images, alike
    first = draft(hospital).first
    assert any(text.startswith("2 rows repeat") and "rows 10, 21)" in text for text in first)


def test_counts_are_of_rows_or_images(hospital: Path) -> None:
    evidence = draft(hospital, *DROP, UNMATCHED).evidence
    assert evidence["edema"] == "10 positive, 10 negative (rows)"
    assert "20 F (rows)" in evidence["sex"]
    assert "19 pa (images)" in evidence["view"]


def test_unknown_views_are_rows_of_a_table(hospital: Path) -> None:
    table = hospital / "table.csv"
    header, *rows = table.read_text(encoding="utf-8").split("\n")
    cells = [f"{row},{'' if f'ACC{CONTRADICTORY:03}' in row else 'PA'}" for row in rows]  # both rows have two images
    table.write_text("\n".join([f"{header},View", *cells]), encoding="utf-8")
    assert any(text.startswith("2 of 20 rows have no known view") for text in draft(hospital, UNMATCHED).first)


def test_unknown_views_are_images_of_headers(hospital: Path) -> None:
    for image in range(2):
        elements = {"PatientID": f"0{100 + CONTRADICTORY}", "AccessionNumber": f"ACC{CONTRADICTORY:03}"}
        made = dicom(picture(50 + image), **elements, SOPInstanceUID=f"1.3.{image}")
        save_dicom(made, hospital / f"dicom/{CONTRADICTORY}_{image}.dcm")
    assert any(text.startswith("2 of 19 images have no known view") for text in draft(hospital, UNMATCHED).first)


def test_differing_columns_are_counted_by_rows(hospital: Path) -> None:
    table = hospital / "table.csv"
    header, *rows = table.read_text(encoding="utf-8").split("\n")
    cells = [f"{row},{1 if f'ACC{CONTRADICTORY:03}' in row else row[-1]}" for row in rows]
    table.write_text("\n".join([f"{header},Pulmonary edema", *cells]), encoding="utf-8")
    asked = [question.text for question in draft(hospital, UNMATCHED).questions]
    assert any("differ in 1 of 20 rows" in text for text in asked)


def test_lost_zeros_are_named(hospital: Path) -> None:
    (text,) = (text for text in draft(hospital).first if "'IPP'" in text)
    assert "(row 5)" in text
    assert "leading zeros" in text
    assert "slipped" not in text


def test_left_out_rows_are_counted(hospital: Path) -> None:
    proposal = draft(hospital, *DROP, UNMATCHED, columns=("patient=PatientID", "ignore=IPP"))
    assert not proposal.questions
    file = hospital / "st-anne.yaml"
    file.write_text(proposal.text, encoding="utf-8")
    config = load_site_config(file, ["table.codes={labels: {1: positive, 0: negative}, sex: {F: F}}"])
    table = open_site(config, hospital)
    assert table.left_out == {"unmatched": 1, "duplicate": 1, "contradictory": 2}
    assert len(table.frame) == 17
    assert sum("of 21 rows" in note for note in table.notes) == 3
    report = make_report(config, hospital, images=False)
    assert report.check.counts.dropped == table.left_out
    labels = describe_site(report, drawn=False)[0]
    assert "Without the rows left out" in labels.words[0]
    assert "Left out: 1 row (unmatched)." in labels.words
