"""From a folder and a spreadsheet to the text of a site's YAML."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from chestfed.core.diseases import TITLES
from chestfed.core.errors import ConfigError, SiteError
from chestfed.dicom.file_kinds import image_ending
from chestfed.dicom.tags import IMAGE_KEYS, KEYS, ROLES
from chestfed.new_site import words
from chestfed.new_site.choosing import NONE, Choices, Chooser
from chestfed.new_site.columns import Found, count, find_age, find_image, find_patient, find_study, find_worded
from chestfed.new_site.describe import (
    OPTIONAL,
    Draft,
    about_layout,
    columns_of,
    finished,
    head,
    policy,
    rest_of_table,
    with_roles,
)
from chestfed.new_site.header_names import match_headers
from chestfed.new_site.image_hints import NoImageNamedError
from chestfed.new_site.labelling import Labels
from chestfed.new_site.labels import find_labels
from chestfed.new_site.patient_paths import about_folders, patient_from_path
from chestfed.new_site.pictures import ImageMatch, Pictures, list_pictures
from chestfed.new_site.spreadsheet import Spreadsheet, read_spreadsheet
from chestfed.sites.config import SiteConfig
from chestfed.sites.label_files.source import Source
from chestfed.sites.spreadsheet.dicom_headers import read_elements

#: DICOM elements that hold what a column is looked for; those that may hold findings come last.
_HEADERS: Final = {
    "patient": "PatientID",
    "study": "StudyInstanceUID",
    "view": "ViewPosition",
    "sex": "PatientSex",
    "age": "PatientAge",
}
#: Elements that name one image each, and describe none.
_ONLY_NAMES: Final = [tag for tag in IMAGE_KEYS if tag not in KEYS]


def draft_site(
    name: str,
    images: Path,
    labels: Path | None,
    choices: Choices,
    chooser: Chooser,
    *,
    data: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Draft:
    """Look at the images and the table (None: the labels are in the DICOM headers), and describe them.

    The site's root is written as it is, or relative to `data` if it is below that.

    Raises
    ------
    ConfigError
        If something cannot be told, or a flag does not fit; with the candidates.
    SiteError
        If the table, or headers, cannot be read.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        fitting = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_0123456789") or "my-hospital"
        raise ConfigError(f"'{name}' is no short name: small letters, digits, - and _, such as {fitting}")
    if not images.is_dir():
        raise ConfigError(f"--images {images}: no such folder")
    folder = images.resolve()
    if labels is None:
        root = folder
    else:
        if not labels.is_file():
            raise ConfigError(f"--labels {labels}: no such file")
        labels = labels.resolve()
        root = Path(os.path.commonpath([folder, labels.parent]))
    pictures = list_pictures(folder, root)
    if labels is None:
        return _from_headers(name, pictures, choices, chooser, data, progress)
    sheet = read_spreadsheet(labels, name, choices)
    return _from_table(name, pictures, labels, sheet, choices, chooser, data, progress)


def _from_table(
    name: str,
    pictures: Pictures,
    labels_file: Path,
    sheet: Spreadsheet,
    choices: Choices,
    chooser: Chooser,
    data: Path | None,
    progress: Callable[[int, int], None] | None,
) -> Draft:
    frame, found = sheet.frame, Found()
    elements: tuple[str, ...] = ()
    told: list[str] = []
    try:
        match = find_image(frame, pictures, choices, chooser, found)
    except NoImageNamedError as error:

        def headers() -> pd.DataFrame:
            return _read_headers(name, pictures, progress, told)

        try:
            by_header = match_headers(frame, pictures, headers, _HEADERS, choices, chooser, found, error)
        except NoImageNamedError as refused:
            raise NoImageNamedError(f"{refused} ({sheet.doubt})" if sheet.doubt else str(refused)) from None
        match, frame, elements = by_header.match, by_header.frame, by_header.elements
        told += by_header.notes
    image = match.paths.where(match.paths.notna(), frame[match.column])
    by_path = None
    if choices.columns.get("patient") != NONE:
        by_path = patient_from_path(match, frame, choices)
    if by_path is None:
        patient = find_patient(frame, image, choices, chooser, found, about_folders(match))
        if patient is None:
            found.take("patient", match.column, "none: every image counts as a patient of its own")
    _optional(frame, image, choices, chooser, found)
    _drop_colliding_words(frame, found)
    unused = [tag for tag in elements if tag not in found.columns.values()]
    labels = find_labels(frame.drop(columns=unused), image, choices, chooser, found, formulas=sheet.formulas)
    labels = _asked(labels, choices, chooser)
    notes = [*sheet.notes, *told, *_about_images(match, pictures), *found.unsure, *labels.notes]
    if pictures.root == Path(pictures.root.anchor):
        notes.append(f"images and table have no folder in common but {pictures.root}: better put them below one")
    pattern = glob.escape(labels_file.relative_to(pictures.root).as_posix())
    page = head(name, pictures, data, choices, {"table": [pattern]}, _count_line(pictures, labels_file, sheet.frame))
    policy(page, labels, found)
    page.section("table", "how the table is laid out; every key: docs/new_site.md")
    page.key("layout", labels.layout, about_layout(labels, image))
    for key, value in sheet.keys.items():
        page.key(key, value, sheet.evidence[key])
    columns_of(page, found, labels, by_path)
    rule = match.images.model_dump(exclude_defaults=True)
    if used := [tag for tag in elements if tag not in unused]:
        rule["elements"] = used
    if rule:
        page.section("images", match.how)
        for key, value in rule.items():
            page.key(key, with_roles(value, found) if key == "path" else value)
        page.end()
    rest_of_table(page, found, labels)
    return finished(page, found, labels, notes, sheet, by_path)


