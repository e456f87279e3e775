"""ChestX-ray8/14 of the NIH Clinical Center: `Data_Entry_2017*.csv`, two split lists, PNG files in twelve folders.

The images are in `images_001/images/` to `images_012/images/`, or merged into one folder. The split lists are optional:
without both of them every image is in train.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from chestfed.core.plugins import Options
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import mention_nearest
from chestfed.data.sites.reader import (
    NEGATIVE,
    POSITIVE,
    UNLABELLED,
    SiteReader,
    ages,
    join_rows,
    label_names,
    list_entries,
    load_names,
    raw_rows,
    sexes,
    views,
)

FINDINGS: Final = load_names("chestxray8")
_VIEWS: Final = {"PA": "pa", "AP": "ap"}
_FOLDERS: Final = ("images_*/images", "images_*", "images")


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of the label file, with the splits of the lists if they are there."""
    label_names(source, FINDINGS)
    required = ["Image Index", "Finding Labels", "Patient ID", "View Position"]
    optional = ["Follow-up #", "Patient Age", "Patient Gender"]
    entries = source.read_role("entries", required, optional, given=source.labels_file)
    if entries is None:
        return join_rows([], source)
    path, frame = entries
    rows, names = frame["row"].to_numpy(), frame["Image Index"]
    folders = [*(folder for pattern in _FOLDERS for folder in sorted(source.root.glob(pattern))), source.root]
    columns = {
        "image": names.map(list_entries(source, folders)).astype(object).fillna("images/") + names,
        "patient": frame["Patient ID"],
        "study": frame["Patient ID"] + "/" + frame["Follow-up #"].fillna("0"),
        "view": views(source, path, frame["View Position"], rows, _VIEWS),
        "split": _read_splits(source, path, frame),
        "sex": sexes(frame["Patient Gender"]),
        "age": ages(frame["Patient Age"]),
        "row": rows,
        "file": source.name(path),
    }
    return raw_rows(columns, _read_findings(source, path, frame), len(frame))


def _read_findings(source: Source, path: Path, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Findings per disease of the `|`-joined words; a word that is not in the list is a problem."""
    codes, cells = pd.factorize(frame["Finding Labels"])  # -1, the last place of a table, is the blank cell
    words = [{word.strip(): None for word in str(cell).split("|")} for cell in cells]
    strange = [
        [f"'{word}'{mention_nearest(word, FINDINGS)}" for word in cell if word not in FINDINGS] for cell in words
    ]
    contrary = ["No Finding" in cell and len(cell) > 1 for cell in words]
    kind, rows, advice = "bad label value", frame["row"].to_numpy(), f"known findings: {', '.join(FINDINGS)}"
    bad = np.array([*map(bool, strange), False])[codes]
    source.bad_rows(path, kind, bad, rows, lambda n: f"unknown finding {', '.join(strange[codes[n]])}", advice)
    bad = np.array([*contrary, False])[codes]
    source.bad_rows(path, kind, bad, rows, "'No Finding' beside a finding", "decide which it is")
    findings = {}
    for disease, names in source.config.labels.items():
        table = [POSITIVE if cell.keys() & names else NEGATIVE for cell in words]
        findings[disease] = np.array([*table, UNLABELLED], dtype=np.int8)[codes]
    return findings


def _read_splits(source: Source, path: Path, frame: pd.DataFrame) -> pd.Series:
    """`train` or `test` by the lists; all `train` if neither list is there."""
    roles = ("train_val_list", "test_list")
    if not source.config.splits.official or all(source.find(role, required=False) is None for role in roles):
        return pd.Series("train", index=frame.index)
    files = [source.find(role) for role in roles]  # one list without the other is a problem
    members = [[] if file is None else source.lines(file) for file in files]
    for file, names in zip(files, members, strict=True):
        if file is not None and not any(names):
            source.problem("empty file", source.name(file), "names no image", advice="download the file again")
    cells = pa.array(frame["Image Index"])
    train, test = (pc.is_in(cells, pa.array(names, cells.type)).to_numpy(zero_copy_only=False) for names in members)
    rows = frame["row"].to_numpy()
    if None not in files:
        text, advice = "the image is in neither split list", "use the lists and the label file of the same release"
        source.bad_rows(path, "image without a split", ~train & ~test, rows, text, advice)
        source.bad_rows(path, "image in two splits", train & test, rows, "the image is in both split lists", advice)
    return pd.Series(np.where(test, "test", "train"), index=frame.index)


READER: Final = SiteReader("chestxray8", read, roles=("entries", "train_val_list", "test_list"))
