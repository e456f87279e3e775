"""MIMIC-CXR-JPG 2.0.0 and 2.1.0: labels per study, metadata and splits per image, all `csv.gz`.

The three files are joined: rows are the images of the metadata. A study that the labeler left out has missing labels.
An image is `files/p10/p10000032/s50414267/<dicom_id>.jpg`; DICOM and PNG copies of the same tree are read as well.

Of 2.1.0 there are also labels of test studies by radiologists, a file without `subject_id`. A site whose `label_files`
has the role `test_labels` consists of these studies alone, as its test split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.plugins import Options
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.reader import (
    UNLABELLED,
    SiteReader,
    beside,
    column_findings,
    image_files,
    join_rows,
    label_names,
    raw_rows,
    translate,
)
from chestfed.data.sites.releases.chexpert import OBSERVATIONS

#: `ViewPosition` is a free DICOM field: besides these there are a few decubitus, oblique and axial images.
_VIEWS: Final = {"AP": "ap", "PA": "pa", "LATERAL": "lateral", "LL": "lateral", "XTABLE LATERAL": "lateral"}
_SPLITS: Final = {"train": "train", "validate": "valid", "test": "test"}
_BY_HAND: Final = "test_labels"
#: Name of `Lung Opacity` in the radiologists' file.
_AIRSPACE: Final = "Airspace Opacity"
_ADVICE: Final = "use the label, metadata and split files of the same release"


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of the metadata, with labels and splits joined on."""
    by_hand = _BY_HAND in source.config.label_files
    key = ["study_id"] if by_hand else ["subject_id", "study_id"]
    names = label_names(source, (*OBSERVATIONS, _AIRSPACE))
    label_file = source.read_role(_BY_HAND if by_hand else "labels", [*key, *names], given=source.labels_file)
    metadata = source.read_role("metadata", ["dicom_id", "subject_id", "study_id", "ViewPosition"])
    splits = _read_splits(source)
    if label_file is None or metadata is None:
        return join_rows([], source)
    (labels_path, labels), (path, images) = label_file, metadata
    images["split"] = _look_up_splits(source, path, images, splits)
    if by_hand:
        images = _select_by_hand(source, labels_path, images, labels)
    subject, study = images["subject_id"].astype("str"), images["study_id"].astype("str")
    files = "files/p" + subject.str[:2] + "/p" + subject + "/s" + study + "/" + images["dicom_id"]
    view = translate(images["ViewPosition"], _VIEWS)
    raw = {
        "image": image_files(source, beside(source, path) + files, ".jpg"),
        "patient": images["subject_id"],
        "study": images["study_id"],
        "view": view.where(view.notna(), np.where(images["ViewPosition"].isna(), "unknown", "other")),
        "split": images["split"],
        "row": images["row"].to_numpy(),
        "file": source.name(path),
    }
    return raw_rows(raw, _join_findings(source, labels_path, labels, images, key), len(images))


def _read_splits(source: Source) -> pd.Series | None:
    """`dicom_id` -> split in our words; None if the release's splits are not used or cannot be read."""
    table = source.read_role("split", ["dicom_id", "split"]) if source.config.splits.official else None
    if table is None:
        return None
    path, frame = table
    rows, cells, words = frame["row"].to_numpy(), frame["split"], translate(frame["split"], _SPLITS)
    advice = "splits are train, validate and test"
    bad = words.isna().to_numpy()
    source.bad_rows(path, "bad split", bad, rows, lambda place: f"split is '{cells.iat[place]}'", advice)
    twice = frame["dicom_id"].duplicated().to_numpy()
    source.bad_rows(path, "duplicate image", twice, rows, "duplicate dicom_id", _ADVICE)
    return words.fillna("train").set_axis(frame["dicom_id"])[~twice]


def _look_up_splits(source: Source, path: Path, images: pd.DataFrame, splits: pd.Series | None) -> pd.Series | str:
    if splits is None:
        return "train"
    of_image = images["dicom_id"].map(splits)
    lacking, rows = of_image.isna().to_numpy(), images["row"].to_numpy()
    source.bad_rows(path, "image without a split", lacking, rows, "not in the split file", _ADVICE)
    return of_image.fillna("train")


def _select_by_hand(source: Source, path: Path, images: pd.DataFrame, labels: pd.DataFrame) -> pd.DataFrame:
    """The images of the labeled studies, all in test; what the release itself says otherwise is noted."""
    labeled = images[images["study_id"].isin(labels["study_id"])].reset_index(drop=True)
    strayed = int((labeled["split"] != "test").sum()) if source.config.splits.official else 0
    if strayed:
        text = f"{strayed:,} of {len(labeled):,} images of these studies are not in the test split of the release"
        source.remarks.append(f"{source.name(path)}: {text}: do not score a model that was trained on them")
    lacking = int((~labels["study_id"].isin(labeled["study_id"])).sum())
    if lacking:
        source.remarks.append(f"{source.name(path)}: {lacking:,} of {len(labels):,} studies are not in the metadata")
    return labeled.assign(split="test")


def _join_findings(
    source: Source, path: Path, labels: pd.DataFrame, images: pd.DataFrame, key: list[str]
) -> dict[str, np.ndarray]:
    """Findings int8 per disease of each image's study; unlabeled if that is not in the label file."""
    rows, twice = labels["row"].to_numpy(), labels.duplicated(key).to_numpy()
    source.bad_rows(path, "duplicate study", twice, rows, "an earlier row has the same study", "keep one row per study")
    if "subject_id" in key:
        subject = labels["study_id"].map(images.drop_duplicates("study_id").set_index("study_id")["subject_id"])
        strayed = (subject.notna() & (subject != labels["subject_id"])).to_numpy(dtype=bool)
        source.bad_rows(
            path, "wrong subject", strayed, rows, "the study has another subject_id in the metadata", _ADVICE
        )
    per_study = pd.DataFrame(column_findings(source, path, labels), index=pd.MultiIndex.from_frame(labels[key]))
    per_image = per_study[~twice].reindex(pd.MultiIndex.from_frame(images[key]), fill_value=UNLABELLED)
    if (per_image == UNLABELLED).all(axis=None):
        source.problem(
            "nothing left", source.name(path), "no image belongs to a study of the label file", advice=_ADVICE
        )
    return {disease: per_image[disease].to_numpy(dtype=np.int8) for disease in source.config.diseases}


READER: Final = SiteReader("mimic_cxr", read, roles=("labels", _BY_HAND, "metadata", "split"))
