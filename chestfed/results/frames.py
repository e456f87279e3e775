"""The two tables of results, AUCs and their differences: columns, Holm's correction, files.

Each has one row per model, place and disease, and one per mean over the diseases. A `view` is the selection of rows
that answers one question. In memory it is a column; on disk it is a pair of files:

    study          table.csv          significance.csv     every K (or algorithm) on the test images
    hospitals      hospitals.csv      hospital_gains.csv   the same at every hospital, on its own held-out patients
    alternatives   alternatives.csv   alternative_gains.csv   what a hospital could do instead
    gate                              gate_gains.csv       the gate minus every alternative but own data
    seeds          results.csv                             each training seed of several
    held_out       held_out.csv                            every held-out site, and the sites trained on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from chestfed.core.checkpoint import write_text
from chestfed.evaluation.comparison import holm
from chestfed.evaluation.estimates import KINDS, as_csv, tidy
from chestfed.results.files import expected
from chestfed.results.run_folder import VIEWS

_COUNTS = ("positives", "negatives", "missing")
_METHOD = ("reason", "protocol", "interval_method", "interval_reference")
ESTIMATES: Final = (
    *("data", "model", "algorithm", "window", "k", "added", "hospital", "takes_part", "seed", "seeds", "disease"),
    *("auc", "low", "high", "sd", *_COUNTS, "hospitals", "left_out", "images", "patients", "paper_auc", *_METHOD),
)
DIFFERENCES: Final = (
    *("data", "reference", "model", "hospital", "disease", "auc_reference", "auc_model", "difference"),
    *("low", "high", "p", "p_holm", "n", "images", "patients", *_COUNTS, "seed_sd_reference", "seed_sd_model"),
    *("seeds_reference", "seeds_model", "of_seeds", "detectable", "seeds_needed", *_METHOD),
)


def make_estimates(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as estimates, with `view` first."""
    return tidy(rows, ["view", *ESTIMATES])


def make_differences(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as differences, with `view` first, and with `p_holm`.

    Within a view the p values of single diseases are corrected together, over all models and places, and those of the
    means among themselves. Intervals are not corrected.
    """
    frame = tidy(rows, ["view", *DIFFERENCES])
    for _, part in frame.groupby(["view", frame["disease"] == "mean"]):
        corrected = holm([None if pd.isna(p) else p for p in part["p"]])
        frame.loc[part.index, "p_holm"] = pd.Series(corrected, part.index, "float64")
    return frame


def select(frame: pd.DataFrame, view: str, **values: object) -> pd.DataFrame:
    """The rows of a view with these values of columns, and the frame's columns without `view`."""
    rows = frame["view"] == view
    for column, value in values.items():
        rows &= frame[column] == value
    return frame[rows].drop(columns="view").reset_index(drop=True)


def list_records(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """Rows as dictionaries, None where a value is missing."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def write_frames(folder: Path, estimates: pd.DataFrame, differences: pd.DataFrame, views: Sequence[str]) -> None:
    """Write the files of these views, without a file for an empty selection."""
    for view in views:
        for name, frame in zip(VIEWS[view], (estimates, differences), strict=True):
            rows = select(frame, view)
            if name and len(rows):
                write_text(folder / name, as_csv(rows))
            elif name:
                (folder / name).unlink(missing_ok=True)


def read_estimates(folder: Path) -> pd.DataFrame:
    """The estimates in the files of a folder, to the last bit; raises `ChestfedError` if one is damaged."""
    return make_estimates(_read(folder, 0, ESTIMATES))


def read_differences(folder: Path) -> pd.DataFrame:
    """The differences in the files of a folder, to the last bit; raises `ChestfedError` if one is damaged."""
    return make_differences(_read(folder, 1, DIFFERENCES))


def _read(folder: Path, place: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for view, names in VIEWS.items():
        file = folder / names[place]
        if not names[place] or not file.is_file():
            continue
        with expected(file):
            frame = pd.read_csv(
                file,
                dtype={name: KINDS.get(name, "bool" if name == "takes_part" else "str") for name in columns},
                keep_default_na=False,
                na_values={name: [""] for name in columns if name in KINDS},
            )[list(columns)]
        rows += [{"view": view, **row} for row in list_records(frame)]
    return rows
