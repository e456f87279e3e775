"""The five built-in layouts: planted files and cells are found by file and row, and nothing else is."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from chestfed.data.checks import CheckReport, check_site
from chestfed.data.checks.problems import PICTURES_READ, POLARITY, REMARK
from chestfed.data.sites import load_site_config
from tests.cases import each
from tests.data.checks.planted import DICOM_FILES, FILES, PICTURE_FILES, picture, write_image
from tests.data.sites.small_sites import CONFIGS

Told = tuple[str, str, int | None]
FORMULA = '=HYPERLINK("http://x.example")'
OUTSIDE = "path outside the root"


@dataclass(frozen=True)
class Layout:
    """Cells to spoil: file, column, cell, and the kinds of problem that come of it."""

    folder: str
    cells: tuple[tuple[str, str, str, tuple[str, ...]], ...]
    table: str
    free_column: str  # whose words may be anything


_NIH = "Data_Entry_2017_v2020.csv"
_PAD = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
_MIMIC = "mimic-cxr-2.0.0-"
_VINDR = "annotations/image_labels_train.csv"
LAYOUTS = {
    "chexpert": Layout(
        "synthetic-chexpert",
        (
            ("train.csv", "Cardiomegaly", "7", ("bad label value",)),
            ("train.csv", "Sex", FORMULA, ("formula cell",)),
            ("train.csv", "Path", "CheXpert-v1.0-small/train/../../../etc/passwd", ("unknown path",)),
        ),
        "train.csv",
        "Sex",
    ),
    "chestxray8": Layout(
        "synthetic-chestxray8",
        (
            (_NIH, "Finding Labels", "Edma", ("bad label value",)),
            (_NIH, "Patient Gender", FORMULA, ("formula cell",)),
            (_NIH, "Image Index", "../x.png", (OUTSIDE, "image without a split")),
        ),
        _NIH,
        "Patient Gender",
    ),
    "padchest": Layout(
        "synthetic-padchest",
        (
            (_PAD, "Labels", "normal", ("bad label value",)),
            (_PAD, "PatientSex_DICOM", FORMULA, ("formula cell",)),
            (_PAD, "ImageID", "../../x.png", (OUTSIDE,)),
        ),
        _PAD,
        "PatientSex_DICOM",
    ),
    "mimic_cxr": Layout(
        "synthetic-mimic-cxr",
        (
            (f"{_MIMIC}chexpert.csv.gz", "Cardiomegaly", "7", ("bad label value",)),
            (f"{_MIMIC}metadata.csv.gz", "ViewPosition", FORMULA, ("formula cell",)),
            (f"{_MIMIC}metadata.csv.gz", "dicom_id", "../../../../../x", (OUTSIDE, "image without a split")),
        ),
        f"{_MIMIC}metadata.csv.gz",
        "PerformedProcedureStepDescription",
    ),
    "vindr": Layout(
        "synthetic-vindr",
        (
            (_VINDR, "Cardiomegaly", "7", ("bad label value",)),
            (_VINDR, "rad_id", FORMULA, ("formula cell",)),
            (_VINDR, "image_id", "../../x", (OUTSIDE,)),
        ),
        _VINDR,
        "rad_id",
    ),
}


def check(site: str, data: Path, cache: Path) -> CheckReport:
    return check_site(load_site_config(CONFIGS / "synthetic" / f"{site}.yaml"), data, cache_root=cache, workers=1)


def list_problems(report: CheckReport) -> set[Told]:
    """What was found but for remarks; planted pictures are no films, so their polarity is chance."""
    problems = [*report.errors, *report.warnings]
    return {
        (problem.kind, problem.file, problem.row)
        for problem in problems
        if problem.kind not in (REMARK, PICTURES_READ, POLARITY)
    }


def copied(tiny_hospitals: Path, layout: Layout, folder: Path) -> Path:
    """The site's folder in a data root of its own."""
    return shutil.copytree(tiny_hospitals / layout.folder, folder / "data" / layout.folder)


