"""The split of each patient: a CSV with columns `patient` and `split`, one row per patient.

It names patients, so it stays where the site's labels are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import SPLITS

_ADVICE = "rewrite the file with `chestfed site check --fix-splits`"


def with_splits(raw: pd.DataFrame, path: Path, source: Source) -> pd.DataFrame:
    """Raw rows with the splits of the file; a patient that it lacks, or names twice, is a problem."""
    frame = source.read(path, ["patient", "split"])
    if frame is None:
        return raw
    rows = frame["row"].to_numpy()
    unknown = ~frame["split"].isin(SPLITS).to_numpy(dtype=bool)
    source.bad_rows(path, "unknown split", unknown, rows, f"the split is not one of {', '.join(SPLITS)}", _ADVICE)
    twice = frame["patient"].duplicated().to_numpy(dtype=bool)
    source.bad_rows(path, "duplicate patient", twice, rows, "this patient has an earlier row", _ADVICE)
    frame = frame[~unknown & ~twice]
    places = pd.Index(frame["patient"]).get_indexer(raw["patient"].astype(object))
    lacking = (places < 0) & raw["patient"].notna().to_numpy(dtype=bool)
    for file, row in zip(raw["file"][lacking], raw["row"][lacking], strict=True):
        text = f"this row's patient is not in {source.name(path)}"
        source.problem("patient without a split", str(file), text, int(row), _ADVICE)
    splits = np.array([*frame["split"], None], dtype=object)
    return raw.assign(split=splits[places])


def splits_text(splits: Mapping[str, str]) -> str:
    """The text of such a file, from patient -> split, in the order of the patients' names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["patient", "split"])
    writer.writerows(sorted(splits.items()))
    return text.getvalue()
