"""From a folder and a spreadsheet to the text of a site's YAML."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from chestfed.core.errors import ConfigError, SiteError
from chestfed.dicom.file_kinds import image_ending
from chestfed.dicom.tags import IMAGE_KEYS, KEYS, ROLES
from chestfed.new_site.choosing import NONE, Choices, Chooser
from chestfed.new_site.columns.described import find_age, find_worded
from chestfed.new_site.columns.found import Found, count
from chestfed.new_site.columns.headers import match_headers
from chestfed.new_site.columns.image import NoImageNamedError, find_image
from chestfed.new_site.columns.matching import ImageMatch
from chestfed.new_site.columns.patient import about_folders, find_patient, find_study, patient_from_path
from chestfed.new_site.columns.pictures import Pictures, list_pictures
from chestfed.new_site.describe import (
    OPTIONAL,
    Draft,
    about_layout,
    columns_of,
    finished,
    head,
    policy,
    rest_of_table,
    terms_file,
    with_roles,
)
from chestfed.new_site.flags import refuse_idle
from chestfed.new_site.labeling import Labels
from chestfed.new_site.labels import find_labels
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
        If something is uncertain, with the candidates; or if a flag does not fit.
    SiteError
        If the table, or headers, cannot be read.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        fitting = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_0123456789") or "my-hospital"
        raise ConfigError(f"'{name}' is not a short name: lower case letters, digits, - and _, such as {fitting}")
    if not images.is_dir():
        raise ConfigError(f"--images {images}: no such folder")
    folder = root = images.resolve()
    if labels is not None:
        if not labels.is_file():
            raise ConfigError(f"--labels {labels}: no such file")
        labels = labels.resolve()
        root = Path(os.path.commonpath([folder, labels.parent]))
    work = _Work(name, list_pictures(folder, root), choices, chooser, data, progress)
    if labels is None:
        return _from_headers(work)
    return _from_table(work, labels, read_spreadsheet(labels, name, choices))


@dataclass(frozen=True)
class _Work:
    """What is to be described, and whom to ask."""

    name: str
    pictures: Pictures
    choices: Choices
    chooser: Chooser
    data: Path | None
    progress: Callable[[int, int], None] | None

    def labels(self, frame: pd.DataFrame, image: pd.Series, found: Found, **how: Any) -> Labels:
        """The labels, with the decisions that no table holds; every flag is then used or refused."""
        file = terms_file(self.name)
        labels = find_labels(frame, image, self.choices, self.chooser, found, file, **how)
        if found.stops:
            raise ConfigError("\n".join(found.stops))
        refuse_idle(self.choices, labels, frame, found, headers=bool(how.get("headers")))
        if self.choices.uncertain is None:
            meanings, why = ["positive", "negative", "missing"], labels.evidence["uncertain"]
            what = "uncertain labels count as"
            labels.uncertain = self.chooser.choose(what, "--uncertain", labels.uncertain, meanings, why)
        if self.choices.blank is None:
            meanings, why = ["negative", "missing"], labels.evidence["blank"]
            labels.blank = self.chooser.choose("blanks count as", "--blank", labels.blank, meanings, why)
        return labels


def _from_table(work: _Work, labels_file: Path, sheet: Spreadsheet) -> Draft:
    pictures, choices, chooser = work.pictures, work.choices, work.chooser
    found, told = Found(), list[str]()
    match, frame, elements = _image(work, sheet, found, told)
    image = match.paths.where(match.paths.notna(), frame[match.column])
    by_path = None if choices.columns.get("patient") == NONE else patient_from_path(match, frame, choices)
    if by_path is None and find_patient(frame, image, choices, chooser, found, about_folders(match)) is None:
        found.take("patient", match.column, "none: every image counts as a patient of its own")
    _optional(frame, image, choices, chooser, found)
    _drop_colliding_words(frame, found)
    unused = [tag for tag in elements if tag not in found.columns.values()]
    labels = work.labels(frame.drop(columns=unused), image, found, formulas=sheet.formulas)
    notes = [*sheet.notes, *told, *_about_images(match, pictures), *found.unsure, *labels.notes]
    if pictures.root == Path(pictures.root.anchor):
        notes.append(f"images and table have no folder in common but {pictures.root}: better put them below one")
    pattern = glob.escape(labels_file.relative_to(pictures.root).as_posix())
    line = f"{len(pictures.files):,} images in {pictures.folder or 'the root'} ({pictures.listed_endings}), "
    line += f"{len(sheet.frame):,} rows in {labels_file.name}"
    page = head(work.name, pictures, work.data, choices, {"table": [pattern]}, line)
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
    return finished(page, found, labels, notes, sheet, by_path, match.examples)


def _image(
    work: _Work, sheet: Spreadsheet, found: Found, told: list[str]
) -> tuple[ImageMatch, pd.DataFrame, tuple[str, ...]]:
    """How rows lead to images, by file names or by headers; the table by image, and the elements that were added."""
    try:
        return find_image(sheet.frame, work.pictures, work.choices, work.chooser, found), sheet.frame, ()
    except NoImageNamedError as error:
        refused = error

    def headers() -> pd.DataFrame:
        return _read_headers(work, told)

    try:
        by_header = match_headers(
            sheet.frame, work.pictures, headers, _HEADERS, work.choices, work.chooser, found, refused
        )
    except NoImageNamedError as error:
        raise NoImageNamedError(f"{error} ({sheet.doubt})" if sheet.doubt else str(error)) from None
    told += by_header.notes
    return by_header.match, by_header.frame, by_header.elements


def _from_headers(work: _Work) -> Draft:
    pictures, choices = work.pictures, work.choices
    if not pictures.dicoms:
        shown = pictures.listed_endings
        raise ConfigError(f"the images are not DICOM files ({shown}): say where the labels are, with --labels FILE")
    notes = _set_aside(pictures)
    if pictures.without_header:
        notes.append(f"{len(pictures.without_header):,} PNG or JPEG files have no header, and are left out")
    frame = _read_headers(work, notes).drop(columns=["image", *_ONLY_NAMES], errors="ignore")
    found = Found()
    if "PatientID" not in frame:
        text = "no header has a PatientID, so patients cannot be told apart: give a table with --labels"
        raise ConfigError(text)
    found.take("patient", "PatientID", _filled(frame["PatientID"]) + f", {frame['PatientID'].nunique():,} patients")
    image = pd.Series(range(len(frame)), index=frame.index).astype(str)
    if "StudyInstanceUID" in frame:
        found.take("study", "StudyInstanceUID", _filled(frame["StudyInstanceUID"]))
    for what in (what for what in ("view", "sex", "age") if _HEADERS[what] in frame):
        named = replace(choices, columns={what: _HEADERS[what]})
        if what == "age":
            find_age(frame, named, found)
        else:
            find_worded(frame, what, named, found)
        if what in found.evidence:
            found.evidence[what] = found.evidence[what].replace("given on the command line", "the element for it")
    _drop_colliding_words(frame, found)
    separated = frame.apply(lambda cells: cells.str.replace("\\", choices.separator or "|", regex=False))
    labels = work.labels(separated, image, found, headers=True)
    endings = {image_ending(file.rpartition("/")[2]) for file in pictures.dicoms}
    files = {"images": [f"**/*{ending}" for ending in sorted(endings)]}
    line = f"{len(pictures.dicoms):,} DICOM files; the labels are in their headers"
    page = head(work.name, pictures, work.data, choices, files, line)
    policy(page, labels, found)
    page.section("table", "which elements of the headers hold what; every key: docs/new_site.md")
    page.key("layout", "dicom", "no table was given")
    columns_of(page, found, labels, None)
    rest_of_table(page, found, labels)
    return finished(page, found, labels, [*notes, *found.unsure, *labels.notes], None)


def _read_headers(work: _Work, notes: list[str]) -> pd.DataFrame:
    """`image`, and the elements that may be read and that some file has, of all files.

    Files that cannot be read are noted, and left to the check of the site, which names them.

    Raises
    ------
    SiteError
        If no header can be read.
    """
    site: dict[str, Any] = {
        "site": work.name,
        "title": work.name,
        "reader": "table",
        "root": str(work.pictures.root),
        "label_files": {"images": ["**/*"]},
        "views": "all",
        "uncertain": "missing",
        "blank": "missing",
        "table": {"layout": "dicom", "terms": {}, "columns": {"patient": "PatientID", "findings": "ImageComments"}},
    }
    source = Source(SiteConfig.model_validate(site), work.pictures.root, progress=work.progress)
    tags = sorted({*IMAGE_KEYS, *(tag for of_role in ROLES.values() for tag in of_role)})
    frame, _ = read_elements(source, work.pictures.dicoms, tags)
    if frame.empty:
        raise SiteError(work.name, source.problems)
    if source.problems:
        notes.append(
            f"{len(source.problems):,} DICOM files cannot be read: the site does not open before they are fixed or "
            "removed; `chestfed site check` names them"
        )
    return frame.set_index("row")[["image", *(tag for tag in tags if frame[tag].notna().any())]]


def _set_aside(pictures: Pictures) -> list[str]:
    return [f"files that are not images are set aside: {pictures.aside}"] if pictures.aside else []


def _filled(cells: pd.Series) -> str:
    return f"{count(int(cells.notna().sum()), len(cells), 'headers')} have it"


def _optional(frame: pd.DataFrame, image: pd.Series, choices: Choices, chooser: Chooser, found: Found) -> None:
    """The columns that may be left out: guessed, shown, and looked at again if the answer differs."""

    def find(what: str, said: Choices) -> None:
        if what == "study":
            find_study(frame, image, said, found)
        elif what == "age":
            find_age(frame, said, found)
        else:
            find_worded(frame, what, said, found)

    for what in OPTIONAL:
        find(what, choices)
        if what in choices.columns:
            continue
        guess = found.columns.get(what, NONE)
        why = found.evidence.get(what, "no column has such a name and such cells")
        answer = chooser.choose(f"{what} column", f"--{what}-column", guess, [*map(str, frame), NONE], why)
        if answer != guess:
            for part in (found.columns, found.evidence, found.words):
                part.pop(what, None)
            find(what, replace(choices, columns={**choices.columns, what: answer}))


def _drop_colliding_words(frame: pd.DataFrame, found: Found) -> None:
    """A word that counts as empty does so in all of these columns: not where it is the name of a patient or study."""
    for role in ("patient", "study"):
        column = found.columns.get(role)
        if column is None:
            continue
        cells = set(frame[column].dropna().str.strip().str.lower())
        for word in [word for word in found.missing if word in cells]:
            what = found.missing.pop(word)
            if what in ("view", "sex"):
                found.words[what][word] = "unknown"
            elif found.columns.pop(what, None) is not None:
                found.evidence.pop(what, None)
                found.words.pop(what, None)
                text = f"the {what} column is not used: one of its empty words is also the name of a {role}"
                found.unsure.append(text)


def _about_images(match: ImageMatch, pictures: Pictures) -> list[str]:
    notes = _set_aside(pictures)
    if match.named < match.cells:
        left = match.cells - match.named
        notes.append(
            f"{left:,} rows do not name a file in the folder: the study would stop there; see --skip-unreadable"
        )
    if match.files < len(pictures.files):
        notes.append(
            f"{len(pictures.files) - match.files:,} files of the folder are not named by any row, and are not used"
        )
    return notes