def _from_headers(
    name: str,
    pictures: Pictures,
    choices: Choices,
    chooser: Chooser,
    data: Path | None,
    progress: Callable[[int, int], None] | None,
) -> Draft:
    if not pictures.dicoms:
        shown = ", ".join(f"{number:,} {ending or 'without ending'}" for ending, number in pictures.endings.items())
        raise ConfigError(f"the images are no DICOM files ({shown}): say where the labels are, with --labels FILE")
    endings = {image_ending(file.rpartition("/")[2]) for file in pictures.dicoms}
    patterns = [f"**/*{ending}" for ending in sorted(endings)]
    notes = _set_aside(pictures)
    if pictures.without_header:
        notes.append(f"{len(pictures.without_header):,} PNG or JPEG files have no header, and are left out")
    frame = _read_headers(name, pictures, progress, notes).drop(columns=["image", *_ONLY_NAMES], errors="ignore")
    found = Found()
    if "PatientID" not in frame:
        raise ConfigError(
            "no header has a PatientID, so that patients cannot be told apart: give a table with --labels"
        )
    found.take("patient", "PatientID", _filled(frame["PatientID"]) + f", {frame['PatientID'].nunique():,} patients")
    image = pd.Series(range(len(frame)), index=frame.index).astype(str)
    if "StudyInstanceUID" in frame:
        found.take("study", "StudyInstanceUID", _filled(frame["StudyInstanceUID"]))
    for what, known in (("view", words.VIEWS), ("sex", words.SEXES)):
        if _HEADERS[what] in frame:
            find_worded(frame, what, known, replace(choices, columns={what: _HEADERS[what]}), found)
            _say_header(found, what)
    if "PatientAge" in frame:
        find_age(frame, replace(choices, columns={"age": "PatientAge"}), found)
        _say_header(found, "age")
    _drop_colliding_words(frame, found)
    separated = frame.apply(lambda cells: cells.str.replace("\\", choices.separator or "|", regex=False))
    labels = find_labels(separated, image, choices, chooser, found, headers=True)
    labels = _asked(labels, choices, chooser)
    line = f"{len(pictures.dicoms):,} DICOM files; the labels are in their headers"
    page = head(name, pictures, data, choices, {"images": patterns}, line)
    policy(page, labels, found)
    page.section("table", "which elements of the headers tell what; every key: docs/new_site.md")
    page.key("layout", "dicom", "no table was given")
    columns_of(page, found, labels, None)
    rest_of_table(page, found, labels)
    return finished(page, found, labels, [*notes, *found.unsure, *labels.notes], None)


