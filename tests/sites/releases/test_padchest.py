"""The PadChest reader on small files in the release's format."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cases import each
from tests.sites.small_sites import column, open_files, problems_of

NAME = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
HEADER = (
    ",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,PatientBirth,PatientSex_DICOM,ViewPosition_DICOM,Projection,"
    "MethodProjection,Pediatric,PhotometricInterpretation_DICOM,ReportID,Report,MethodLabel,Labels,Localizations\n"
)


def row(
    image: str,
    labels: str = "['normal']",
    projection: str = "PA",
    folder: str = "0",
    photometric: str = "MONOCHROME2",
    method: str = "Physician",
    birth: str = "1938.0",
) -> str:
    cells = f"0,{image}.png,{folder},20140915,s{image},p{image},{birth},F,POSTEROANTERIOR,{projection},Manual,No,"
    return cells + f'{photometric},1,"sin hallazgos, ok",{method},"{labels}","[\'loc basal\']"\n'


def labels_of(folder: Path, cell: str, *overrides: str) -> list[float | None]:
    table = open_files(folder, "padchest", {NAME: HEADER + row("1", cell)}, *overrides)
    return [column(table, disease)[0] for disease in table.diseases]  # type: ignore[misc]


@each(
    ("cell", "labels"),
    [
        ("['cardiomegaly', 'pleural effusion ']", [1, 0, 0, 0, 1]),
        ("[' Cardiomegaly', '', 'loc right']", [1, 0, 0, 0, 0]),
        ("['laminar atelectasis', 'pulmonary  edema']", [0, 1, 0, 1, 0]),
        ("['atelectasis basal', 'consolidation']", [0, 0, 1, 1, 0]),
        ("['loculated fissural effusion']", [0, 0, 0, 0, 1]),
        ("['hydropneumothorax']", [0, 0, 0, 0, 1]),
        ("['pericardial effusion', 'costophrenic angle blunting']", [0, 0, 0, 0, 0]),
        ("['normal']", [0, 0, 0, 0, 0]),
        ("[]", [None] * 5),
        ("['', ' ']", [None] * 5),
        ("", [None] * 5),
        ("nan", [None] * 5),
        ("['exclude']", [None] * 5),
        ("['unchanged', 'cardiomegaly']", [1, None, None, None, None]),
    ],
)
def test_terms_become_labels(tmp_path: Path, cell: str, labels: list[float | None]) -> None:
    assert labels_of(tmp_path, cell) == labels


@each("cell", ["cardiomegaly", "['cardiomegaly'", "{'a': 1}", "[1]", "__import__('os')"])
def test_a_cell_that_is_no_list_of_terms_is_refused(tmp_path: Path, cell: str) -> None:
    (problem,) = problems_of(tmp_path, "padchest", {NAME: HEADER + row("1", cell)})
    assert (problem.kind, problem.file, problem.row) == ("bad label value", NAME, 2)


def test_what_beside_excluded_images_is_blank_is_a_policy(tmp_path: Path) -> None:
    assert labels_of(tmp_path, "['exclude']", "reader.no_label=[]") == [0] * 5
    assert labels_of(tmp_path, "['exclude']", "blank=negative") == [0] * 5


@each(
    ("projection", "view"),
    [("PA", "pa"), ("AP", "ap"), ("AP_horizontal", "ap"), ("L", "lateral"), ("COSTAL", "other"), ("EXCLUDE", "other")],
)
def test_projections_become_views(tmp_path: Path, projection: str, view: str) -> None:
    table = open_files(tmp_path, "padchest", {NAME: HEADER + row("1", projection=projection)}, "views=all")
    assert column(table, "view") == [view]


def test_only_frontal_images_are_kept(tmp_path: Path) -> None:
    text = HEADER + "".join(
        row(str(number), projection=name)
        for number, name in enumerate(["PA", "L", "AP", "COSTAL", "AP_horizontal", "EXCLUDE"])
    )
    table = open_files(tmp_path, "padchest", {NAME: text})
    assert column(table, "row") == [2, 4, 6]


def test_an_unknown_projection_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "padchest", {NAME: HEADER + row("1", projection="OBLIQUE")})
    assert (problem.kind, problem.row) == ("unknown view", 2)


def test_images_are_in_their_folder_or_beside_the_label_file(tmp_path: Path) -> None:
    text = HEADER + row("1", folder="0") + row("2", folder="54.0") + row("3", folder="")
    flat = open_files(tmp_path, "padchest", {NAME: text})
    assert column(flat, "image") == ["1.png", "2.png", "3.png"]
    table = open_files(tmp_path, "padchest", {"0/1.png": b"", "54/2.png": b""})
    assert column(table, "image") == ["0/1.png", "54/2.png", "3.png"]


def test_the_folder_column_may_be_absent(tmp_path: Path) -> None:
    header = "ImageID,StudyID,PatientID,Projection,Labels\n"
    table = open_files(tmp_path, "padchest", {NAME: header + "a.png,1,2,PA,['cardiomegaly']\n"})
    assert column(table, "image") == ["a.png"]
    assert column(table, "inverted") == [False]
    assert column(table, "age") == [None]


def test_monochrome1_is_told_by_its_column(tmp_path: Path) -> None:
    table = open_files(tmp_path, "padchest", {NAME: HEADER + row("1") + row("2", photometric="MONOCHROME1")})
    assert column(table, "inverted") == [False, True]


def test_age_is_year_of_study_less_year_of_birth(tmp_path: Path) -> None:
    text = HEADER + row("1") + row("2", birth="") + row("3", birth="1800")
    assert column(open_files(tmp_path, "padchest", {NAME: text}), "age") == [76.0, None, None]


def test_labels_of_the_network_can_be_left_out(tmp_path: Path) -> None:
    text = HEADER + row("1", "['cardiomegaly']", method="RNN_model") + row("2", "['cardiomegaly']")
    table = open_files(tmp_path, "padchest", {NAME: text})
    assert column(table, "cardiomegaly") == [1.0, 1.0]
    table = open_files(tmp_path, "padchest", {}, "reader.methods=[Physician]")
    assert column(table, "cardiomegaly") == [None, 1.0]
    (problem,) = problems_of(
        tmp_path,
        "padchest",
        {NAME: text.replace("Physician", "Radiologist").replace("RNN", "R")},
        "reader.methods=[Physician]",
    )
    assert "found: R_model, Radiologist" in problem.message


@pytest.mark.parametrize("name", [NAME, f"{NAME}.gz"])
def test_compression_is_told_by_content_and_not_by_name(tmp_path: Path, name: str) -> None:
    text = (HEADER + row("1")).encode()
    for folder, content in (("plain", text), ("packed", gzip.compress(text))):
        (tmp_path / folder).mkdir()
        assert len(open_files(tmp_path / folder, "padchest", {name: content}).frame) == 1


def test_fractions_of_the_patients_can_be_set_aside(tmp_path: Path) -> None:
    text = HEADER + "".join(row(str(number)) for number in range(100))
    overrides = ["splits.valid_fraction=0.1", "splits.test_fraction=0.3"]
    table = open_files(tmp_path, "padchest", {NAME: text}, *overrides)
    counts = table.frame["split"].value_counts().to_dict()
    assert counts == {"train": 60, "test": 30, "valid": 10}
    again = open_files(tmp_path, "padchest", {}, *overrides)
    assert column(again, "split") == column(table, "split")
    other = open_files(tmp_path, "padchest", {}, *overrides, "splits.seed=2")
    assert column(other, "split") != column(table, "split")
