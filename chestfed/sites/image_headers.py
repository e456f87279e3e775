"""A table that names its images by an element of their DICOM headers, as the exports of information systems do.

A row by SOPInstanceUID has one image; one by StudyInstanceUID or AccessionNumber has all images of the study, which
share what it says. Values of headers stay in here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from chestfed.sites.dicom_headers import read_elements
from chestfed.sites.image_paths import Folders, Placed, prefix_of
from chestfed.sites.source import Source
from chestfed.sites.table_config import Images
from chestfed.sites.table_rows import TableRows

_PATIENT = "PatientID"


def headers_below(source: Source, images: Images, folders: Folders) -> pd.DataFrame:
    """One row per DICOM image below the roots: `image`, `header`, `elements`, and PatientID.

    Headers that cannot be read are problems of the source.
    """
    prefixes = [prefix_of(root) for root in images.roots]
    names = sorted({file for prefix in prefixes for file in folders.files(prefix)})
    frame, _ = read_elements(source, names, [str(images.header), *images.elements, _PATIENT])
    return frame


def pairs_of(cells: pd.Series, headers: pd.DataFrame, element: str) -> tuple[np.ndarray, np.ndarray]:
    """Places of rows and of images that belong together, both int `[pairs]`: a row stands as often as it has images."""
    of_value = headers.groupby(element, sort=False).indices
    none = np.array([], dtype=np.int64)
    found = [of_value.get(cell, none) if isinstance(cell, str) else none for cell in cells]
    rows = np.repeat(np.arange(len(found)), [len(places) for places in found])
    return rows, np.concatenate([none, *found]).astype(np.int64)


def join_headers(file: TableRows, folders: Folders) -> tuple[pd.DataFrame, Placed]:
    """A row per image, with the elements as columns, and where the images are.

    A row without an image, and a value that images of several patients have, is a problem.
    """
    images, column = file.table.images, file.table.columns.image
    assert images.header is not None
    assert column is not None
    headers = headers_below(file.source, images, folders)
    cells = file.frame[column]
    rows, places = pairs_of(cells, headers, images.header)
    number = np.bincount(rows, minlength=len(cells))
    empty = cells.isna().to_numpy(dtype=bool)
    file.bad("blank name", empty, "no image name", "fill the cell or remove the row")
    if len(cells) and not len(rows):
        text = f"no '{column}' is the {images.header} of an image below {', '.join(images.roots)}"
        advice = "cells are compared as they stand: 7 is not 007; name another column or element in the YAML"
        file.source.problem("nothing left", file.name, text, advice=advice)
    elif images.unmatched == "report":
        text = f"no image has this row's '{column}' as {images.header}"
        advice = "add the images or remove the row, or set images.unmatched to drop in the site's YAML"
        file.bad("unmatched row", (number == 0) & ~empty, text, advice)
    _refuse_mixtures(file, headers, rows, places, number)
    frame = file.frame.iloc[rows].reset_index(drop=True)
    for element in images.elements:
        frame[element] = headers[element].to_numpy(dtype=object)[places]
    paths = pd.Series(headers["image"].to_numpy(dtype=object)[places], dtype=object)
    strays = np.array([folders.strays(path) for path in paths], dtype=bool)
    return frame, Placed(paths, _below(paths, images.roots), strays, np.zeros(len(paths), dtype=bool))


def _refuse_mixtures(
    file: TableRows, headers: pd.DataFrame, rows: np.ndarray, places: np.ndarray, number: np.ndarray
) -> None:
    """A number that several patients share, or a UID of several files, leads to labels of somebody else."""
    element = file.table.images.header
    patients = pd.Series(headers[_PATIENT].to_numpy(dtype=object)[places]).groupby(rows).nunique()
    mixed = np.isin(np.arange(len(number)), patients.index[patients > 1])
    advice = "name the images by another element, such as SOPInstanceUID"
    file.bad("ambiguous image", mixed, f"images of several patients have this row's {element}", advice)
    if element == "SOPInstanceUID":
        text = "several files have this row's SOPInstanceUID"
        file.bad("ambiguous image", (number > 1) & ~mixed, text, "remove the copies")


def _below(paths: pd.Series, roots: Sequence[str]) -> pd.Series:
    """The paths relative to the innermost root that holds them."""
    prefixes = sorted((prefix_of(root) for root in roots), key=len, reverse=True)
    below = [path.removeprefix(next(prefix for prefix in prefixes if path.startswith(prefix))) for path in paths]
    return pd.Series(below, dtype=object)
