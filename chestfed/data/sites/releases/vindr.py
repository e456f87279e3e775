"""VinDr-CXR: image labels of PhysioNet, or the boxes of the VinBigData challenge; DICOM files.

PhysioNet's training labels have one row per image and radiologist, the test labels one consensus row per image. The
challenge's `train.csv` has one row per box, and `No finding` for a radiologist who drew none: an image's radiologists
are those with rows. No patient is named: an image is its own group.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.core.plugins import Options
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import mention_nearest
from chestfed.data.sites.reader import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    SiteReader,
    ages,
    column_findings,
    find_any,
    image_files,
    join_rows,
    label_names,
    load_names,
    raw_rows,
    sexes,
)
from chestfed.data.sites.tables.dicom_headers import read_elements
from chestfed.data.sites.tables.findings import RULES, combine_votes
from chestfed.data.sites.tables.schema import Column

_NAMES: Final = load_names("vindr")
NO_FINDING: Final = "No finding"
_CONSENSUS: Final = "consensus"
_SHOWN_FROM: Final = 500  # headers; fewer are read at once


class VinDrOptions(Options):
    """`reader: {name: vindr, ...}`."""

    raters: Column = Field("any", description="any, majority, all, or the name of one radiologist")
    headers: bool = Field(False, description="read sex and age from the headers of the DICOM files")


def read(source: Source, options: VinDrOptions) -> pd.DataFrame:
    """Raw rows of train and of test, whichever have labels."""
    if source.labels_file is not None:
        files = {"test" if "test" in source.labels_file.name else "train": source.labels_file}
    else:
        files = find_any(source, ("train", "test"))
    names = label_names(source, (*_NAMES["local"], *_NAMES["global"], NO_FINDING))
    parts = [_read_file(source, split, path, names, options.raters) for split, path in files.items()]
    rows = join_rows([part for part in parts if part is not None], source)
    return _with_headers(source, rows) if options.headers and source.has_images else rows


def _read_file(source: Source, split: str, path: Path, names: list[str], rule: str) -> pd.DataFrame | None:
    votes = (
        _read_boxes(source, path) if "class_name" in source.header(path) else _read_image_labels(source, path, names)
    )
    if votes is None:
        return None
    unnamed = votes[["rad_id", "image_id"]].isna().any(axis=1).to_numpy()
    text, advice = "image_id or rad_id is blank", "fill the cell or remove the row"
    source.bad_rows(path, "blank name", unnamed, votes["row"].to_numpy(), text, advice)
    votes = votes[~unnamed]
    first = votes.drop_duplicates("image_id")
    images = first["image_id"].reset_index(drop=True)
    folder = split
    if source.has_images:
        release = path.parent.parent if path.parent.name == "annotations" else path.parent
        folder = (release / split).relative_to(source.root).as_posix()
    columns = {
        "image": image_files(source, folder + "/" + images, ".dicom"),
        "patient": images,
        "study": images,
        "view": "frontal",
        "split": split,
        "row": first["row"].to_numpy(),
        "file": source.name(path),
    }
    return raw_rows(columns, _combine_raters(source, path, votes, images, rule), len(first))


def _read_image_labels(source: Source, path: Path, names: list[str]) -> pd.DataFrame | None:
    """One row per image and radiologist with findings int8 per disease, from columns of 0 and 1."""
    optional = [name for name in names if name in _NAMES["optional"]]
    present = [name for name in names if name not in optional or name in source.header(path)]
    for name in set(names) - set(present):
        source.remarks.append(f"{source.name(path)}: no column '{name}': diseases without another column are blank")
    frame = source.read(path, ["image_id", *present], ["rad_id"])
    if frame is None:
        return None
    if frame["rad_id"].isna().all():
        frame["rad_id"] = _CONSENSUS
    twice = frame.duplicated(["image_id", "rad_id"]).to_numpy()
    text, advice = "duplicate image and radiologist", "keep one row per image and radiologist"
    source.bad_rows(path, "duplicate image", twice, frame["row"].to_numpy(), text, advice)
    return frame[["image_id", "rad_id", "row"]].assign(**column_findings(source, path, frame, uncertain=False))


def _read_boxes(source: Source, path: Path) -> pd.DataFrame | None:
    """One row per image and radiologist with findings int8 per disease, from one row per box."""
    frame = source.read(path, ["image_id", "class_name", "rad_id"])
    if frame is None:
        return None
    cells, known = frame["class_name"], (*_NAMES["local"], NO_FINDING)
    texts_of_cells = {
        cell: f"unknown finding '{cell}'{mention_nearest(cell, known)}" for cell in cells.dropna().unique()
    }
    unknown, advice = ~cells.isin(known).to_numpy(), f"known findings: {', '.join(known)}"
    rows, texts = frame["row"].to_numpy(), cells.map(texts_of_cells).fillna("class_name is blank")
    source.bad_rows(path, "bad label value", unknown, rows, lambda place: str(texts.iat[place]), advice)
    vote = frame.groupby(["image_id", "rad_id"], sort=False, dropna=False).ngroup().to_numpy()
    votes = frame[["image_id", "rad_id", "row"]].drop_duplicates(["image_id", "rad_id"]).reset_index(drop=True)
    # The challenge dropped some findings, Edema among them: there they are blank, not negative.
    challenge = set(cells) <= {*_NAMES["challenge"], NO_FINDING}
    assessed = {NO_FINDING, *_NAMES["challenge" if challenge else "local"]}
    for disease in source.config.diseases:
        names = source.config.labels[disease]
        findings = np.full(len(votes), NEGATIVE if assessed & set(names) else BLANK, dtype=np.int8)
        findings[vote[cells.isin(names).to_numpy()]] = POSITIVE
        votes[disease] = findings
    return votes


def _combine_raters(
    source: Source, path: Path, votes: pd.DataFrame, images: pd.Series, rule: str
) -> dict[str, np.ndarray]:
    """One finding int8 per image and disease, by `raters`: any, majority, all, or one of them by name."""
    raters = set(votes["rad_id"])
    if rule not in RULES and raters != {_CONSENSUS}:
        if rule not in raters:
            text = f"no rater '{rule}'; found: {', '.join(sorted(raters))}"
            advice = "set 'reader.raters' in the site's YAML to any, majority, all, or to one of those found"
            source.problem("unknown rater", source.name(path), text, advice=advice)
        votes = votes[votes["rad_id"] == rule]
    place = pd.Index(images).get_indexer(votes["image_id"])
    return {
        disease: combine_votes(votes[disease].to_numpy(), place, len(images), rule)
        for disease in source.config.diseases
    }


def _with_headers(source: Source, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with sex and age of the images' headers; missing where there is no header, or it cannot be read.

    An age of 0 is an empty field: the release has no children.
    """
    there = [image for image in rows["image"].dropna() if (source.root / image).is_file()]
    progress = source.progress if len(there) >= _SHOWN_FROM else lambda done, total: None
    aside = replace(source, problems=[], progress=progress)
    headers, _ = read_elements(aside, there, ["PatientSex", "PatientAge"])
    headers = headers.drop_duplicates("image").set_index("image").reindex(rows["image"])
    years = ages(headers["PatientAge"])
    if aside.problems:
        source.remarks.append(f"{len(aside.problems):,} images have an unreadable header: sex and age are missing")
    return rows.assign(sex=sexes(headers["PatientSex"]).to_numpy(), age=np.where(years > 0, years, np.float32(np.nan)))


READER: Final = SiteReader("vindr", read, VinDrOptions, roles=("train", "test"))
