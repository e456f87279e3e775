"""ISIC 2020 (SIIM-ISIC Melanoma Classification): one label file, JPEG files in one folder.

The label file is Kaggle's `train.csv` or the archive's `ISIC_2020_Training_GroundTruth.csv` (`_v2` has a column more).
Messages name rows and columns, never what stands in a row: a shifted row would tell a patient's name.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from chestfed.core.errors import ConfigError, Problem, SiteError
from chestfed.public_datasets.collection import Collection, FilePixels, Part, Progress
from chestfed.public_datasets.files import missing

CLASS_NAMES: Final = ("benign", "malignant")
DUPLICATES: Final = "ISIC_2020_Training_Duplicates.csv"
_LABEL_FILES: Final = ("train.csv", "ISIC_2020_Training_GroundTruth_v2.csv", "ISIC_2020_Training_GroundTruth.csv")
_FOLDERS: Final = ("jpeg/train", "ISIC_2020_Training_JPEG/train", "ISIC_2020_Training_JPEG", "train")
_REQUIRED: Final = ("image_name", "patient_id", "target")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def read(root: Path, progress: Progress) -> Collection:
    """33 126 dermoscopic images of 2 056 patients: benign 0, malignant 1; the labels of the test part are not public.

    If the list of duplicates is there, the second image of each pair is left out and counted in `unreadable`.

    Raises `SiteError` with all bad rows of the label file, by their numbers.
    """
    path = next((root / name for name in _LABEL_FILES if (root / name).is_file()), None)
    if path is None:
        raise missing(root / _LABEL_FILES[0])
    rows, problems = _rows(path)
    kept, duplicates = _without_duplicates(root, path, rows)
    folder, endings = _images(root)
    absent = [row for row in kept if row.image not in endings]
    advice = "unpack the whole archive of images; label file and images must be of the same release"
    text = f"its image is not in {folder}"
    problems += [Problem("missing file", path.name, text, row.line, advice) for row in absent]
    if problems:
        raise SiteError("isic2020", problems)
    files = [f"{folder}/{row.image}{endings[row.image]}" for row in kept]
    classes = np.array([row.target for row in kept], np.int64)
    progress(len(kept), len(kept))
    train = Part(FilePixels(root, files), classes, np.array([row.patient for row in kept], dtype=np.str_))
    return Collection("isic2020", CLASS_NAMES, train, None, tuple(duplicates))


@dataclass(frozen=True)
class _Row:
    """One row of the label file; `line` is its 1-based line."""

    line: int
    image: str
    patient: str
    target: int


def _rows(path: Path) -> tuple[list[_Row], list[Problem]]:
    """The good rows of the label file, and what is wrong with the others."""
    (_, header), *lines = _csv_lines(path) or [(1, [])]
    wrong = {name: header.count(name) or "no" for name in _REQUIRED if header.count(name) != 1}
    if wrong:
        text = f"the columns of the label file are {', '.join(_REQUIRED)} and others"
        told = [f"{count} column '{name}'" for name, count in wrong.items()]
        raise SiteError("isic2020", [Problem("wrong columns", path.name, one, 1, text) for one in told])
    rows: list[_Row] = []
    problems: list[Problem] = []
    line_of: dict[str, int] = {}
    for line, cells in lines:
        values = dict(zip(header, cells, strict=False))
        defect: tuple[str, str] | None = ("bad row", f"{len(cells)} cells, the header has {len(header)}")
        if len(cells) == len(header):
            defect = _defect(values, line_of)
            line_of.setdefault(values["image_name"], line)
        if defect:
            problems.append(Problem(defect[0], path.name, defect[1], line))
        else:
            rows.append(_Row(line, values["image_name"], values["patient_id"], int(values["target"])))
    if not rows and not problems:
        raise ConfigError(f"{path}: no rows below the header")
    return rows, problems


def _defect(values: dict[str, str], line_of: dict[str, int]) -> tuple[str, str] | None:
    """Kind and text of what is wrong with a row; `line_of` has the images named before."""
    name, target = values["image_name"], values["target"]
    if not _NAME.fullmatch(name):
        return "bad image name", "the image name is empty or has characters other than letters, digits, _ and -"
    if name in line_of:
        return "duplicate image name", f"names the image of row {line_of[name]} again"
    if not values["patient_id"]:
        return "missing patient", "no patient, so images of one patient cannot be kept together"
    if target not in ("0", "1"):
        return "bad label value", "target is neither 0 nor 1"
    if values.get("benign_malignant", CLASS_NAMES[int(target)]) != CLASS_NAMES[int(target)]:
        return "bad label value", "target and benign_malignant contradict each other"
    return None


def _csv_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Line number and stripped cells of each row that is not empty."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            return [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a CSV file ({type(error).__name__})") from None


def _without_duplicates(root: Path, path: Path, rows: list[_Row]) -> tuple[list[_Row], list[Problem]]:
    """The rows to keep, and one problem for each row that the list of duplicates names second."""
    if not (root / DUPLICATES).is_file():
        return rows, []
    (_, header), *lines = _csv_lines(root / DUPLICATES) or [(1, [])]
    places = [[place for place, name in enumerate(header) if name.endswith(number)] for number in "12"]
    if [len(found) for found in places] != [1, 1]:
        text = "expected the columns image_name_1 and image_name_2"
        raise SiteError("isic2020", [Problem("missing column", DUPLICATES, text, 1)])
    row_of = {row.image: row for row in rows}
    same_as: dict[str, str] = {}

    def stays(name: str) -> str:
        """The image that stays of those that are the same as this one."""
        while name in same_as:
            name = same_as[name]
        return name

    problems = []
    for line, cells in lines:
        pair = [cells[place] for (place,) in places if place < len(cells)]
        if len(pair) != 2 or any(name not in row_of for name in pair):
            continue  # of an image that is not there, nothing is to be left out
        kept, second = map(stays, pair)
        if kept == second:
            continue  # known by earlier pairs
        same_as[second] = kept
        text = f"row {row_of[second].line} of {path.name} is the same image as row {row_of[kept].line}: left out"
        problems.append(Problem("duplicate image", DUPLICATES, text, line))
    return [row for row in rows if row.image not in same_as], problems


def _images(root: Path) -> tuple[str, dict[str, str]]:
    """The folder of the JPEG files, relative to the root, and the ending of each file by its name without it.

    Kaggle's `train` has DICOM files, so the first folder that has JPEG files counts.
    """
    for folder in _FOLDERS:
        if (root / folder).is_dir():
            with os.scandir(root / folder) as entries:
                names = [Path(entry.name) for entry in entries]
            pictures = [name for name in names if name.suffix.lower() in (".jpg", ".jpeg")]
            found = {name.stem: name.suffix for name in pictures}
            if repeated := len(pictures) - len(found):
                text = f"{repeated} images are there again with another ending (.jpg, .jpeg): keep one file of each"
                raise ConfigError(f"{root / folder}: {text}")
            if found:
                return folder, found
    raise missing(root / "jpeg" / "train" / "ISIC_0015719.jpg")
