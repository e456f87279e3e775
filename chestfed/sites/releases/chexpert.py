"""CheXpert: `train.csv`, `valid.csv` and, since later, the labels of the test set.

`Path` begins with the name of the release's folder, which need not be the name of the user's; what counts is
`train/patient00001/study1/view1_frontal.jpg`, relative to the folder of the label file. Patient numbers are unique
across the splits. Of the test labels there are two forms: one row per image (`test_labels.csv`, column `Path`) and
one row per study (`groundtruth.csv`, column `Study`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd

from chestfed.core.plugins import Options
from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import SiteReader, ages, column_findings, join_rows, label_names, raw_rows, sexes, views

OBSERVATIONS: Final = (
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
)
#: A few images are called frontal with an `AP/PA` of LL or RL: they stay frontal.
_PROJECTIONS: Final = {"AP": "ap", "PA": "pa", "LL": "frontal", "RL": "frontal"}
_VIEWS: Final = {"Frontal": "frontal", "Lateral": "lateral"}
_PATH: Final = (
    r"^(?:.*/)?(?P<file>(?P<split>train|valid|test)/(?P<study>(?P<patient>patient\d+)/study\d+)/?(?P<view>[^/]*))$"
)


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of all label files of the release that are there; at least one is."""
    if source.labels_file is not None:
        files: list[Path | None] = [source.labels_file]
    else:
        files = [source.find(role, required=role == "train") for role in ("train", "valid", "test")]
    names = label_names(source, OBSERVATIONS)
    parts = [_read_file(source, path, names) for path in files if path is not None]
    return join_rows([part for part in parts if part is not None], source)


def _read_file(source: Source, path: Path, names: list[str]) -> pd.DataFrame | None:
    by_study = "Study" in (header := source.header(path)) and "Path" not in header
    key = "Study" if by_study else "Path"
    frame = source.read(path, [key, *names], ["Sex", "Age", "Frontal/Lateral", "AP/PA"])
    if frame is None:
        return None
    frame = _understood(source, path, frame, key)
    if by_study:
        frame = _images_of_studies(source, path, frame)
    rows = frame["row"].to_numpy()
    side = views(source, path, frame["Frontal/Lateral"], rows, _VIEWS)
    if (side == "unknown").any():
        by_name = frame["view"].str.extract(r"_(frontal|lateral)")[0]
        side = side.where(side != "unknown", by_name.fillna("unknown"))
    projection = views(source, path, frame["AP/PA"], rows, _PROJECTIONS)
    columns = {
        "image": _folder(source, path) + frame["file"],
        "patient": frame["patient"],
        "study": frame["study"],
        "view": projection.where((side == "frontal") & (projection != "unknown"), side),
        "split": frame["split"],
        "sex": sexes(frame["Sex"]),
        "age": ages(frame["Age"]),
        "row": rows,
        "file": source.name(path),
    }
    return raw_rows(columns, column_findings(source, path, frame), len(frame))


def _understood(source: Source, path: Path, frame: pd.DataFrame, key: str) -> pd.DataFrame:
    """The rows whose path can be read, with its parts as columns; the others are problems."""
    parts = frame[key].astype("str").str.replace("\\", "/", regex=False).str.extract(_PATH)
    parts["view"] = parts["view"].fillna("")
    whole = key == "Study"
    bad = (parts["file"].isna() | ((parts["view"] == "") != whole)).to_numpy()
    form = "(train, valid or test)/patientN/studyN" + ("" if whole else "/viewN_side.jpg")
    text = f"{key} does not end in {form}"
    advice = "use the release's own CSV: patient, study and split are read from this column"
    source.bad_rows(path, "unknown path", bad, frame["row"].to_numpy(), text, advice)
    return pd.concat([frame, parts], axis=1)[~bad].reset_index(drop=True)


def _images_of_studies(source: Source, path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per image for a file with one row per study: the images are listed, because the file does not name them.

    Without a folder of images a study counts as its first frontal view.
    """
    found = []
    for place, study in enumerate(frame["file"]):
        folder = path.parent / study
        names = ["view1_frontal.jpg"]
        if source.has_images:
            names = sorted(file.name for file in folder.glob("view*.jpg"))
        if not names:
            advice = "unpack the test images beside the label file"
            row = int(frame["row"][place])
            source.problem("missing study", source.name(path), "no image in the study's folder", row, advice)
        found += [(place, name) for name in names]
    images = frame.iloc[[place for place, _ in found]].reset_index(drop=True)
    images["view"] = [name for _, name in found]
    images["file"] = images["file"].str.rstrip("/") + "/" + images["view"].astype("str")
    return images


def _folder(source: Source, path: Path) -> str:
    """The label file's folder relative to the root, ending in a slash; empty at the root."""
    if not source.has_images or path.parent == source.root:
        return ""
    return path.parent.relative_to(source.root).as_posix() + "/"


READER: Final = SiteReader("chexpert", read, roles=("train", "valid", "test"))
