"""Dirty rows that a site's YAML leaves out: which, and that they are counted everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chestfed.core.errors import SiteError
from chestfed.data.checks import check_site
from chestfed.data.sites import SiteTable, open_site
from chestfed.data.sites.opening import survey_site
from tests.cases import each
from tests.data.sites.own_tables import (
    COLUMNS,
    LONG,
    READERS,
    TERMS,
    config,
    meanings,
    open_table,
    person,
    problems,
    refusals,
    save_dicom,
    wide,
)
from tests.data.sites.small_sites import column, load_bundled, write_files

ONEHOT: dict[str, Any] = {}


def images(table: SiteTable) -> list[object]:
    return column(table, "image")


@each(
    ("table", "dirty", "key", "left"),
    [
        (TERMS, [person(2, Findings="Edema|no Edema")], "contradictory", ["1.png", "9.png"]),
        (LONG, [person(2, Finding="Edema"), person(2, Finding="Normal")], "contradictory", ["1.png", "9.png"]),
        (LONG, [person(9, Finding="Edema", MRN="other")], "contradictory", ["1.png"]),
        (READERS, [wide(9, Reader="B", Age="64")], "contradictory", ["1.png"]),
        (ONEHOT, [wide(1)], "duplicate", ["1.png", "9.png"]),
        (ONEHOT, [wide(2, *"10000"), wide(2, *"01000"), wide(2, *"01000")], "contradictory", ["1.png", "9.png"]),
        (ONEHOT, [wide(2, File=""), wide(3, MRN="")], "unnamed", ["1.png", "9.png"]),
        (LONG, [person(2, File="", Finding="Edema"), person(9, MRN="", Finding="Mass")], "unnamed", ["1.png", "9.png"]),
        (ONEHOT, [wide(2, *"75319", File="Summe:", MRN="2"), wide(3, MRN="TOTAL")], "total", ["1.png", "9.png"]),
    ],
)
def test_dirty_rows_are_refused_or_counted(
    tmp_path: Path, table: dict[str, Any], dirty: list[dict[str, object]], key: str, left: list[str]
) -> None:
    cells = {"Findings": "Edema", "Finding": "Edema", "Reader": "A"}
    clean = [person(n, **cells) if table is not ONEHOT and table is not READERS else wide(n, **cells) for n in (1, 9)]
    terms = {"codes": {"findings": meanings(Mass="ignore")}} if table in (LONG, TERMS) else {}
    rows = [*clean, *dirty]
    assert problems(tmp_path, {**table, **terms}, rows)
    assert problems(tmp_path, {**table, **terms}, rows, rows={"missing_image": "drop"})
    (tmp_path / "site/x").mkdir()
    site_table = open_table(tmp_path, {**table, **terms}, rows, rows={key: "drop"})
    assert images(site_table) == left
    number = sum(site_table.left_out.values())
    assert site_table.left_out == {key: number}
    assert number >= 1
    assert any(f"rows.{key}: drop" in note and f"{number:,} of" in note for note in site_table.notes)


def test_differing_duplicates_are_refused(tmp_path: Path) -> None:
    rows = [wide(1, *"10000"), wide(1, *"01000"), wide(2), wide(2)]
    assert refusals(tmp_path, ONEHOT, rows, rows={"duplicate": "drop"}) == [("contradictory rows", 3)]
    (problem,) = problems(tmp_path, ONEHOT, rows[:2])
    assert "labels.csv:2 in cardiomegaly, edema" in problem.message
    assert "rows.contradictory: drop" in problem.advice


def test_unknown_labels_are_never_left_out(tmp_path: Path) -> None:
    every = dict.fromkeys(("contradictory", "duplicate", "total", "unnamed"), "drop")
    errors = problems(tmp_path, ONEHOT, [wide(1), wide(2, *"70000")], rows=every)
    assert {problem.kind for problem in errors} == {"unknown label"}


def test_damaged_films_are_still_reported(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/2.png").write_bytes(b"damaged")
    rows = [wide(number) for number in range(5)]
    table = open_table(tmp_path, ONEHOT, rows, rows={"missing_image": "drop"})
    assert (images(table), table.left_out) == (["2.png"], {"missing_image": 4})
    site = config(tmp_path, ONEHOT, rows={"missing_image": "drop"})
    report = check_site(site, tmp_path, cache_root=tmp_path / "cache")
    assert [problem.kind for problem in report.errors] == ["unreadable image"]
    assert report.counts.dropped == {"missing_image": 4}
    assert "remove the file" in report.errors[0].advice  # its row may have other images
    assert any("4 of 5 rows that name an image that does not exist" in warning.message for warning in report.warnings)


def test_leaving_nothing_is_an_error(tmp_path: Path) -> None:
    assert refusals(tmp_path, ONEHOT, [wide(1)], rows={"missing_image": "drop"}) == [("nothing left", None)]


def test_a_release_can_leave_rows_out_too(tmp_path: Path) -> None:
    row = ",".join(
        ["CheXpert-v1.0/train/patient{0}/study1/view1_frontal.jpg", "Female", "60", "Frontal", "AP", *["0"] * 14]
    )
    named = "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia"
    named += ",Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
    header = f"Path,Sex,Age,Frontal/Lateral,AP/PA,{named}"
    lines = [header, *(row.format(f"0000{number}") for number in (1, 2, 3, 3))]
    write_files(tmp_path, {"CheXpert-v1.0/train.csv": ("\n".join(lines) + "\n").encode()})
    image = tmp_path / "site/CheXpert-v1.0/train/patient00002/study1/view1_frontal.jpg"
    image.parent.mkdir(parents=True)
    image.touch()
    site = load_bundled("chexpert").model_copy(update={"root": str(tmp_path / "site")})
    survey = survey_site(site, tmp_path)
    assert [problem.kind for problem in survey.problems] == ["duplicate image"]
    rules = site.rows.model_copy(update={"missing_image": "drop", "duplicate": "drop"})
    table = open_site(site.model_copy(update={"rows": rules}), tmp_path)
    assert len(table.frame) == 1
    assert sum(table.left_out.values()) == 3


def test_a_repeated_row_may_have_own_images(tmp_path: Path) -> None:
    table = {**ONEHOT, "images": {"folder": True}}
    write_files(tmp_path, {"a/1.png": b"", "a/b/2.png": b""})
    rows = [wide(1, File="a/b"), wide(1, File="a")]
    assert refusals(tmp_path, table, rows, rows={"duplicate": "drop"}) == [("duplicate image", 3)]
    opened = open_table(tmp_path, table, rows[::-1], rows={"duplicate": "drop"})
    assert images(opened) == ["a/1.png", "a/b/2.png"]


def test_a_study_row_takes_its_folder(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.jpg", "a/notes.txt", "b/deep/3.jpeg", "c/notes.txt"):
        write_files(tmp_path, {name: b""})
    rows = [wide(n, *"10000", Study=study) for n, study in enumerate("abcd", 1)]
    table = {**ONEHOT, "columns": {**COLUMNS, "image": "Study"}, "images": {"folder": True}}
    assert refusals(tmp_path, table, rows) == [("missing image", 4), ("missing image", 5)]
    opened = open_table(tmp_path, table, rows, rows={"missing_image": "drop"})
    assert images(opened) == ["a/1.png", "a/2.jpg", "b/deep/3.jpeg"]
    assert (column(opened, "row"), opened.left_out) == ([2, 2, 3], {"missing_image": 2})
    assert refusals(tmp_path, table, [wide(1, Study="../x")]) == [("path outside the root", 2)]
    with pytest.raises(SiteError) as caught:
        open_site(config(tmp_path, table), tmp_path, tmp_path / "site/labels.csv")
    assert [(problem.kind, problem.file) for problem in caught.value.problems] == [("missing file", "labels")]


def test_missing_zeros_are_hinted_at(tmp_path: Path) -> None:
    save_dicom(tmp_path / "site/1.dcm", AccessionNumber="00012", PatientID="p1")
    (problem,) = problems(tmp_path, {"images": {"header": "AccessionNumber"}}, [wide(1, File="12")])
    assert problem.kind == "nothing left"
    assert "without leading zeros 1 rows would match" in problem.message


def test_an_annotators_contradiction_counts(tmp_path: Path) -> None:
    terms = [("1", "A", "Edema"), ("2", "A", "Edema"), ("2", "B", "Edema"), ("2", "B", "no Edema")]
    rows = [person(int(number), Finding=term, Reader=reader) for number, reader, term in terms]
    long = {**LONG, "columns": {**LONG["columns"], "reader": "Reader"}}
    assert [row for _, row in refusals(tmp_path, long, rows)] == [4]
    table = open_table(tmp_path, long, rows, rows={"contradictory": "drop"})
    assert images(table) == ["1.png"]
    assert table.left_out == {"contradictory": 1}


def test_a_name_like_a_total_is_not_one(tmp_path: Path) -> None:
    rows = [wide(1, MRN="SUM001"), wide(2, MRN="Total7"), wide(3, MRN="Total 7"), wide(4, MRN="\u5408\u8a0812")]
    table = open_table(tmp_path, ONEHOT, rows, rows={"total": "drop"})
    assert images(table) == ["1.png", "2.png"]
