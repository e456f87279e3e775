"""VinDr-CXR: image labels of PhysioNet, or the boxes of the VinBigData challenge; DICOM files.

PhysioNet's training labels have one row per image and radiologist, the test labels one consensus row per image. The
challenge's `train.csv` has one row per box, and `No finding` for a radiologist who drew none: an image's radiologists
are those with rows. No patient is named: an image is its own group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from pydantic import Field

from chestfed.core.plugins import Options
from chestfed.sites.label_files.source import Source
from chestfed.sites.raters import RULES, agreed
from chestfed.sites.reader import (
    BLANK,
    NEGATIVE,
    POSITIVE,
    SiteReader,
    column_findings,
    join_rows,
    label_names,
    nearest,
    raw_rows,
)
from chestfed.sites.spreadsheet.files import Column

LOCAL: Final = (
    "Aortic enlargement",
    "Atelectasis",
    "Calcification",
    "Cardiomegaly",
    "Clavicle fracture",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Enlarged PA",
    "ILD",
    "Infiltration",
    "Lung Opacity",
    "Lung cavity",
    "Lung cyst",
    "Mediastinal shift",
    "Nodule/Mass",
    "Pleural effusion",
    "Pleural thickening",
    "Pneumothorax",
    "Pulmonary fibrosis",
    "Rib fracture",
    "Other lesion",
)
GLOBAL: Final = ("COPD", "Lung tumor", "Pneumonia", "Tuberculosis", "Other disease", "Other diseases")
NO_FINDING: Final = "No finding"
#: The local findings that the challenge kept.
CHALLENGE: Final = (
    "Aortic enlargement",
    "Atelectasis",
    "Calcification",
    "Cardiomegaly",
    "Consolidation",
    "ILD",
    "Infiltration",
    "Lung Opacity",
    "Nodule/Mass",
    "Pleural effusion",
    "Pleural thickening",
    "Pneumothorax",
    "Pulmonary fibrosis",
    "Other lesion",
)
#: Columns that not every release has; a disease without a column is blank.
_OPTIONAL: Final = ("Edema",)
_CONSENSUS: Final = "consensus"


class VinDrOptions(Options):
    """`reader: {name: vindr, ...}`."""

    raters: Column = Field("any", description="any, majority, all, or the name of one radiologist")


def read(source: Source, options: VinDrOptions) -> pd.DataFrame:
    """Raw rows of train and, where there are labels of it, of test."""
    if source.labels_file is not None:
        files: dict[str, Path | None] = {"test" if "test" in source.labels_file.name else "train": source.labels_file}
    else:
        files = {role: source.find(role, required=role == "train") for role in ("train", "test")}
    names = label_names(source, (*LOCAL, *GLOBAL, NO_FINDING))
    parts = [
        _read_file(source, split, path, names, options.raters) for split, path in files.items() if path is not None
    ]
    return join_rows([part for part in parts if part is not None], source)


def _read_file(source: Source, split: str, path: Path, names: list[str], rule: str) -> pd.DataFrame | None:
    """One row per image."""
    votes = _boxes(source, path) if "class_name" in source.header(path) else _image_labels(source, path, names)
    if votes is None:
        return None
    if votes["rad_id"].isna().any() or votes["image_id"].isna().any():
        bad = (votes["rad_id"].isna() | votes["image_id"].isna()).to_numpy()
        text, advice = "image_id or rad_id is blank", "fill the cell or remove the row"
        source.bad_rows(path, "blank name", bad, votes["row"].to_numpy(), text, advice)
        votes = votes[~bad]
    first = votes.drop_duplicates("image_id")
    columns = {
        "image": _images(source, path, split, first["image_id"]).to_numpy(),
        "patient": first["image_id"].to_numpy(),
        "study": first["image_id"].to_numpy(),
        "view": "frontal",
        "split": split,
        "row": first["row"].to_numpy(),
        "file": source.name(path),
    }
    return raw_rows(columns, _agreed(source, path, votes, first["image_id"], rule), len(first))


def _image_labels(source: Source, path: Path, names: list[str]) -> pd.DataFrame | None:
    """One row per image and radiologist with findings int8 per disease, from columns of 0 and 1."""
    required = ["image_id", *(name for name in names if name not in _OPTIONAL)]
    present = [name for name in names if name in _OPTIONAL and name in source.header(path)]
    frame = source.read(path, [*required, *present], ["rad_id"])
    if frame is None:
        return None
    frame["rad_id"] = frame["rad_id"].fillna(_CONSENSUS) if frame["rad_id"].isna().all() else frame["rad_id"]
    twice = frame.duplicated(["image_id", "rad_id"]).to_numpy()
    text, advice = "duplicate image and radiologist", "keep one row per image and radiologist"
    source.bad_rows(path, "duplicate image", twice, frame["row"].to_numpy(), text, advice)
    return frame[["image_id", "rad_id", "row"]].assign(**column_findings(source, path, frame, uncertain=False))


def _boxes(source: Source, path: Path) -> pd.DataFrame | None:
    """One row per image and radiologist with findings int8 per disease, from one row per box."""
    frame = source.read(path, ["image_id", "class_name", "rad_id"])
    if frame is None:
        return None
    rows = frame["row"].to_numpy()
    known = (*LOCAL, NO_FINDING)
    unknown = (~frame["class_name"].isin(known)).to_numpy()
    cells, advice = frame["class_name"], f"known findings: {', '.join(known)}"
    source.bad_rows(
        path,
        "bad label value",
        unknown,
        rows,
        lambda place: f"unknown finding '{cells.iat[place]}'{nearest(str(cells.iat[place]), known)}",
        advice,
    )
    vote = frame.groupby(["image_id", "rad_id"], sort=False, dropna=False).ngroup().to_numpy()
    votes = frame[["image_id", "rad_id", "row"]].drop_duplicates(["image_id", "rad_id"]).reset_index(drop=True)
    # The challenge dropped some findings, Edema among them: there they are blank, not negative.
    asked = set(CHALLENGE) if set(frame["class_name"]) <= {*CHALLENGE, NO_FINDING} else set(LOCAL)
    for disease in source.config.diseases:
        names = source.config.labels[disease]
        findings = np.full(len(votes), NEGATIVE if asked & set(names) else BLANK, dtype=np.int8)
        findings[vote[frame["class_name"].isin(names).to_numpy()]] = POSITIVE
        votes[disease] = findings
    return votes


def _agreed(source: Source, path: Path, votes: pd.DataFrame, images: pd.Series, rule: str) -> dict[str, np.ndarray]:
    """One finding int8 per image and disease, by `raters`: any, majority, all, or one of them by name."""
    if rule not in RULES and set(votes["rad_id"]) != {_CONSENSUS}:
        if rule not in set(votes["rad_id"]):
            found = ", ".join(sorted(set(votes["rad_id"])))
            advice = "set 'reader.raters' in the site's YAML to any, majority, all, or to one of those found"
            source.problem("unknown rater", source.name(path), f"no rater '{rule}'; found: {found}", advice=advice)
        votes = votes[votes["rad_id"] == rule]
    place = pd.Index(images).get_indexer(votes["image_id"])
    return {disease: agreed(votes[disease].to_numpy(), place, len(images), rule) for disease in source.config.diseases}


def _images(source: Source, path: Path, split: str, images: pd.Series) -> pd.Series:
    """Paths `train/<image_id>.dicom` relative to the root, with the extension that the file has."""
    extension: dict[str, str] = {}
    prefix = split
    if source.has_images:
        release = path.parent.parent if path.parent.name == "annotations" else path.parent
        folder = release / split
        prefix = folder.relative_to(source.root).as_posix()
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        extension = {file.stem: file.suffix for file in files}
    return prefix + "/" + images + images.map(lambda name: extension.get(name, ".dicom"))


READER: Final = SiteReader("vindr", read, VinDrOptions, roles=("train", "test"))
