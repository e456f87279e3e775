"""ChestX-ray8/14 of the NIH Clinical Center: `Data_Entry_2017*.csv`, two split lists, PNG files in twelve folders.

The images are in `images_001/images/` to `images_012/images/`, or merged into one folder. The split lists are optional:
without both of them every image is in train.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.plugins import Options
from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import (
    NEGATIVE,
    POSITIVE,
    UNLABELLED,
    SiteReader,
    ages,
    join_rows,
    label_names,
    names_of,
    nearest,
    raw_rows,
    sexes,
    views,
)

FINDINGS: Final = names_of("chestxray8")
_VIEWS: Final = {"PA": "pa", "AP": "ap"}
_FOLDERS: Final = ("images_*/images", "images_*", "images")


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of the label file, with the splits of the lists if they are there."""
    path = source.labels_file or source.find("entries")
    label_names(source, FINDINGS)
    required = ["Image Index", "Finding Labels", "Patient ID", "View Position"]
    optional = ["Follow-up #", "Patient Age", "Patient Gender"]
    frame = None if path is None else source.read(path, required, optional)
    if path is None or frame is None:
        return join_rows([], source)
    rows = frame["row"].to_numpy()
    columns = {
        "image": _images(source, frame["Image Index"]),
        "patient": frame["Patient ID"],
        "study": frame["Patient ID"] + "/" + frame["Follow-up #"].fillna("0"),
        "view": views(source, path, frame["View Position"], rows, _VIEWS),
        "split": _splits(source, path, frame),
        "sex": sexes(frame["Patient Gender"]),
        "age": ages(frame["Patient Age"]),
        "row": rows,
        "file": source.name(path),
    }
    return raw_rows(columns, _findings(source, path, frame), len(frame))


def _findings(source: Source, path: Path, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Findings per disease of the `|`-joined words; a word that is not in the list is a problem."""
    codes, cells = pd.factorize(frame["Finding Labels"])
    words = [[word.strip() for word in str(cell).split("|")] for cell in cells]
    strange = [[word for word in group if word not in FINDINGS] for group in words]
    unknown = [", ".join(f"'{word}'{nearest(word, FINDINGS)}" for word in group) for group in strange]
    contrary = ["No Finding" in group and len(set(group)) > 1 for group in words]
    rows = frame["row"].to_numpy()
    bad = np.array([*(bool(text) for text in unknown), False])[codes]
    source.bad_rows(
        path,
        "bad label value",
        bad,
        rows,
        lambda place: f"unknown finding {unknown[codes[place]]}",
        f"known findings: {', '.join(FINDINGS)}",
    )
    bad = np.array([*contrary, False])[codes]
    source.bad_rows(path, "bad label value", bad, rows, "'No Finding' beside a finding", "decide which it is")
    findings = {}
    for disease in source.config.diseases:
        names = set(source.config.labels[disease])
        table = [POSITIVE if names & set(group) else NEGATIVE for group in words]
        findings[disease] = np.array([*table, UNLABELLED], dtype=np.int8)[codes]
    return findings


def _splits(source: Source, path: Path, frame: pd.DataFrame) -> pd.Series:
    """`train` or `test` by the lists; all `train` if neither list is there."""
    lists = {role: source.find(role, required=False) for role in ("train_val_list", "test_list")}
    files = {role: file for role, file in lists.items() if file is not None}
    if not source.config.splits.official or not files:
        return pd.Series("train", index=frame.index)
    for role in lists.keys() - files.keys():
        source.find(role)  # one list without the other: reports what is missing
    members = {role: set(source.lines(file)) for role, file in files.items()}
    for role, file in files.items():
        if not any(members[role]):
            source.problem("empty file", source.name(file), "names no image", advice="download the file again")
    train = frame["Image Index"].isin(members.get("train_val_list", set())).to_numpy()
    test = frame["Image Index"].isin(members.get("test_list", set())).to_numpy()
    rows = frame["row"].to_numpy()
    if len(files) == 2:
        text, advice = "the image is in neither split list", "use lists and label file of the same release"
        source.bad_rows(path, "image without a split", ~train & ~test, rows, text, advice)
        source.bad_rows(path, "image in two splits", train & test, rows, "the image is in both split lists", advice)
    return pd.Series(np.where(test, "test", "train"), index=frame.index)


def _images(source: Source, names: pd.Series) -> pd.Series:
    """Paths relative to the root; a name that is in no folder stays under `images/`, where the cache will miss it."""
    folder_of: dict[str, str] = {}
    folders = [folder for pattern in _FOLDERS for folder in sorted(source.root.glob(pattern)) if folder.is_dir()]
    for folder in [*folders, source.root] if source.has_images else []:
        place = folder.relative_to(source.root).as_posix()
        with os.scandir(folder) as entries:
            for entry in entries:
                folder_of.setdefault(entry.name, place)
    prefix = names.map(folder_of) if folder_of else pd.Series(None, index=names.index, dtype=object)
    prefix = prefix.fillna("images").replace(".", "")
    return (prefix + "/" + names).str.removeprefix("/")


READER: Final = SiteReader("chestxray8", read, roles=("entries", "train_val_list", "test_list"))
