"""CheXpert: `train.csv`, `valid.csv` and, since later, the labels of the test set; any one of them will do.

`Path` begins with the name of the release's folder, which need not be the name of the user's; what counts is
`train/patient00001/study1/view1_frontal.jpg`. Patient numbers are unique across the splits. The images are beside the
label file, or in the folders that the archives of the full-size release unpack to. Of the test labels there are two
forms: one row per image (`test_labels.csv`, column `Path`) and one row per study (`groundtruth.csv`, column `Study`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd

from chestfed.core.plugins import Options
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.reader import (
    SiteReader,
    ages,
    beside,
    column_findings,
    find_any,
    join_rows,
    label_names,
    list_entries,
    load_names,
    raw_rows,
    sexes,
    views,
)

OBSERVATIONS: Final = load_names("chexpert")
#: A few images are called frontal with an `AP/PA` of LL or RL: they stay frontal.
_PROJECTIONS: Final = {"AP": "ap", "PA": "pa", "LL": "frontal", "RL": "frontal"}
_VIEWS: Final = {"Frontal": "frontal", "Lateral": "lateral"}
#: The validation set has two names.
_SAME: Final = {"valid": ("valid", "val"), "val": ("val", "valid")}
_PATH: Final = (
    r"^(?:.*/)?(?P<folder>train|valid|val|test)/(?P<study>(?P<patient>patient\d+)/study\d+)/?(?P<view>[^/]*)$"
)


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of all label files of the release that are there; at least one is."""
    given = source.labels_file
    files = find_any(source, ("train", "valid", "test")) if given is None else {"": given}
    names = label_names(source, OBSERVATIONS)
    parts = [_read_file(source, path, names) for path in files.values()]
    return join_rows([part for part in parts if part is not None], source)


def _read_file(source: Source, path: Path, names: list[str]) -> pd.DataFrame | None:
    header = source.header(path)
    key = "Study" if "Study" in header and "Path" not in header else "Path"
    frame = source.read(path, [key, *names], ["Sex", "Age", "Frontal/Lateral", "AP/PA"])
    if frame is None:
        return None
    frame = _place_patients(source, path, _parse_paths(source, path, frame, key))
    if key == "Study":
        frame = _list_study_images(source, path, frame)
    rows = frame["row"].to_numpy()
    side = views(source, path, frame["Frontal/Lateral"], rows, _VIEWS)
    by_name = frame["view"].astype("str").str.extract(r"_(frontal|lateral)")[0]
    side = side.where(side != "unknown", by_name.fillna("unknown"))
    projection = views(source, path, frame["AP/PA"], rows, _PROJECTIONS)
    columns = {
        "image": frame["place"] + frame["study"] + "/" + frame["view"],
        "patient": frame["patient"],
        "study": frame["study"],
        "view": projection.where((side == "frontal") & (projection != "unknown"), side),
        "split": frame["folder"].replace("val", "valid"),
        "sex": sexes(frame["Sex"]),
        "age": ages(frame["Age"]),
        "row": rows,
        "file": source.name(path),
    }
    return raw_rows(columns, column_findings(source, path, frame), len(frame))


def _parse_paths(source: Source, path: Path, frame: pd.DataFrame, key: str) -> pd.DataFrame:
    """The rows whose path can be read, with its parts as columns; the others are problems."""
    parts = frame[key].astype("str").str.replace("\\", "/", regex=False).str.extract(_PATH)
    whole = key == "Study"
    bad = (parts["study"].isna() | ((parts["view"].fillna("") == "") != whole)).to_numpy()
    form = "(train, valid, val or test)/patientN/studyN" + ("" if whole else "/viewN_side.jpg")
    text = f"{key} does not end in {form}"
    advice = "use the release's unedited CSV: patient, study and split are read from this column"
    source.bad_rows(path, "unknown path", bad, frame["row"].to_numpy(), text, advice)
    return pd.concat([frame, parts], axis=1)[~bad].reset_index(drop=True)


def _place_patients(source: Source, path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with `place`, the folder that holds the patient's, relative to the root and ending in a slash.

    Beside the label file it is `train`, `valid`, `val` or `test`. The archives of the full-size release unpack to one
    folder each, `CheXpert-v1.0 batch 2 (train 1)` and so on, which have patients without a folder `train` in between.
    Patients in no folder are counted in a remark; their images are missing.
    """
    frame["place"] = beside(source, path) + frame["folder"] + "/"
    if not source.has_images or frame.empty:
        return frame
    above = path.parent if path.parent == source.root else path.parent.parent
    batches = sorted({*path.parent.glob("*batch *"), *above.glob("*batch *")})
    names = [name for folder in frame["folder"].unique() for name in _SAME.get(folder, (folder,))]
    folders = [path.parent / name for name in names] + batches + [batch / name for batch in batches for name in names]
    places = list_entries(source, folders)
    frame["place"] = [places.get(name, place) for name, place in zip(frame["patient"], frame["place"], strict=True)]
    patients = frame["patient"].unique()
    if lacking := len(patients) - sum(patient in places for patient in patients):
        looked = ", ".join(f"{folder.relative_to(source.root).as_posix()}/" for folder in folders)
        text = f"{lacking:,} of {len(patients):,} patients have no folder of images; looked in {looked}"
        source.remarks.append(f"{source.name(path)}: {text}")
    return frame


def _list_study_images(source: Source, path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per image for a file with one row per study: the images are listed, because the file does not name them.

    Without a folder of images a study counts as its first frontal view.
    """
    pairs = []
    for place, (folder, study) in enumerate(zip(frame["place"], frame["study"], strict=True)):
        names = ["view1_frontal.jpg"]
        if source.has_images:
            names = sorted(file.name for file in (source.root / folder / study).glob("view*.jpg"))
        if not names:
            advice = "unpack the test images beside the label file"
            row = int(frame["row"][place])
            source.problem("missing study", source.name(path), "no image in the study's folder", row, advice)
        pairs += [(place, name) for name in names]
    images = frame.iloc[[place for place, _ in pairs]].reset_index(drop=True)
    return images.assign(view=[name for _, name in pairs])


READER: Final = SiteReader("chexpert", read, roles=("train", "valid", "test"))
