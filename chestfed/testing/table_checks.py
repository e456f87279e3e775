"""Checks of the table alone: `docs/design.md`, "The site table"."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from chestfed.core.diseases import TITLES
from chestfed.sites.label_files.delimited import excel_separator
from chestfed.sites.opening import open_site
from chestfed.sites.table import SiteTable
from chestfed.sites.vocabulary import SPLITS, VIEWS
from chestfed.testing.case import Case, digest
from chestfed.testing.text import records

_CATEGORIES = {"view": VIEWS, "split": SPLITS, "sex": ("F", "M")}
_DTYPES = {"age": "float32", "row": "int64", "inverted": "bool", "repeats": "int64"}


def schema(case: Case) -> Iterator[str]:
    """The table has the columns and types of the design, and nothing else."""
    frame, diseases = case.table.frame, list(case.config.diseases)
    wanted = ["image", "patient", "study", *_CATEGORIES, "age", "row", "inverted", *diseases, "repeats"]
    for name in sorted(set(wanted) ^ set(frame.columns)):
        yield f"column '{name}' is {'missing' if name in wanted else 'none of a site table'}"
    for name in ("image", "patient", "study"):
        if name in frame and not frame[name].map(lambda cell: isinstance(cell, str) and cell != "").all():
            yield f"column '{name}' has cells that are no text"
    for name, words in _CATEGORIES.items():
        if name in frame and list(getattr(frame[name].dtype, "categories", ())) != list(words):
            yield f"column '{name}' is no category of {', '.join(words)}"
        elif name in frame and name != "sex" and frame[name].isna().any():
            yield f"column '{name}' has missing cells"
    for name, kind in {**_DTYPES, **dict.fromkeys(diseases, "float32")}.items():
        if name in frame and frame[name].dtype != kind:
            yield f"column '{name}' is {frame[name].dtype}, not {kind}"
    if tuple(diseases) != tuple(case.table.diseases):
        yield f"the table is about {', '.join(case.table.diseases)}, the YAML about {', '.join(diseases)}"
    if "image" in frame and frame["image"].duplicated().any():
        yield "an image has several rows"
    if "repeats" in frame and (frame["repeats"][frame["split"] != "train"] != 1).any():
        yield "rows outside of train are repeated"


def labels(case: Case) -> Iterator[str]:
    """A label is 0, 1 or missing, and some are known."""
    values = case.table.labels()
    for j, disease in enumerate(case.table.diseases):
        strange = ~np.isnan(values[:, j]) & ~np.isin(values[:, j], (0, 1))
        if strange.any():
            where = f"{int(strange.sum())} rows, first row {_first(case, strange)}"
            yield f"'{disease}' is neither 0, 1 nor missing in {where}"
    if np.isnan(values).all():
        yield "every label is missing"


def unlabelled_diseases(case: Case) -> Iterator[str]:
    """A disease that the site does not label is missing, not negative."""
    others = [disease for disease in TITLES if disease not in case.config.diseases]
    about = case.table.about([*case.config.diseases, *others])
    values = about.labels()[:, len(case.config.diseases) :]
    for j, disease in enumerate(others):
        if disease in case.table.frame or not np.isnan(values[:, j]).all():
            yield f"'{disease}' is not among the YAML's diseases and not missing"


def rows(case: Case) -> Iterator[str]:
    """`row` is the line of the label file that speaks of the image: its name, study or patient stands there."""
    images = set(case.raw["image"])
    for name, part in case.raw.groupby("file", sort=True):
        path = case.table.root / str(name)
        if (part["row"] < 1).any():
            yield f"{name}: row numbers below 1"
            continue
        lines = _lines(path) if str(name) not in images and path.is_file() else None
        if lines is None:
            case.note(f"{name} is no text file: its row numbers could not be looked up")
            continue
        bad = []
        for image, study, patient, row in zip(part["image"], part["study"], part["patient"], part["row"], strict=True):
            words = [PurePosixPath(image).name, PurePosixPath(image).stem, str(study), str(patient)]
            there = [record[row - 1] for record in lines if row <= len(record)]
            if not any(word in line for line in there for word in words):
                bad.append(int(row))
        if bad:
            yield f"{name}: {len(bad)} rows name neither image, study nor patient of theirs, first row {bad[0]}"


def image_paths(case: Case) -> Iterator[str]:
    """Images are files inside of the site's root, links resolved, and named by relative POSIX paths."""
    root = case.table.root.resolve()
    for name, row in zip(case.table.frame["image"], case.table.frame["row"], strict=True):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            yield f"row {row}: the image's path is not relative to the root"
        elif not (case.table.root / name).is_file():
            yield f"row {row}: no such image file"
        elif not (case.table.root / name).resolve().is_relative_to(root):
            yield f"row {row}: a link leads the image's path out of the root"


def patients(case: Case) -> Iterator[str]:
    """All images of a patient are in one split."""
    splits = case.table.frame.groupby("patient")["split"].nunique()
    if (splits > 1).any():
        strayed = case.table.frame["patient"].isin(splits.index[splits > 1]).to_numpy()
        yield f"{int((splits > 1).sum())} patients are in two splits, first row {_first(case, strayed)}"


def deterministic(case: Case) -> Iterator[str]:
    """Opening the site again gives the same rows in the same order."""
    again = open_site(case.config, case.data_root)
    if digest(again) != digest(case.table):
        yield "opened again, the site has another table"


def _first(case: Case, bad: np.ndarray) -> int:
    return int(case.table.frame["row"].to_numpy()[bad][0])


def _lines(path: Path) -> list[list[str]] | None:
    """The lines of a text file, and its records where cells hold line breaks; None if it is not text."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if b"\0" in data:
        return None
    data = excel_separator(data)[1]
    text = data.decode("utf-8", errors="replace")
    return [text.splitlines(), [record.decode("utf-8", errors="replace") for record in records(data)]]


def same_labels(first: SiteTable, second: SiteTable) -> bool:
    """Whether the same rows have the same labels, whatever else they say."""
    return first.frame["row"].tolist() == second.frame["row"].tolist() and np.array_equal(
        first.labels(), second.labels(), equal_nan=True
    )
