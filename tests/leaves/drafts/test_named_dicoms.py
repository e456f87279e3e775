"""`site new` for a table that names DICOM files: what the table lacks comes from their headers."""

from __future__ import annotations

from pathlib import Path

from chestfed.data.sites import load_site_config, open_site
from chestfed.leaves.drafts.draft import draft_site
from chestfed.leaves.drafts.proposal import Answers, parse_answers
from tests.data.checks.planted import dicom, picture
from tests.data.checks.planted import save as save_dicom


def write_hospital(folder: Path, header: str, rows: list[str]) -> None:
    (folder / "images").mkdir()
    for number in range(16):
        elements = {"PatientID": f"q{number // 2}", "ViewPosition": "LL" if number % 4 == 3 else "PA"}
        save_dicom(dicom(picture(number), **elements, PatientSex="F"), folder / "images" / f"{number}.dcm")
    (folder / "labels.csv").write_text("\n".join([header, *rows]), encoding="utf-8")


def answer(*columns: str) -> Answers:
    codes = ["labels:1=positive", "labels:0=negative"]
    return parse_answers(columns=[*columns], labels=[], codes=codes, keys=[], no_split=True)


def test_missing_columns_are_proposed(tmp_path: Path) -> None:
    write_hospital(tmp_path, "file,edema", [f"{number}.dcm,{number // 2 % 2}" for number in range(16)])
    draft = draft_site("st-anne", tmp_path / "images", tmp_path / "labels.csv", answer())
    assert not draft.questions
    (tmp_path / "st-anne.yaml").write_text(draft.text, encoding="utf-8")
    config = load_site_config(
        tmp_path / "st-anne.yaml", ["table.codes={labels: {1: positive, 0: negative}, view: {LL: lateral}}"]
    )
    frame = open_site(config, tmp_path).frame
    assert len(frame) == 12
    assert set(frame["view"]) == {"pa"}
    assert frame["patient"].nunique() == 8
    assert set(frame["sex"]) == {"F"}


def test_columns_of_the_table_stay(tmp_path: Path) -> None:
    rows = [f"{number}.dcm,m{number},{number // 2 % 2},AP" for number in range(16)]
    write_hospital(tmp_path, "file,patient,edema,view", rows)
    proposed = draft_site("a", tmp_path / "images", tmp_path / "labels.csv", answer())
    assert (proposed.columns["patient"], proposed.columns["view"]) == ("patient", "view")
    asked = draft_site("a", tmp_path / "images", tmp_path / "labels.csv", answer("patient=PatientID"))
    assert (asked.columns["patient"], asked.columns["view"]) == ("PatientID", "view")
