"""The NIH reader on small files in the release's formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cases import each
from tests.data.sites.small_sites import column, list_problems, open_files

START = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"
HEADER = START + ",OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n"
QUOTED = START + ',"OriginalImage[Width,Height]","OriginalImagePixelSpacing[x,y]"\n'
END = ",2682,2749,0.143,0.143\n"


def row(name: str, findings: str = "No Finding", patient: str = "1", age: str = "57", view: str = "PA") -> str:
    return f"{name},{findings},0,{patient},{age},M,{view}{END}"


A, B, C = "00000001_000.png", "00000002_000.png", "00000003_000.png"
THREE = row(A, "Cardiomegaly|Effusion") + row(B, patient="2") + row(C, "Edema|Pleural_Thickening", "3", view="AP")
LABELS = [[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]


@each(
    "text",
    [
        HEADER + THREE,
        QUOTED + THREE,
        (HEADER + THREE).replace("\n", ",\n"),
        HEADER.replace("\n", ",\n") + THREE,
        HEADER + THREE.replace("\n", ",\n"),
        "\ufeff" + HEADER + THREE,
        (HEADER + THREE).replace("\n", "\r\n"),
        (HEADER + THREE).rstrip("\n"),
        HEADER + THREE + "\n\n",
    ],
)
def test_every_form_of_the_file_is_read(tmp_path: Path, text: str) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": text})
    assert table.labels().tolist() == LABELS
    assert column(table, "patient") == ["1", "2", "3"]
    assert column(table, "view") == ["pa", "pa", "ap"]
    assert column(table, "row") == [2, 3, 4]
    assert column(table, "sex") == ["M", "M", "M"]


@pytest.mark.parametrize(
    ("layout", "images"),
    [
        ("images/{}", [f"images/{name}" for name in (A, B, C)]),
        ("{}", [A, B, C]),
        ("images_001/{}", [f"images_001/{name}" for name in (A, B, C)]),
    ],
)
def test_images_may_lie_in_one_folder(tmp_path: Path, layout: str, images: list[str]) -> None:
    files: dict[str, str | bytes] = {layout.format(name): b"" for name in (A, B, C)}
    table = open_files(tmp_path, "chestxray8", {**files, "Data_Entry_2017_v2020.csv": HEADER + THREE})
    assert column(table, "image") == images


def test_images_are_in_numbered_folders(tmp_path: Path) -> None:
    files = {f"images_001/images/{A}": b"", f"images_012/images/{B}": b"", "Data_Entry_2017.csv": HEADER + THREE}
    table = open_files(tmp_path, "chestxray8", files)
    assert column(table, "image") == [f"images_001/images/{A}", f"images_012/images/{B}", f"images/{C}"]


def test_the_two_lists_give_the_splits(tmp_path: Path) -> None:
    files = {"Data_Entry_2017.csv": HEADER + THREE, "train_val_list.txt": f"{A}\n{B}\n", "test_list.txt": f"{C}"}
    assert column(open_files(tmp_path, "chestxray8", files), "split") == ["train", "train", "test"]
    everything = open_files(tmp_path, "chestxray8", files, "splits.official=false")
    assert column(everything, "split") == ["train"] * 3


def test_without_lists_all_images_train(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE})
    assert column(table, "split") == ["train"] * 3


@each(
    ("train", "test", "kind", "row"),
    [
        (f"{A}\n", f"{C}\n", "image without a split", 3),
        (f"{A}\n{B}\n", f"{B}\n{C}\n", "image in two splits", 3),
        (f"{A}\n{B}\n{C}\n", None, "missing file", None),
        (None, f"{C}\n", "missing file", None),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    tmp_path: Path, train: str | None, test: str | None, kind: str, row: int | None
) -> None:
    lists = {"train_val_list.txt": train, "test_list.txt": test}
    files = {"Data_Entry_2017.csv": HEADER + THREE, **{name: text for name, text in lists.items() if text}}
    (problem,) = list_problems(tmp_path, "chestxray8", files)
    assert (problem.kind, problem.row) == (kind, row)


def test_a_patient_in_both_lists_is_refused(tmp_path: Path) -> None:
    files = {
        "Data_Entry_2017.csv": HEADER + row(A) + row(B) + row(C),
        "train_val_list.txt": f"{A}\n{B}\n",
        "test_list.txt": f"{C}\n",
    }
    (problem,) = list_problems(tmp_path, "chestxray8", files)
    assert (problem.kind, problem.row) == ("patient in two splits", 4)


@each(("age", "years"), [("57", 57), ("058Y", 58), ("018M", 1), ("010D", 0), ("411", None), ("", None), ("old", None)])
def test_impossible_ages_are_missing(tmp_path: Path, age: str, years: int | None) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + row(A, age=age)})
    assert column(table, "age") == [years]


@each(
    ("bad", "kind", "message"),
    [
        (row(B, "Edema|Efusion"), "bad label value", "unknown finding 'Efusion'"),
        (row(B, "Edema|No Finding"), "bad label value", "'No Finding' beside a finding"),
        (row(B, view="LL"), "unknown view", "unknown view 'LL'"),
        (row(A), "duplicate image", "Data_Entry_2017.csv:2"),
        (row("../../etc/passwd"), "path outside the root", "leaves the site's root"),
        (row("/etc/passwd"), "path outside the root", "leaves the site's root"),
        (row("C:\\x.png"), "path outside the root", "leaves the site's root"),
        (row(""), "blank name", "no image name"),
        (row(B, patient=""), "blank name", "no patient"),
        (f"{B},Edema\n", "malformed row", "2 cells where the header has 11"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, bad: str, kind: str, message: str) -> None:
    text = HEADER + row(A) + bad + row(C, patient="3")
    files = {f"images/{A}": b"", f"images/{C}": b"", "Data_Entry_2017.csv": text}
    problems = list_problems(tmp_path, "chestxray8", files)
    assert [(problem.kind, problem.row) for problem in problems] == [(kind, 3)]
    assert message in problems[0].message


def test_a_blank_findings_cell_is_missing(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + row(A, "") + row(B, patient="2")})
    assert column(table, "edema") == [None, 0.0]


def test_all_fourteen_findings_are_read(tmp_path: Path) -> None:
    table = open_files(tmp_path, "fourteen_diseases/chestxray8", {"Data_Entry_2017.csv": HEADER + THREE})
    assert len(table.diseases) == 14
    positive = [[d for d, label in zip(table.diseases, row, strict=True) if label] for row in table.labels()]
    assert positive == [["cardiomegaly", "pleural_effusion"], [], ["edema", "pleural_thickening"]]


def test_an_unlabeled_disease_is_missing(tmp_path: Path) -> None:
    table = open_files(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE}).about(["mass", "edema"])
    labels = table.labels()
    assert np.isnan(labels[:, 0]).all()
    assert labels[:, 1].tolist() == [0, 0, 1]
    assert np.isnan(table.positive_ratios()[0])


@pytest.mark.parametrize("blank", ["train_val_list.txt", "test_list.txt"])
def test_an_empty_list_is_refused(tmp_path: Path, blank: str) -> None:
    lists = {"train_val_list.txt": f"{A}\n{B}\n", "test_list.txt": f"{C}\n", blank: "\n"}
    problems = list_problems(tmp_path, "chestxray8", {"Data_Entry_2017.csv": HEADER + THREE, **lists})
    assert (blank, "names no image") in [(problem.file, problem.message) for problem in problems]
