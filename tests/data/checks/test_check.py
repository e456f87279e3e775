"""A site check finds every planted defect by file and row, and nothing on the clean twin."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydicom.uid import ExplicitVRLittleEndian

from chestfed.core.diseases import DISEASES
from chestfed.core.errors import Problem
from chestfed.data.checks import CheckReport, check_site
from chestfed.data.checks.problems import OPPOSITE, PICTURES_READ, POLARITY, UNREAD, UNSUITABLE, WARNINGS
from chestfed.data.checks.scan import FACTS
from chestfed.reports.pages.site_report import SiteReport, print_report
from chestfed.reports.pages.site_report.render import as_json, as_markdown
from tests.cases import each
from tests.data.checks.planted import (
    DICOM_FILES,
    FILES,
    IMAGES,
    PICTURE_FILES,
    ROWS,
    Hospital,
    dicom,
    film,
    get_row,
    picture,
    write_image,
)
from tests.data.checks.planted import save as save_dicom
from tests.data.sites.own_tables import NAMES, config, meanings, person, save_rows, wide

ONEHOT: dict[str, Any] = {}


def check(folder: Path, table: dict[str, Any] | None = None, file: str = "labels.csv", **keys: Any) -> CheckReport:
    site = config(folder, table or ONEHOT, file)
    return check_site(site, folder, cache_root=folder / "cache", workers=1, **keys)


def list_problems(report: CheckReport) -> list[tuple[str, int | None]]:
    return [(problem.kind, problem.row) for problem in (*report.errors, *report.warnings)]


def test_a_clean_site_passes_without_a_word(tmp_path: Path) -> None:
    Hospital(tmp_path).save()
    report = check(tmp_path)
    assert list_problems(report) == []
    assert report.passed
    files = report.counts.files
    assert files is not None
    assert (files.looked_at, files.readable) == (IMAGES, IMAGES)
    assert files.formats == {"PNG": 8, "JPEG": 8, "DICOM": 8}
    assert files.bits == {"8": 16, "12": 8}
    assert files.transfer_syntaxes == {ExplicitVRLittleEndian.name: 8}
    assert files.modes == {"L": 16, "MONOCHROME2": 8}
    assert files.sizes == {"96x96": 24}


@pytest.mark.slow_but("undeclared", "header")
@pytest.mark.parametrize(
    ("number", "pictures", "followed"),
    [
        (9, {}, "label file"),
        (9, {"inverted": "picture"}, "picture"),
        (9, {"inverted": "never"}, "label file"),
        (8, {"inverted": "picture"}, "header"),
    ],
    ids=["undeclared", "picture", "never", "header"],
)
def test_undeclared_negative_is_reported(tmp_path: Path, number: int, pictures: dict[str, str], followed: str) -> None:
    hospital = Hospital(tmp_path)
    for other in range(IMAGES):
        write_image(hospital.image(other), film(other) if other != number else 255 - film(other))
    hospital.save()
    site = config(tmp_path, ONEHOT, pictures=pictures)
    report = check_site(site, tmp_path, cache_root=tmp_path / "cache", workers=1)
    assert report.passed
    polarity, counts = (problem for problem in report.warnings if problem.kind in (POLARITY, PICTURES_READ))
    assert (polarity.kind, polarity.row, counts.kind) == (POLARITY, get_row(number), PICTURES_READ)
    assert f"the {followed} counts" in polarity.message
    assert f"of {IMAGES} frontal images 1 contradict" in counts.message


def test_dicom_without_window_is_counted(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number in (2, 5):
        save_dicom(dicom(picture(number), WindowWidth="0"), hospital.image(number))
    hospital.save()
    (counts,) = check(tmp_path).warnings
    assert counts.kind == PICTURES_READ
    assert counts.message.startswith("2 of 8 DICOM files have no usable window")


def test_turned_dicom_files_are_counted(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number, orientation in ((2, ["R", "F"]), (5, ["L", "F"]), (8, ["H", "R"])):
        save_dicom(dicom(picture(number), PatientOrientation=orientation), hospital.image(number))
    hospital.save()
    (counts,) = check(tmp_path).warnings
    assert (counts.kind, counts.message[:6]) == (PICTURES_READ, "2 of 8")


def test_other_body_parts_are_counted(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number, part in ((2, "ABDOMEN"), (5, "CHEST"), (8, "HAND"), (11, "ABDOMEN"), (14, "JANE DOE")):
        save_dicom(dicom(picture(number), BodyPartExamined=part), hospital.image(number))
    hospital.save()
    errors = check(tmp_path).errors
    assert [problem.kind for problem in errors] == [UNSUITABLE] * 3
    assert errors[0].row == get_row(2)
    assert errors[0].message.startswith(f"2 of {IMAGES} files")
    assert "ABDOMEN" in errors[0].message
    assert "DOE" not in "".join(problem.message for problem in errors)
    for accepted in ("all", ["CHEST", "ABDOMEN", "HAND", "JANE DOE"]):
        site = config(tmp_path, ONEHOT, pictures={"body_parts": accepted})
        assert check_site(site, tmp_path, cache_root=tmp_path / "cache", workers=1).passed


@pytest.mark.slow
@each("name", FILES)
def test_planted_file_is_found_alone(tmp_path: Path, name: str) -> None:
    hospital = Hospital(tmp_path)
    spoil, kind, fails, words = FILES[name]
    number = 8 if name in DICOM_FILES else PICTURE_FILES.get(name, 9)
    spoil(hospital.image(number))
    hospital.save()
    report = check(tmp_path)
    (problem,) = (*report.errors, *report.warnings)
    assert (problem.kind, problem.file, problem.row) == (kind, "labels.csv", get_row(number))
    assert words in problem.message
    assert report.passed != fails
    if kind != "path outside the root":
        assert hospital.image(number).name in problem.message
    assert "Doe" not in str(report.errors)


@pytest.mark.slow
@each("name", ROWS)
def test_planted_row_is_found_alone(tmp_path: Path, name: str) -> None:
    hospital = Hospital(tmp_path)
    plant, kind, fails, words = ROWS[name]
    number = plant(hospital)
    hospital.save()
    report = check(tmp_path)
    (problem,) = (*report.errors, *report.warnings)
    assert (problem.kind, problem.file, problem.row) == (kind, "labels.csv", get_row(number))
    assert words in problem.message
    assert report.passed != fails


def test_all_defects_come_in_one_report(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    expected = []
    spoilt = {"0 bytes": 0, "truncated": 1, "huge rows": 2, "blank": 3, "wrong extension": 6, "removed": 7}
    spoilt["link out"] = 9
    for name, number in spoilt.items():
        FILES[name][0](hospital.image(number))
        expected.append((FILES[name][1], get_row(number)))
    for number, (name, column, cell) in enumerate(
        [
            ("unknown value", "Edema", "perhaps"),
            ("formula", "Sex", "=A1"),
            ("parent folder", "File", "../x.png"),
            ("no patient", "MRN", ""),
        ],
        start=10,
    ):
        hospital.rows[number][column] = cell
        expected.append((ROWS[name][1], get_row(number)))
    hospital.rows[20]["MRN"] = hospital.rows[14]["MRN"]
    expected.append(("patient in two splits", get_row(20)))
    hospital.save()
    report = check(tmp_path)
    assert sorted(list_problems(report), key=str) == sorted(expected, key=str)


@pytest.mark.slow
def test_a_formula_in_a_spreadsheet_is_found(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.rows[5]["Sex"] = '=HYPERLINK("http://x.example")'
    save_rows(tmp_path / "site/labels.xlsx", hospital.rows)
    assert list_problems(check(tmp_path, file="labels.xlsx")) == [("formula cell", get_row(5))]


@pytest.mark.slow
def test_a_byte_order_mark_is_no_defect(tmp_path: Path) -> None:
    Hospital(tmp_path).save("utf-8-sig")
    assert list_problems(check(tmp_path)) == []


@pytest.mark.slow
def test_encoding_is_reported_with_the_rest(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number in (4, 5):
        hospital.rows[number]["MRN"] = "Mül" if number == 5 else "p2x"
    hospital.rows[9]["Edema"] = "perhaps"
    hospital.save("latin-1")
    report = check(tmp_path)
    assert list_problems(report) == [("wrong encoding", get_row(5)), ("unknown label", get_row(9))]
    assert "is not UTF-8 (line 7): cp1252" in report.errors[0].message
    assert "Mül" not in str(report.errors)


def test_rows_of_other_encoding_are_named(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for number in (2, 7, 13):
        hospital.rows[number]["MRN"] = f"Mül{number}"
    data = hospital.save().read_bytes().split(b"\n")
    for number in (7, 13):
        data[number + 1] = data[number + 1].decode("utf-8").encode("latin-1")
    (tmp_path / "site/labels.csv").write_bytes(b"\n".join(data))
    assert list_problems(check(tmp_path)) == [("wrong encoding", get_row(7)), ("wrong encoding", get_row(13))]


@pytest.mark.slow
def test_unknown_term_has_closest_known_one(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    names = ["Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Effusion"]
    rows = [person(number, **hospital.rows[number], Terms=names[number % 5]) for number in range(IMAGES)]
    rows[5]["Terms"] = "Atelektasis"
    save_rows(tmp_path / "site/labels.csv", rows)
    table = {
        "columns": {"image": "File", "patient": "MRN", "findings": "Terms"},
        "codes": {"findings": meanings()},
    }
    report = check(tmp_path, table)
    (problem,) = report.errors
    assert (problem.kind, problem.row) == ("unknown finding", get_row(5))
    assert "closest: 'atelectasis'" in problem.message


@pytest.mark.slow
def test_disease_without_positives_warns(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    for row in hospital.rows[16:]:
        row["Edema"] = "0"
        row["Consolidation"] = ""
    hospital.save()
    report = check(tmp_path)
    assert report.passed
    assert [(problem.kind, problem.file) for problem in report.warnings] == [
        ("disease without positives", "diseases.edema"),
        ("disease without labels", "diseases.consolidation"),
    ]
    (test,) = [part for part in report.counts.splits if part.split == "test"]
    assert test.labels["consolidation"].missing == 8
    assert test.labels["consolidation"].prevalence is None


def test_shared_rows_are_found(tmp_path: Path) -> None:
    for name in ("here", "there"):
        hospital = Hospital(tmp_path / name)
        for number, row in enumerate(hospital.rows):
            row["MRN"] = f"{name}{row['MRN']}" if number // 2 != 4 else "p4"
        hospital.save()
    there = config(tmp_path / "there", ONEHOT, site="there", root=str(tmp_path / "there/site"))
    here = Hospital.__new__(Hospital)
    here.folder = tmp_path / "here"
    from tests.data.checks.planted import picture, write_image

    for number in range(IMAGES):
        suffix = (".png", ".jpg", ".dcm")[number % 3]
        if number not in (3, 10):
            write_image(tmp_path / f"here/site/{number}{suffix}", picture(100 + number))
    # 3 stays the same picture; 10 is written again, smaller.
    from PIL import Image

    Image.fromarray(picture(10)).resize((80, 80), Image.Resampling.LANCZOS).save(tmp_path / "here/site/10.jpg")
    report = check(tmp_path / "here", against=[there])
    assert list_problems(report) == [
        ("same picture in another site", get_row(3)),
        ("patient in another site", get_row(8)),
        ("nearly the same picture in another site", get_row(10)),
    ]
    assert report.against == {"there": IMAGES}
    assert "there: labels.csv:5" in report.errors[0].message


def test_labels_alone_can_be_checked(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    hospital.rows[5]["Edema"] = "perhaps"
    path = hospital.save()
    moved = tmp_path / "elsewhere.csv"
    path.rename(moved)
    for report in (check(tmp_path, labels_file=moved), check(tmp_path, labels_file=moved, images=False)):
        assert list_problems(report) == [("unknown label", get_row(5))]
        assert (report.counts.files, report.counts.studies) == (None, None)


def test_cache_names_nobody_and_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hospital = Hospital(tmp_path)
    FILES["truncated"][0](hospital.image(9))
    hospital.save()
    first = check(tmp_path)
    content = b"".join(file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file())
    assert not [row["File"] for row in hospital.rows if str(row["File"]).encode() in content]
    assert b"p10" not in content
    assert b"Doe" not in content

    from chestfed.data.checks import facts

    def again(*_: object) -> None:
        raise AssertionError("looked at again")

    monkeypatch.setattr(facts, "decode_stored", again)
    second = check(tmp_path)
    assert list_problems(second) == list_problems(first)
    assert as_json(second) == as_json(first)


def test_a_check_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chestfed.data.checks import facts
    from chestfed.data.images import file_store

    Hospital(tmp_path).save()
    monkeypatch.setattr(file_store, "_BATCH", 4)
    looked: list[Path] = []
    original = facts.decode_stored

    def stopped(path: Path, bits: int | None) -> object:
        if len(looked) == 10:
            raise KeyboardInterrupt
        looked.append(path)
        return original(path, bits)

    monkeypatch.setattr(facts, "decode_stored", stopped)
    with pytest.raises(KeyboardInterrupt):
        check(tmp_path)
    looked.clear()
    monkeypatch.setattr(facts, "decode_stored", lambda *job: (looked.append(job[0]), original(*job))[1])
    assert list_problems(check(tmp_path)) == []
    assert len(looked) == IMAGES - 8


@pytest.mark.slow
def test_several_processes_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chestfed.core.processes.workers import parallel_map
    from chestfed.data.images import file_store

    hospital = Hospital(tmp_path)
    for name, number in (("truncated", 3), ("blank", 6), ("huge rows", 8)):
        FILES[name][0](hospital.image(number))
    hospital.save()
    single = check(tmp_path)
    monkeypatch.setattr(file_store, "parallel_map", lambda *args, **keys: parallel_map(*args, **keys, small=1))
    site = config(tmp_path, ONEHOT)
    two = check_site(site, tmp_path, cache_root=tmp_path / "other cache", workers=2)
    assert as_json(two) == as_json(single)


def test_report_steers_no_terminal(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path)
    name = "a|b<script>\x1b[31m`x`.png"
    hospital.rows[0]["File"] = name
    for row in hospital.rows:
        row["Edema"] = "perhaps"
    hospital.save()
    report = check(tmp_path)
    whole = SiteReport(config(tmp_path, ONEHOT), report)
    text = as_markdown(whole, named=True)
    assert text.count("\n| labels.csv |") == len(report.errors) == 2
    assert "<script>" not in text
    assert "\x1b" not in text
    assert json.loads(as_json(report))["errors"][-1]["kind"] == "missing image"

    from rich.console import Console

    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    print_report(console, whole)
    shown = console.export_text(styles=False)
    assert "\x1b" not in shown
    assert "unknown label (1)" in shown
    first = shown.split("LOOK AT FIRST")[1].split("ERRORS")[0]
    assert [line.split(":")[0].strip() for line in first.splitlines() if line[:4].strip().endswith(".")] == [
        "1. unknown label (1), first at labels.csv",
        "2. missing image (1), first at labels.csv",
        "3. disease without positives (2), first at diseases.edema",
    ]


def test_warnings_are_split_from_errors() -> None:
    from chestfed.data.checks.problems import split_by_severity

    problems = [Problem(kind, "labels.csv", "") for kind in (*WARNINGS, "unreadable image", "anything new")]
    errors, warnings = split_by_severity([problems])
    assert [problem.kind for problem in errors] == ["unreadable image", "anything new"]
    assert [problem.kind for problem in warnings] == list(WARNINGS)


assert len(DISEASES) == 5


@pytest.mark.slow_but("c3 = x'00'")
@pytest.mark.parametrize("harm", ["c0 = 'no JSON'", "c3 = x'00'", "c0 = 7"])
def test_damaged_facts_are_made_again(tmp_path: Path, harm: str) -> None:
    Hospital(tmp_path).save()
    first = check(tmp_path)
    (file,) = (tmp_path / "cache").rglob("images.sqlite")
    with closing(sqlite3.connect(file)) as index, index:
        index.execute(f'UPDATE "{FACTS.name}" SET {harm}')
    assert list_problems(check(tmp_path)) == list_problems(first)


@each(
    ("codes", "edema", "number"),
    [
        ({"labels": {"no": "positive", "yes": "negative"}}, "Edema", 2),
        ({"Edema": {"no": "positive"}}, "Edema", 1),
        ({"sex": {"Female": "M"}}, "Edema", 1),
        ({}, "No Edema", 1),
        ({"labels": {"no": "positive"}}, "No Edema", 2),
        ({"No Edema": {"yes": "negative", "no": "positive", "1": "negative", "0": "positive"}}, "No Edema", 0),
        ({"labels": {"2": "positive", "1": "negative"}}, "Edema", 0),
    ],
)
def test_opposite_meanings_warn(tmp_path: Path, codes: dict[str, Any], edema: str, number: int) -> None:
    rows = [{**wide(n, *values), edema: values[1]} for n, values in enumerate((["yes"] * 5, ["no"] * 5))]
    (tmp_path / "site").mkdir()
    save_rows(tmp_path / "site/labels.csv", rows)
    site = config(tmp_path, {"codes": codes}, labels={**NAMES, "edema": [edema]})
    report = check_site(site, tmp_path, images=False)
    kinds = [problem.kind for problem in report.warnings]
    assert kinds == [OPPOSITE] * number + [UNREAD]  # 'Pulmonary Edema', which the configuration does not name
    assert len(report.inspection.survey.table.notes) == number
