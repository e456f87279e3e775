"""The headers of a site's DICOM images beside its table: what only they say, and where the two differ.

Headers are read for a check and not kept: what they name stays in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.errors import Problem
from chestfed.data.checks.problems import HEADERS_DIFFER, HEADERS_UNREAD, SPLITS_SHARE_HEADER, Inspection
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.lexicon import WORDS, plain
from chestfed.data.sites.reader import ages
from chestfed.data.sites.tables.dicom_headers import read_elements

_ELEMENTS: Final = {"patient": "PatientID", "view": "ViewPosition", "sex": "PatientSex", "age": "PatientAge"}
_FRONTAL: Final = ("pa", "ap", "frontal")
#: Years between the ages of a table and of a header that rounding and another day may give.
_SAME_AGE: Final = 1.0
_ADVICE: Final = (
    "see which is right; to take the header's, name {} in images.elements and as columns.{} in the site's YAML"
)


def compare_headers(
    config: SiteConfig, data_root: Path, site: Inspection, progress: Callable[[int, int], None] | None = None
) -> list[Sequence[Problem]]:
    """Rows whose view, sex or age differs from the header of their image, patients who differ, and what is not read."""
    frame, table = site.survey.table.frame, config.table
    if site.scan is None or table is None or "images" in config.label_files:
        return []
    read = {role: tag for role, tag in _ELEMENTS.items() if getattr(table.columns, role) != tag}
    rows = np.flatnonzero((site.scan.frame["format"] == "DICOM").to_numpy(dtype=bool) & site.scan.readable)
    if not len(rows) or not read:
        return []
    images = frame["image"].iloc[rows]
    source = Source(config, config.folder(data_root), progress=progress, keep_going=False)
    headers, _ = read_elements(source, sorted(set(images)), [*read.values()])
    places = pd.Index(headers["image"]).get_indexer(pd.Index(images))
    rows, places = rows[places >= 0], places[places >= 0]
    cells = {role: headers[tag].to_numpy(dtype=object)[places] for role, tag in read.items()}
    problems: list[Sequence[Problem]] = []
    for role in (role for role in ("view", "sex", "age") if role in cells):
        problems += _compare_role(site, role, rows, cells[role])
    if "patient" in cells:
        problems += _compare_patients(site, rows, cells["patient"])
    return problems


def _compare_role(site: Inspection, role: str, rows: np.ndarray, cells: np.ndarray) -> list[Sequence[Problem]]:
    known, differs = _COMPARED[role](site.survey.table.frame.iloc[rows], cells)
    ours = site.survey.table.frame[role].iloc[rows].to_numpy(dtype=object)
    unread = pd.isna(ours) | (ours == "unknown")
    problems: list[Sequence[Problem]] = []
    if unread.all() and known.any():
        counts = ", ".join(f"{word} {number:,}" for word, number in _count_words(role, cells[known]))
        text = (
            f"the table has no {role}, but {known.sum():,} of {len(rows):,} headers have {_ELEMENTS[role]} ({counts})"
        )
        advice = f"add images.elements: [{_ELEMENTS[role]}] and columns.{role}: {_ELEMENTS[role]} to the site's YAML"
        problems.append([Problem(HEADERS_UNREAD, "headers", text, None, advice)])

    def describe(row: int, image: str) -> str:
        return f"{image}: the {role} is '{site.survey.table.frame[role].iat[row]}' here, and another in its header"

    advice = _ADVICE.format(_ELEMENTS[role], role)
    problems.append(site.report_rows(HEADERS_DIFFER, rows[differs], describe, advice))
    return problems


def _compare_patients(site: Inspection, rows: np.ndarray, cells: np.ndarray) -> list[Sequence[Problem]]:
    """Patients of the header that the table splits or joins; one in two splits is an error."""
    frame = site.survey.table.frame
    filled = pd.notna(cells)
    pairs = pd.DataFrame({"row": rows[filled], "header": cells[filled]})
    pairs["table"] = frame["patient"].to_numpy()[pairs["row"]]
    pairs["split"] = frame["split"].to_numpy(dtype=object)[pairs["row"]]
    of_header, of_table = pairs.groupby("header", sort=False), pairs.groupby("table", sort=False)
    divided, joined = int((of_header["table"].nunique() > 1).sum()), int((of_table["header"].nunique() > 1).sum())
    if (not divided and not joined) or pairs["header"].nunique() < 2:  # one for all stands for nobody
        return []
    numbers = pairs["table"].nunique(), pairs["header"].nunique()
    text = (
        f"{len(pairs):,} images are of {numbers[0]:,} patients in the table, and of {numbers[1]:,} PatientIDs in their "
        f"headers: {divided:,} PatientIDs are several patients of the table, and {joined:,} of its patients have "
        "several PatientIDs"
    )
    problems: list[Sequence[Problem]] = []
    problems.append([Problem(HEADERS_DIFFER, "headers", text, None, _ADVICE.format("PatientID", "patient"))])
    first = of_header["split"].transform("first")
    strays = pairs[(pairs["split"] != first) & (pairs["table"] != of_header["table"].transform("first"))]

    def describe(row: int, image: str) -> str:
        return f"{image}: the PatientID of its header is that of images in another split"

    advice = _ADVICE.format("PatientID", "patient")
    rows_of = strays.drop_duplicates("header")["row"].tolist()
    return [*problems, site.report_rows(SPLITS_SHARE_HEADER, rows_of, describe, advice)]


def _count_words(role: str, cells: np.ndarray) -> list[tuple[str, int]]:
    """The words of headers that are terms; others, which may be anything, are counted together."""
    words = [_read_view(cell) or "other" for cell in cells] if role == "view" else [f"{cell}"[:1] for cell in cells]
    return Counter(words).most_common() if role != "age" else [("ages", len(cells))]


def _read_view(cell: object) -> str | None:
    return WORDS["view"].get(plain(str(cell))) if cell is not None and cell == cell else None


def _compare_views(frame: pd.DataFrame, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    words = np.array([_read_view(cell) for cell in cells], dtype=object)
    ours = frame["view"].to_numpy(dtype=object)
    known = np.array([word not in (None, "unknown") for word in words], dtype=bool)
    alike = (words == ours) | (np.isin(ours.astype(str), _FRONTAL) & (words == "frontal"))
    alike |= (ours == "frontal") & np.isin(words.astype(str), _FRONTAL)
    return known, known & (ours != "unknown") & ~alike


def _compare_sexes(frame: pd.DataFrame, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ours = frame["sex"].to_numpy(dtype=object)
    known = np.isin(cells.astype(str), ("F", "M"))
    return known, known & pd.notna(ours) & (cells != ours)


def _compare_ages(frame: pd.DataFrame, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    theirs, ours = ages(pd.Series(cells, dtype=object)), frame["age"].to_numpy()
    return ~np.isnan(theirs), np.abs(theirs - ours) > _SAME_AGE


_COMPARED: Final[Mapping[str, Callable[[pd.DataFrame, np.ndarray], tuple[np.ndarray, np.ndarray]]]] = {
    "view": _compare_views,
    "sex": _compare_sexes,
    "age": _compare_ages,
}
