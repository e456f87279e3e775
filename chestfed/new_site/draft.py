"""From a folder and a spreadsheet to the text of a site's YAML."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.core.errors import ConfigError, SiteError
from chestfed.dicom.file_kinds import image_ending
from chestfed.dicom.tags import IMAGE_KEYS, KEYS, ROLES
from chestfed.new_site.describe import OPTIONAL, Draft, draft
from chestfed.new_site.flags import refuse_idle
from chestfed.new_site.headers import match_headers
from chestfed.new_site.images import NoImageNamedError, find_image, match_folders
from chestfed.new_site.matching import ImageMatch, list_pictures
from chestfed.new_site.people import find_optional, find_patient
from chestfed.new_site.spreadsheet import Spreadsheet, any_site, read_spreadsheet
from chestfed.new_site.term_column import find_labels
from chestfed.new_site.work import NONE, SAID, Ask, Choices, Work, count
from chestfed.sites.label_files.source import ROW, Source
from chestfed.sites.spreadsheet.dicom_headers import read_elements
from chestfed.sites.spreadsheet.reader import SUM

#: DICOM elements that hold what a column is looked for.
_HEADERS: Final = {
    "patient": "PatientID",
    "study": "StudyInstanceUID",
    "view": "ViewPosition",
    "sex": "PatientSex",
    "age": "PatientAge",
}


def draft_site(
    name: str,
    images: Path,
    labels: Path | None,
    choices: Choices,
    ask: Ask | None = None,
    *,
    data: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Draft:
    """Look at the images and the table (None: the labels are in the DICOM headers), and describe them.

    The site's root is written as it is, or relative to `data` if it is below that. Without `ask` guesses are taken.

    Raises `ConfigError` if something is uncertain, with the candidates; or if a flag does not fit. Raises `SiteError`
    if the table, or headers, cannot be read.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        fitting = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_0123456789") or "my-hospital"
        raise ConfigError(f"'{name}' is not a short name: lower case letters, digits, - and _, such as {fitting}")
    if choices.separator == "":
        raise ConfigError("--separator: give the character between the findings in a cell")
    if not images.is_dir():
        raise ConfigError(f"--images {images}: no such folder")
    folder = root = images.resolve()
    if labels is not None:
        if not labels.is_file():
            raise ConfigError(f"--labels {labels}: no such file")
        labels = labels.resolve()
        root = Path(os.path.commonpath([folder, labels.parent]))
    work = Work(name, list_pictures(folder, root), choices, ask, data, progress)
    return _from_headers(work) if labels is None else _from_table(work, labels)


def _from_table(work: Work, labels_file: Path) -> Draft:
    pictures, sheet = work.pictures, read_spreadsheet(labels_file, work.name, work.choices)
    work.frame = sheet.frame
    if "total" in work.choices.drop:
        sums = [cells.str.fullmatch(SUM, flags=re.IGNORECASE, na=False) for _, cells in sheet.frame.items()]
        work.frame = sheet.frame[~np.any(sums, axis=0).astype(bool)]
    work.notes += sheet.notes
    match, elements = _image(work, sheet)
    work.image = match.paths.where(match.paths.notna(), work.frame[match.column])
    _about_images(work, match)
    by_path = find_patient(work, match)
    _optional(work)
    unused = [tag for tag in elements if tag not in work.columns.values()]
    work.frame = work.frame.drop(columns=unused)
    find_labels(work, formulas=sheet.formulas)
    refuse_idle(work)
    if pictures.root == Path(pictures.root.anchor):
        work.notes.append(
            f"images and table have no common folder except {pictures.root}: better put both below one folder"
        )
    line = f"{len(pictures.files):,} images in {pictures.folder or 'the root'} ({pictures.listed_endings}), "
    line += f"{len(sheet.frame):,} rows in {labels_file.name}"
    rule = match.images.model_dump(exclude_defaults=True)
    if used := [tag for tag in elements if tag not in unused]:
        rule["elements"] = used
    files = {"table": [glob.escape(labels_file.relative_to(pictures.root).as_posix())]}
    return draft(work, line, files, sheet.keys, (rule, match.how), by_path, match.examples)