def read_lines(path: Path) -> list[list[str]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return list(csv.reader(io.StringIO(text, newline="")))


def write_lines(path: Path, lines: list[list[str]], *, latin: int | None = None) -> None:
    """Write them; the row `latin` in Latin-1, the others in UTF-8."""
    encoded = []
    for number, line in enumerate(lines, start=1):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(line)
        encoded.append(text.getvalue().encode("latin-1" if number == latin else "utf-8"))
    data = b"".join(encoded)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.slow
@each("site", LAYOUTS)
def test_the_clean_hospital_passes(tiny_hospitals: Path, tmp_path: Path, site: str) -> None:
    report = check(site, tiny_hospitals, tmp_path)
    assert report.passed
    # The phantom VinDr has no edema, as its original; nothing else is worth a warning.
    assert {file for _, file, _ in list_problems(report)} <= ({"diseases.edema"} if site == "vindr" else set())


@pytest.mark.slow
@each("site", LAYOUTS)
def test_planted_files_are_found(tiny_hospitals: Path, tmp_path: Path, site: str) -> None:
    layout = LAYOUTS[site]
    before = check(site, tiny_hospitals, tmp_path / "cache")
    root = copied(tiny_hospitals, layout, tmp_path)
    survey = before.inspection.survey
    names = [
        name for name in FILES if name not in (PICTURE_FILES if site == "vindr" else [*PICTURE_FILES, *DICOM_FILES])
    ]
    expected = list_problems(before)
    for place, name in enumerate(names):
        FILES[name][0](root / survey.table.frame["image"][place])
        expected.add((FILES[name][1], survey.files[place], int(survey.table.frame["row"][place])))
        if site == "vindr" and name == "colors":  # a PNG called .dicom
            expected.add(("wrong extension", survey.files[place], int(survey.table.frame["row"][place])))
    frame = survey.table.frame
    alike = frame["inverted"].to_numpy() == frame["inverted"].iloc[-1]  # the same file, inverted, is another picture
    copy, near, nearer = [place for place in np.flatnonzero(alike).tolist() if place >= len(names)][:3]
    last = len(frame) - 1
    shutil.copy(root / frame["image"][last], root / frame["image"][copy])
    crosses = frame["split"][copy] != frame["split"][last]
    kind = "in two splits" if crosses else "twice" if site == "vindr" else "of two patients"
    expected.add((f"same picture {kind}", survey.files[last], int(frame["row"][last])))
    labels = survey.table.labels()
    if (np.abs(labels[copy] - labels[last]) == 1).any():
        expected.add(("opposite labels of one picture", survey.files[last], int(frame["row"][last])))
    write_image(root / frame["image"][near], picture(900))
    write_image(root / frame["image"][nearer], (picture(900) * 0.97).astype(np.uint8))
    expected.add(("nearly the same picture", survey.files[nearer], int(frame["row"][nearer])))
    assert list_problems(check(site, tmp_path / "data", tmp_path / "cache")) == expected


@pytest.mark.slow_but("chexpert", "padchest")
@pytest.mark.parametrize("site", LAYOUTS)
def test_planted_cells_are_found(tiny_hospitals: Path, tmp_path: Path, site: str) -> None:
    layout = LAYOUTS[site]
    root = copied(tiny_hospitals, layout, tmp_path)
    expected: set[Told] = set()
    for place, (file, column, cell, kinds) in enumerate(layout.cells):
        lines = read_lines(root / file)
        row = 3 + 3 * place
        lines[row - 1][lines[0].index(column)] = cell
        write_lines(root / file, lines)
        expected |= {(kind, file, row) for kind in kinds}
    lines = read_lines(root / layout.table)
    lines.append(lines[14])
    expected.add(("duplicate image", layout.table, len(lines)))
    column = lines[0].index(layout.free_column)
    lines[11][column], lines[12][column] = "é1", "é2"
    write_lines(root / layout.table, lines, latin=13)
    expected.add(("wrong encoding", layout.table, 13))
    problems = list_problems(check(site, tmp_path / "data", tmp_path / "cache"))
    assert {problem for problem in problems if not problem[1].startswith("diseases.")} == expected


@pytest.mark.slow
def test_crossing_patients_are_found(tiny_hospitals: Path, tmp_path: Path) -> None:
    root = copied(tiny_hospitals, LAYOUTS["chexpert"], tmp_path)
    lines = read_lines(root / "valid.csv")
    patient = read_lines(root / "train.csv")[1][0].split("/")[2]
    added = f"valid/{patient}/study9/view1_frontal.jpg"
    lines.append([f"CheXpert-v1.0-small/{added}", *lines[1][1:]])
    write_lines(root / "valid.csv", lines)
    (root / added).parent.mkdir(parents=True)
    write_image(root / added, picture(1000))
    expected = {("patient in two splits", "valid.csv", len(lines))}
    assert list_problems(check("chexpert", tmp_path / "data", tmp_path)) == expected

    root = copied(tiny_hospitals, LAYOUTS["chestxray8"], tmp_path)
    lines = read_lines(root / _NIH)
    tests = (root / "test_list.txt").read_text().split()
    row = next(number for number, line in enumerate(lines, start=1) if line[0] in tests)
    lines[row - 1][lines[0].index("Patient ID")] = lines[1][lines[0].index("Patient ID")]
    write_lines(root / _NIH, lines)
    assert list_problems(check("chestxray8", tmp_path / "data", tmp_path)) == {("patient in two splits", _NIH, row)}

    root = copied(tiny_hospitals, LAYOUTS["mimic_cxr"], tmp_path)
    images = read_lines(root / f"{_MIMIC}metadata.csv.gz")
    people = [line[1] for line in images]
    second = next(place for place in range(2, len(images)) if people[place] in people[1:place])
    file = root / f"{_MIMIC}split.csv.gz"
    lines = read_lines(file)
    for line in lines:
        if line[0] == images[second][0]:
            line[-1] = "test" if line[-1] != "test" else "train"
    write_lines(file, lines)
    first = next(place for place in range(1, len(images)) if people[place] == people[second])
    later = second if first < second else first
    problems = list_problems(check("mimic_cxr", tmp_path / "data", tmp_path))
    assert ("patient in two splits", f"{_MIMIC}metadata.csv.gz", later + 1) in problems
    assert {kind for kind, *_ in problems} == {"patient in two splits"}
