"""Where the image of a row is, what its path says of it, and headers that name it."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chestfed.data.checks import check_site
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.tables.image_paths import in_roots
from chestfed.data.sites.tables.schema import Images
from tests.cases import each
from tests.data.sites.own_tables import (
    READERS,
    SECRET,
    config,
    labels,
    meanings,
    open_table,
    problems,
    refusals,
    save_dicom,
    save_rows,
    wide,
)
from tests.data.sites.small_sites import column, write_files

RECURSIVE: dict[str, Any] = {"roots": ["img"], "suffix": ".png", "recursive": True}
STUDY = {"image": "File", "patient": "MRN", "study": "Study No"}


def touch(folder: Path, *names: str) -> None:
    write_files(folder, dict.fromkeys(names, b""))


@each(
    ("images", "files", "cells", "expected"),
    [
        ({}, "new/a/1", [".\\a\\1"], ["a/1"]),
        ({"suffix": ".png"}, "new/a/1", [".\\a\\1"], ["a/1.png"]),
        ({"path": "{study}/{image}.dcm"}, "new/a/1", [".\\a\\1"], ["S7/a/1.dcm"]),
        ({"path": "p{patient[:2]}/{Study No}/x", "suffix": ".jpg"}, "new/a/1", ["1"], ["p47/S7/x.jpg"]),
        ({"roots": ["old", "new"]}, "new/a/1", [".\\a\\1"], ["new/a/1"]),
        ({"roots": ["old", "older"]}, "new/a/1", [".\\a\\1"], ["old/a/1"]),
        ({"remove_prefix": "a/"}, "new/a/1", [".\\a\\1"], ["1"]),
        ({"replace": {" ": "-", "-": "_"}}, "new/a/1", ["a b-1"], ["a-b_1"]),
        ({"replace": {"-": "_", "--": "."}}, "new/a/1", ["a--b-1"], ["a.b_1"]),
        (
            RECURSIVE,
            "img/Doe/a/1.png img/Roe/2.png elsewhere/2.png img/.trash/1.png",
            ["1", "Roe\\2.png", "3"],
            ["img/Doe/a/1.png", "img/Roe/2.png", "img/3.png"],
        ),
    ],
)
def test_an_image_path_is_as_configured(
    tmp_path: Path, images: dict[str, Any], files: str, cells: list[str], expected: list[str]
) -> None:
    touch(tmp_path, *files.split())
    rows = [wide(1, File=cell, MRN="4711", **{"Study No": "S7"}) for cell in cells]
    assert column(open_table(tmp_path, {"columns": STUDY, "images": images}, rows), "image") == expected


def test_an_ambiguous_name_is_a_problem(tmp_path: Path) -> None:
    touch(tmp_path, "img/Doe/1.png", "img/Roe/1.png", "img/Roe/2.png")
    rows = [wide(1, File="1"), wide(2, File="2"), wide(3, File="Doe/1")]
    (problem,) = problems(tmp_path, {"images": RECURSIVE}, rows)
    assert (problem.kind, problem.row) == ("ambiguous image", 2)
    assert not [name for name in ("Doe", "Roe") if name in str(problem)]


@each(("disk", "cell"), [("NFD", "NFC"), ("NFC", "NFD")])
@each("recursive", [False, True])
def test_accents_may_be_stored_either_way(tmp_path: Path, disk: Any, cell: Any, recursive: bool) -> None:
    file = unicodedata.normalize(disk, "img/Prénom/größe.png")
    touch(tmp_path, file)
    rows = [wide(1, File=unicodedata.normalize(cell, "Prénom/größe.png"))]
    table = open_table(tmp_path, {"images": {"roots": ["img"], "recursive": recursive}}, rows)
    assert column(table, "image") == [file]


PARTS = st.lists(st.sampled_from(["a", "b", "ä", "a\u0308"]), min_size=1, max_size=3).map("/".join)


@given(files=st.lists(PARTS, min_size=1, max_size=6, unique=True), asked=PARTS)
def test_files_fit_whose_path_ends_so(tmp_path_factory: pytest.TempPathFactory, files: list[str], asked: str) -> None:
    root = tmp_path_factory.mktemp("site")
    for name in files:
        if not any((root / part).is_file() for part in [name, *map(str, Path(name).parents)]):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if not (root / name).exists():
                (root / name).touch()
    there = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]

    def plain(path: str) -> tuple[str, ...]:
        return Path(unicodedata.normalize("NFC", path)).parts

    fitting = [path for path in there if plain(path)[-len(plain(asked)) :] == plain(asked)]
    placed = in_roots(pd.Series([asked], dtype=object), Images(recursive=True), Folders(root))
    assert bool(placed.ambiguous[0]) == (len(fitting) > 1)
    assert placed.images[0] == (fitting[0] if len(fitting) == 1 else asked)


def test_a_folder_has_images_without_endings(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        for name in ("IM1", "IM2.dcm"):
            save_dicom(tmp_path / "site" / folder / name)
        (tmp_path / "site" / folder / "._IM2.dcm").write_bytes(b"of a Mac")
        (tmp_path / "site" / folder / "report").write_text("no image")
    (tmp_path / "site/b/IM3").touch()  # perhaps a damaged one
    save_dicom(tmp_path / "site/c/1.dcm")
    (tmp_path / "site/c/done").touch()
    rows = [wide(number, File=folder) for number, folder in enumerate("abc")]
    table = open_table(tmp_path, {"images": {"folder": True}}, rows)
    assert table.frame["image"].tolist() == ["a/IM1", "a/IM2.dcm", "b/IM1", "b/IM2.dcm", "b/IM3", "c/1.dcm"]


@each("kind", ["file", "folder", "link in a linked folder"])
def test_links_out_of_the_root_are_refused(tmp_path: Path, kind: str) -> None:
    inside, outside = tmp_path / "site/real", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "1.png").touch()
    (tmp_path / "site/inner").symlink_to(inside)
    assert problems(tmp_path, {}, [wide(1, File="inner/1.png")]) == []
    if kind == "file":
        (tmp_path / "site/x.png").symlink_to(outside / "1.png")
    elif kind == "folder":
        (tmp_path / "site/x").symlink_to(outside)
    else:
        (inside / "out").symlink_to(outside)
    path = {"file": "x.png", "folder": "x/1.png"}.get(kind, "inner/out/1.png")
    rows = [wide(1, File="real/1.png"), wide(2, File=path)]
    assert refusals(tmp_path, {}, rows) == [("path outside the root", 3)]
    (tmp_path / "linked").symlink_to(tmp_path / "site")  # the root itself may be a link
    assert problems(tmp_path, {}, [wide(1, File="real/1.png")], root="linked") == []


# Headers.


def table(element: str = "AccessionNumber", **images: Any) -> dict[str, Any]:
    return {
        "columns": {"image": "File", "patient": "MRN", "view": "ViewPosition"},
        "images": {"header": element, "elements": ["ViewPosition"], "roots": ["img"], **images},
        "codes": {"view": {"LL": "lateral"}},
    }


def save_images(folder: Path, **first: str) -> None:
    """Two images of one study, one of another, and a report."""
    for n, (accession, patient, view) in enumerate((("007", "a", "PA"), ("007", "a", "LL"), ("A9", "b", "AP"))):
        header = {"AccessionNumber": accession, "PatientID": patient, "ViewPosition": view}
        header |= {"SOPInstanceUID": f"1.2.{n}", "StudyInstanceUID": f"1.9.{accession[-1]}"}
        save_dicom(folder / f"site/img/{SECRET}/IM{n}", **{**header, **(first if n == 0 else {})})
    save_dicom(folder / "site/img/SR", SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11", AccessionNumber="007")


def test_images_of_a_study_share_the_labels(tmp_path: Path) -> None:
    save_images(tmp_path)
    opened = open_table(tmp_path, table(), [wide(1, File="A9", Edema=1), wide(2, File="007", Edema=0)])
    assert column(opened, "image") == [f"img/{SECRET}/IM{n}" for n in (2, 0, 1)]
    assert column(opened, "view") == ["ap", "pa", "lateral"]
    assert column(opened, "row") == [2, 3, 3]
    assert [row[1] for row in labels(opened)] == [1, 0, 0]
    for element, cell in (("SOPInstanceUID", "1.2.2"), ("StudyInstanceUID", "1.9.9")):
        by_uid = open_table(tmp_path, table(element), [wide(1, File=cell)])
        assert column(by_uid, "image") == [f"img/{SECRET}/IM2"]
    dropped = open_table(tmp_path, table(unmatched="drop"), [wide(1, File="A9"), wide(2, File="7")])
    assert len(dropped.frame) == 1


PATIENT_C = {"PatientID": "c", "SOPInstanceUID": "1.2.1"}


@each(
    ("first", "images", "cells", "expected"),
    [
        ({}, {}, ["A9", "7", ""], [("blank name", 4), ("unmatched row", 3)]),
        ({}, {"unmatched": "drop"}, ["7"], [("nothing left", None)]),
        ({}, {}, ["A9", "A9"], [("contradictory rows", 3)]),
        (PATIENT_C, {}, ["007", "A9"], [("ambiguous image", 2)]),  # of two patients
        ({"PatientID": ""}, {}, ["007", "A9"], [("ambiguous image", 2)]),  # one of the images is nobody's
        ({"SOPInstanceUID": "1.2.1"}, {"header": "SOPInstanceUID"}, ["1.2.1"], [("ambiguous image", 2)]),
        ({}, {}, ["A9 p1", "007 p2"], []),  # the table calls its patients otherwise
        ({}, {}, ["A9 b", "007 a"], []),
        ({}, {}, ["A9 a", "007 b"], [("another patient", 2), ("another patient", 3)]),
    ],
)
def test_rows_and_headers_have_to_fit(
    tmp_path: Path, first: dict[str, str], images: dict[str, Any], cells: list[str], expected: list[Any]
) -> None:
    save_images(tmp_path, **first)
    names = [cell.split(" ") for cell in cells]
    rows = [wide(n, File=name[0], **({"MRN": name[1]} if name[1:] else {})) for n, name in enumerate(names)]
    reported = problems(tmp_path, table(**images), rows)
    assert [(problem.kind, problem.row) for problem in reported] == expected
    assert SECRET not in str(reported)


def test_lost_zeros_are_not_another_patient(tmp_path: Path) -> None:
    save_images(tmp_path, PatientID="007")
    save_dicom(tmp_path / "site/img/IM3", AccessionNumber="B1", PatientID="08", SOPInstanceUID="1.2.3")
    rows = [wide(1, File="A9", MRN="b"), wide(2, File="B1", MRN="8")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, problem.row) == ("another patient", 3)
    assert "leading zeros" in problem.message
    assert "moved" not in problem.advice


def test_images_without_patient_are_accepted(tmp_path: Path) -> None:
    save_images(tmp_path)
    save_dicom(tmp_path / "site/img/IM3", AccessionNumber="B1", PatientID="", SOPInstanceUID="1.2.3")
    slipped = [wide(1, File="A9", MRN="a"), wide(2, File="007", MRN="b"), wide(3, File="B1", MRN="a")]
    assert refusals(tmp_path, table(), slipped) == [("another patient", 2), ("another patient", 3)]
    for n in (0, 1):  # a study without any patient
        uid = f"1.2.{n}"
        path = tmp_path / f"site/img/{SECRET}/IM{n}"
        save_dicom(path, AccessionNumber="007", PatientID="", SOPInstanceUID=uid, ViewPosition="PA")
    assert refusals(tmp_path, table(), [wide(1, File="007"), wide(2, File="A9")]) == []


def test_a_check_names_an_unreadable_header(tmp_path: Path) -> None:
    save_images(tmp_path)
    (tmp_path / f"site/img/{SECRET}/IM9").touch()
    rows = [wide(1, File="A9"), wide(2, File="007")]
    (problem,) = problems(tmp_path, table(), rows)
    assert (problem.kind, SECRET in str(problem)) == ("unreadable header", False)
    save_rows(tmp_path / "site/labels.csv", rows)
    report = check_site(config(tmp_path, table()), tmp_path, images=False)
    assert [SECRET in problem.message for problem in report.errors] == [True]
    assert "structured report 1" in str(report.warnings)


# What the path tells.

PATHED: dict[str, Any] = {
    "columns": {"image": "File"},
    "from_path": r"(?P<patient>patient\d+)/(?P<study>study\d+)/view\d+_(?P<view>\w+)\.",
    "codes": {"view": {"side": "lateral"}},
}


def test_patient_study_and_view_in_the_path(tmp_path: Path) -> None:
    rows = [
        wide(1, File="train/patient1/study1/view1_frontal.jpg"),
        wide(2, File="train/patient1/study2/view1_side.jpg"),
    ]
    table = open_table(tmp_path, PATHED, rows)
    assert column(table, "patient") == ["patient1"] * 2
    assert column(table, "study") == ["study1", "study2"]
    assert column(table, "view") == ["frontal", "lateral"]
    touch(tmp_path, "img/P7/1.png", "img/P9/2.png")
    below = {"images": RECURSIVE, "columns": {"image": "File"}, "from_path": "^(?P<patient>[^/]+)/"}
    assert column(open_table(tmp_path, below, [wide(1, File="1"), wide(2, File="2")]), "patient") == ["P7", "P9"]


def test_the_split_may_be_in_the_path(tmp_path: Path) -> None:
    table = {"columns": {"image": "File"}, "from_path": "^(?P<split>[^/]+)/(?P<patient>[^_]+)_"}
    rows = [wide(1, File="train/a_1.png"), wide(2, File="val/b_1.png"), wide(3, File="test/a_2.png")]
    assert column(open_table(tmp_path, table, rows[:2]), "split") == ["train", "valid"]
    assert refusals(tmp_path, table, rows) == [("patient in two splits", 4)]


def test_a_path_off_the_pattern_is_reported(tmp_path: Path) -> None:
    rows = [wide(1, File="patient1/study1/view1_frontal.jpg"), wide(2, File=f"{SECRET}.jpg")]
    reported = problems(tmp_path, PATHED, rows)
    assert ("unknown path", 3) in [(problem.kind, problem.row) for problem in reported]
    assert SECRET not in str(reported)


def test_patterns_fit_headers_and_readers(tmp_path: Path) -> None:
    rows = [wide(1, File="p1/1.png", Reader=reader) for reader in "AB"]
    columns = {"image": "File", "reader": "Reader"}
    by_folder = {"from_path": "^(?P<patient>[^/]+)/"}
    assert column(open_table(tmp_path, {**READERS, "columns": columns, **by_folder}, rows), "patient") == ["p1"]
    save_dicom(tmp_path / "site" / "p7" / "1.dcm", ImageComments="Edema")
    table = {"columns": {"findings": "ImageComments"}, "codes": {"findings": meanings()}, **by_folder}
    assert column(open_table(tmp_path, table, None, label_files={"images": ["**/*.dcm"]}), "patient") == ["p7"]
