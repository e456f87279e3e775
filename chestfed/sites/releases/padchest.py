"""PadChest: one CSV, findings as a Python list of terms, PNG files in folders 0 to 54 or in one.

Terms have stray blanks, and some are empty; both are fixed here. Which terms mean which disease (the terms form a
tree) is in the site's YAML. There is no official split: every image is in train.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.core.plugins import Options
from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    UNLABELLED,
    SiteReader,
    ages,
    join_rows,
    raw_rows,
    sexes,
    views,
)
from chestfed.sites.terms import listed, normal

_VIEWS: Final = {
    "PA": "pa",
    "AP": "ap",
    "AP_horizontal": "ap",
    "L": "lateral",
    "COSTAL": "other",
    "EXCLUDE": "other",
    "UNK": "unknown",
}
_REQUIRED: Final = ["ImageID", "StudyID", "PatientID", "Projection", "Labels"]
_OPTIONAL: Final = [
    "ImageDir",
    "PatientBirth",
    "PatientSex_DICOM",
    "StudyDate_DICOM",
    "MethodLabel",
    "PhotometricInterpretation_DICOM",
]


class PadChestOptions(Options):
    """`reader: {name: padchest, ...}`."""

    no_label: list[str] = Field([], description="terms beside which a disease that is not named is blank, not negative")
    methods: list[Literal["Physician", "RNN_model"]] | Literal["all"] = Field(
        "all", description="whose labels count; images labeled otherwise have missing labels"
    )


def read(source: Source, options: PadChestOptions) -> pd.DataFrame:
    """Raw rows of the label file."""
    path = source.labels_file or source.find("labels")
    frame = None if path is None else source.read(path, _REQUIRED, _OPTIONAL)
    if path is None or frame is None:
        return join_rows([], source)
    rows = frame["row"].to_numpy()
    columns = {
        "image": _images(source, path, frame),
        "patient": frame["PatientID"],
        "study": frame["StudyID"],
        "view": views(source, path, frame["Projection"], rows, _VIEWS),
        "split": "train",
        "sex": sexes(frame["PatientSex_DICOM"]),
        "age": _ages(frame),
        "row": rows,
        "file": source.name(path),
        "inverted": (frame["PhotometricInterpretation_DICOM"] == "MONOCHROME1").to_numpy(dtype=bool),
    }
    return raw_rows(columns, _findings(source, path, frame, options), len(frame))


def _findings(source: Source, path: Path, frame: pd.DataFrame, options: PadChestOptions) -> dict[str, np.ndarray]:
    """Findings per disease of the cells' terms.

    A blank or empty cell is unlabeled. A disease not named is negative, or blank beside a term of `no_label`.
    """
    codes, cells = pd.factorize(frame["Labels"])
    terms = [_terms(str(cell)) for cell in cells]
    bad = np.array([*(group is None for group in terms), False])[codes]
    advice = "a cell is a list such as ['cardiomegaly', 'pleural effusion']; fix it"
    rows = frame["row"].to_numpy()
    source.bad_rows(path, "bad label value", bad, rows, lambda place: f"Labels is {cells[codes[place]]!r}", advice)
    silent = {normal(term) for term in options.no_label}
    kept = _kept_methods(source, path, frame, options)
    findings = {}
    for disease in source.config.diseases:
        names = {normal(name) for name in source.config.labels[disease]}
        table = [_finding(group or set(), names, silent) for group in terms]
        found = np.array([*table, UNLABELLED], dtype=np.int8)[codes]
        findings[disease] = np.where(kept, found, UNLABELLED).astype(np.int8)
    return findings


def _finding(terms: set[str], names: set[str], silent: set[str]) -> np.int8:
    if terms & names:
        return POSITIVE
    if terms & silent:
        return BLANK
    return NEGATIVE if terms else UNLABELLED


def _terms(cell: str) -> set[str] | None:
    """The terms of a cell; None if it is not a list of strings."""
    items = listed(cell)
    return None if items is None else {normal(item) for item in items} - {""}


def _kept_methods(source: Source, path: Path, frame: pd.DataFrame, options: PadChestOptions) -> np.ndarray:
    """Whether a row's labels were made in one of the ways that the configuration accepts."""
    methods = options.methods
    if methods == "all":
        return np.ones(len(frame), dtype=bool)
    kept = frame["MethodLabel"].isin(methods).to_numpy(dtype=bool)
    if not kept.any():
        found = ", ".join(sorted({str(cell) for cell in frame["MethodLabel"]}))
        text = f"no row's MethodLabel is {' or '.join(methods)}; found: {found}"
        source.problem("nothing left", source.name(path), text, advice="change 'reader.methods' in the site's YAML")
    return kept


def _ages(frame: pd.DataFrame) -> np.ndarray:
    """Year of the study minus year of birth, float32 [n]; the other fields have no more detail."""
    study = pd.to_numeric(frame["StudyDate_DICOM"].astype("str").str[:4], errors="coerce")
    birth = pd.to_numeric(frame["PatientBirth"], errors="coerce")
    years = (study - birth).to_numpy(dtype=float)
    return ages(pd.Series(np.where(np.isnan(years), "", years.astype(str)), index=frame.index))


def _images(source: Source, path: Path, frame: pd.DataFrame) -> pd.Series:
    """Paths relative to the root: in the folder that `ImageDir` names, or beside the label file if there is none."""
    release = path.parent
    prefix = release.relative_to(source.root).as_posix() if source.has_images else "."
    codes, found = pd.factorize(frame["ImageDir"])
    places = []
    for cell in found:
        name = str(cell).strip().removesuffix(".0")
        there = not source.has_images or (release / name).is_dir()
        places.append(f"{prefix}/{name}/" if there else f"{prefix}/")
    folders = pd.Series(np.array([*places, f"{prefix}/"], dtype=object)[codes], index=frame.index)
    return (folders + frame["ImageID"]).str.removeprefix("./")


READER: Final = SiteReader("padchest", read, PadChestOptions, roles=("labels",))