def _image(work: Work, sheet: Spreadsheet) -> tuple[ImageMatch, list[str]]:
    """How rows lead to images, by file names or by headers; and the elements of these that became columns."""
    try:
        return find_image(work), []
    except NoImageNamedError as error:
        refused = error
    try:
        return match_folders(work, refused), []
    except NoImageNamedError:
        pass
    try:
        return match_headers(work, lambda: _read_headers(work), _HEADERS, refused)
    except NoImageNamedError as error:
        raise NoImageNamedError(f"{error} ({sheet.doubt})" if sheet.doubt else str(error)) from None


def _from_headers(work: Work) -> Draft:
    pictures = work.pictures
    if not pictures.dicoms:
        shown = pictures.listed_endings
        raise ConfigError(f"the images are not DICOM files ({shown}): name the file of the labels with --labels FILE")
    _set_aside(work)
    if pictures.without_header:
        work.notes.append(f"{len(pictures.without_header):,} PNG or JPEG files have no header, and are left out")
    names = [tag for tag in IMAGE_KEYS if tag not in KEYS]  # they name one image each, and describe none
    work.frame = frame = _read_headers(work).drop(columns=["image", *names], errors="ignore")
    if "PatientID" not in frame:
        text = "no header has a PatientID, so patients are unknown: give a table with --labels"
        raise ConfigError(text)
    work.image = pd.Series(range(len(frame)), index=frame.index).astype(str)
    for what, tag in _HEADERS.items():
        if tag in frame and what in ("patient", "study"):
            patients = f", {frame[tag].nunique():,} patients" if what == "patient" else ""
            work.take(what, tag, f"{count(int(frame[tag].notna().sum()), len(frame), 'headers')} have it{patients}")
        elif tag in frame:
            find_optional(work, what, tag)
            if what in work.evidence:
                work.evidence[what] = work.evidence[what].replace(SAID, "the element for it")
    work.frame = frame.apply(lambda cells: cells.str.replace("\\", work.choices.separator or "|", regex=False))
    find_labels(work, headers=True)
    refuse_idle(work)
    endings = {image_ending(file.rpartition("/")[2]) for file in pictures.dicoms}
    files = {"images": [f"**/*{ending}" for ending in sorted(endings)]}
    return draft(work, f"{len(pictures.dicoms):,} DICOM files; the labels are in their headers", files, {})


def _read_headers(work: Work) -> pd.DataFrame:
    """`image`, and the elements that may be read and that some file has, of all files.

    Files that cannot be read are noted, and left to the check of the site, which names them.

    Raises `SiteError` if no header can be read.
    """
    table = {"layout": "dicom", "terms": {}, "columns": {"patient": "PatientID", "findings": "ImageComments"}}
    site = any_site(work.name, str(work.pictures.root), {"images": ["**/*"]}, table)
    source = Source(site, work.pictures.root, progress=work.progress)
    tags = sorted({*IMAGE_KEYS, *(tag for of_role in ROLES.values() for tag in of_role)})
    frame, _ = read_elements(source, work.pictures.dicoms, tags)
    if frame.empty:
        raise SiteError(work.name, source.problems)
    if source.problems:
        work.notes.append(
            f"{len(source.problems):,} DICOM files cannot be read: fix or remove them before the site can be "
            f"opened; `chestfed site check` names them"
        )
    return frame.set_index(ROW)[["image", *(tag for tag in tags if frame[tag].notna().any())]]


def _optional(work: Work) -> None:
    """The columns that may be left out: guessed, shown, and looked at again if the answer differs."""
    for what in OPTIONAL:
        said = work.said(what)
        find_optional(work, what, said)
        if said is not None:
            continue
        guess = work.columns.get(what, NONE)
        why = work.evidence.get(what, "no column has such a name and such values")
        answer = work.choose(f"{what} column", f"--{what}-column", guess, [*work.all_columns, NONE], why)
        if answer != guess:
            work.drop(what)
            find_optional(work, what, answer)


def _set_aside(work: Work) -> None:
    if work.pictures.aside:
        work.notes.append(f"files that are not images are skipped: {work.pictures.aside}")


def _about_images(work: Work, match: ImageMatch) -> None:
    _set_aside(work)
    if (left := match.cells - match.named) and "missing_image" not in work.choices.drop:
        text = "no file in the folder: the site is refused unless the YAML has rows: {missing_image: drop}"
        work.notes.append(f"{plural(left, 'row')} with {text}")
    if left := len(work.pictures.files) - match.files:
        work.notes.append(f"{plural(left, 'file')} of the folder, named by no row: not used")
