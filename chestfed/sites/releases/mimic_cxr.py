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
from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import (
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
from chestfed.sites.releases.chexpert import OBSERVATIONS

#: `ViewPosition` is a free DICOM field: besides these there are a few decubitus, oblique and axial images.
_VIEWS: Final = {"AP": "ap", "PA": "pa", "LATERAL": "lateral", "LL": "lateral", "XTABLE LATERAL": "lateral"}
_SPLITS: Final = {"train": "train", "validate": "valid", "test": "test"}
_BY_HAND: Final = "test_labels"
#: What the file of the radiologists calls `Lung Opacity`.
_AIRSPACE: Final = "Airspace Opacity"
_ADVICE: Final = "use the label, metadata and split files of the same release"


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of the metadata, with labels and splits joined on."""
    names = label_names(source, (*OBSERVATIONS, _AIRSPACE))
    by_hand = _BY_HAND in source.config.label_files
    labels_path = source.labels_file or source.find(_BY_HAND if by_hand else "labels")
    key = ["study_id"] if by_hand else ["subject_id", "study_id"]
    labels = None if labels_path is None else source.read(labels_path, [*key, *names])
    metadata_path = source.find("metadata")
    columns = ["dicom_id", "subject_id", "study_id", "ViewPosition"]
    images = None if metadata_path is None else source.read(metadata_path, columns)
    splits = _read_splits(source)
    if metadata_path is None or images is None or labels_path is None or labels is None:
        return join_rows([], source)
    split = _split_column(source, metadata_path, images, splits)
    if by_hand:
        kept = _is_in(images["study_id"], labels["study_id"])
        images, split = images[kept].reset_index(drop=True), _all_test(source, labels_path, split[kept], splits)
    subject, study = images["subject_id"].astype("str"), images["study_id"].astype("str")
    files = "files/p" + subject.str[:2] + "/p" + subject + "/s" + study + "/" + images["dicom_id"]
    view = translate(images["ViewPosition"], _VIEWS)
    raw = {
        "image": image_files(source, beside(source, metadata_path) + files, ".jpg"),
        "patient": images["subject_id"],
        "study": images["study_id"],
        "view": view.where(view.notna(), np.where(images["ViewPosition"].isna(), "unknown", "other")),
        "split": split,
        "row": images["row"].to_numpy(),
        "file": source.name(metadata_path),
    }
    return raw_rows(raw, _joined_findings(source, labels_path, labels, images, key), len(images))


def _read_splits(source: Source) -> pd.DataFrame | None:
    """`dicom_id` and `split` in our words; None if the release's splits are not used or cannot be read."""
    path = source.find("split") if source.config.splits.official else None
    frame = None if path is None else source.read(path, ["dicom_id", "split"])
    if path is None or frame is None:
        return None
    rows = frame["row"].to_numpy()
    words = translate(frame["split"], _SPLITS)
    cells, bad = frame["split"], words.isna().to_numpy()
    advice = "splits are train, validate and test"
    source.bad_rows(path, "bad split", bad, rows, lambda place: f"split is '{cells.iat[place]}'", advice)
    twice = frame["dicom_id"].duplicated().to_numpy()
    source.bad_rows(path, "duplicate image", twice, rows, "duplicate dicom_id", _ADVICE)
    return frame.assign(split=words)[~twice]


def _split_column(source: Source, path: Path, images: pd.DataFrame, splits: pd.DataFrame | None) -> np.ndarray:
    if splits is None:
        return np.full(len(images), "train", dtype=object)
    rows = images["row"].to_numpy()
    places = pd.Index(splits["dicom_id"]).get_indexer(images["dicom_id"])
    source.bad_rows(path, "image without a split", places < 0, rows, "not in the split file", _ADVICE)
    return np.array([*splits["split"], "train"], dtype=object)[places]


def _all_test(source: Source, path: Path, split: np.ndarray, splits: pd.DataFrame | None) -> np.ndarray:
    """All `test`; how many of the images are elsewhere by the release's own splits is noted."""
    strayed = 0 if splits is None else int((split != "test").sum())
    if strayed:
        text = f"{strayed:,} of {len(split):,} images of these studies are not in the test split of the release"
        source.remarks.append(f"{source.name(path)}: {text}: not for a model that was trained on them")
    return np.full(len(split), "test", dtype=object)


def _joined_findings(
    source: Source, path: Path, labels: pd.DataFrame, images: pd.DataFrame, by: list[str]
) -> dict[str, np.ndarray]:
    """Findings of each image's study; `UNLABELLED` for a study that is not in the label file."""
    rows = labels["row"].to_numpy()
    per_study = column_findings(source, path, labels)
    key = pd.MultiIndex.from_frame(labels[by])
    twice = key.duplicated()
    source.bad_rows(path, "duplicate study", twice, rows, "the study has an earlier row", "keep one row per study")
    places = np.flatnonzero(~twice)
    wanted = pd.MultiIndex.from_frame(images[by])
    found = key[~twice].get_indexer(wanted)
    strayed = _is_in(labels["study_id"], images["study_id"]) & (wanted.drop_duplicates().get_indexer(key) < 0)
    source.bad_rows(path, "wrong subject", strayed, rows, "the study has another subject in the metadata", _ADVICE)
    if (found < 0).all():
        source.problem("nothing left", source.name(path), "no image's study is in the label file", advice=_ADVICE)
        return {disease: np.full(len(images), UNLABELLED, dtype=np.int8) for disease in per_study}
    return {
        disease: np.where(found >= 0, findings[places[found]], UNLABELLED).astype(np.int8)
        for disease, findings in per_study.items()
    }


def _is_in(names: pd.Series, others: pd.Series) -> np.ndarray:
    """Whether each name is among the others; `Series.isin` is slow on strings."""
    return pd.Index(others.unique()).get_indexer(names) >= 0


READER: Final = SiteReader("mimic_cxr", read, roles=("labels", _BY_HAND, "metadata", "split"))