def _read_headers(
    name: str, pictures: Pictures, progress: Callable[[int, int], None] | None, notes: list[str]
) -> pd.DataFrame:
    """`image`, and the elements that may be read and that some file has, of all files.

    Files that cannot be read are noted, and left to the check of the site, which names them.

    Raises
    ------
    SiteError
        If no header can be read.
    """
    site: dict[str, Any] = {
        "site": name,
        "title": name,
        "reader": "table",
        "root": str(pictures.root),
        "label_files": {"images": ["**/*"]},
        "views": "all",
        "labels": {disease: [disease] for disease in TITLES},
        "diseases": list(TITLES),
        "uncertain": "missing",
        "blank": "missing",
        "table": {"layout": "dicom", "columns": {"patient": "PatientID", "findings": "ImageComments"}},
    }
    source = Source(SiteConfig.model_validate(site), pictures.root, progress=progress)
    tags = sorted({*IMAGE_KEYS, *(tag for of_role in ROLES.values() for tag in of_role)})
    frame, _ = read_elements(source, pictures.dicoms, tags)
    if frame.empty:
        raise SiteError(name, source.problems)
    if source.problems:
        notes.append(
            f"{len(source.problems):,} DICOM files cannot be read: the site does not open before they are mended or "
            "removed; `chestfed site check` names them"
        )
    return frame.set_index("row")[["image", *(tag for tag in tags if frame[tag].notna().any())]]


def _set_aside(pictures: Pictures) -> list[str]:
    return [f"files that are no images are set aside: {pictures.aside}"] if pictures.aside else []


def _say_header(found: Found, what: str) -> None:
    """It is the element's meaning in DICOM, and not said by a flag."""
    if what in found.evidence:
        found.evidence[what] = found.evidence[what].replace("as said", "the element for it")


def _filled(cells: pd.Series) -> str:
    return f"{count(int(cells.notna().sum()), len(cells), 'headers')} have it"


def _optional(frame: pd.DataFrame, image: pd.Series, choices: Choices, chooser: Chooser, found: Found) -> None:
    """The columns that may be left out: guessed, shown, and looked at again if the answer is another."""
    known = {"view": words.VIEWS, "split": words.SPLITS, "sex": words.SEXES}

    def find(what: str, said: Choices) -> None:
        if what == "study":
            find_study(frame, image, said, found)
        elif what == "age":
            find_age(frame, said, found)
        else:
            find_worded(frame, what, known[what], said, found)

    for what in OPTIONAL:
        find(what, choices)
        if what in choices.columns:
            continue
        guess = found.columns.get(what, NONE)
        why = found.evidence.get(what, "none is called so and holds such cells")
        answer = chooser.choose(f"{what} column", f"--{what}-column", guess, [*map(str, frame), NONE], why)
        if answer != guess:
            for part in (found.columns, found.evidence, found.words):
                part.pop(what, None)
            find(what, replace(choices, columns={**choices.columns, what: answer}))


def _drop_colliding_words(frame: pd.DataFrame, found: Found) -> None:
    """A word that is as good as empty counts in all of these columns: not where it is a patient's or study's name."""
    for role in ("patient", "study"):
        column = found.columns.get(role)
        if column is None:
            continue
        cells = set(frame[column].dropna().str.strip().str.lower())
        for word in [word for word in found.missing if word in cells]:
            what = found.missing.pop(word)
            if found.columns.pop(what, None) is not None:
                found.evidence.pop(what, None)
                found.words.pop(what, None)
                text = f"the {what} column is not used: one of its cells that says nothing is a {role}'s name as well"
                found.unsure.append(text)


def _asked(labels: Labels, choices: Choices, chooser: Chooser) -> Labels:
    """The decisions that no table holds."""
    if choices.uncertain is None:
        meanings = ["positive", "negative", "missing"]
        why = labels.evidence["uncertain"]
        labels.uncertain = chooser.choose("uncertain labels count as", "--uncertain", labels.uncertain, meanings, why)
    if choices.blank is None:
        why = labels.evidence["blank"]
        labels.blank = chooser.choose("blanks count as", "--blank", labels.blank, ["negative", "missing"], why)
    return labels


def _about_images(match: ImageMatch, pictures: Pictures) -> list[str]:
    notes = _set_aside(pictures)
    if match.named < match.cells:
        left = match.cells - match.named
        notes.append(f"{left:,} rows name no file in the folder: the study would stop there; see --skip-unreadable")
    if match.files < len(pictures.files):
        notes.append(f"{len(pictures.files) - match.files:,} files of the folder are named by no row, and are not used")
    return notes


def _count_line(pictures: Pictures, labels_file: Path, frame: pd.DataFrame) -> str:
    endings = ", ".join(f"{number:,} {ending or 'without ending'}" for ending, number in pictures.endings.most_common())
    where = pictures.folder or "the root"
    return f"{len(pictures.files):,} images in {where} ({endings}), {len(frame):,} rows in {labels_file.name}"
