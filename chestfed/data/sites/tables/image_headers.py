"""A table that identifies its images by an element of their DICOM headers, as exports of information systems do.

A row by SOPInstanceUID has one image; one by StudyInstanceUID or AccessionNumber has all images of the study, which
share what it says. A table that names its files may take columns from their headers too. Values of headers stay in
here.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from chestfed.data.sites.folders import Folders
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.tables.dicom_headers import read_elements
from chestfed.data.sites.tables.image_paths import PlacedImages, normalize_root
from chestfed.data.sites.tables.rows import TableRows
from chestfed.data.sites.tables.schema import Images

_PATIENT = "PatientID"
#: Cells are compared with the headers' PatientIDs if at least this share of them is the PatientID of some image.
_MOSTLY = 0.5


def headers_below(source: Source, images: Images, folders: Folders) -> pd.DataFrame:
    """One row per DICOM image below the roots: `image`, `header`, `elements`, and PatientID.

    Headers that cannot be read are problems of the source.
    """
    prefixes = [normalize_root(root) for root in images.roots]
    names = sorted({file for prefix in prefixes for file in folders.files(prefix)})
    frame, _ = read_elements(source, names, [str(images.header), *images.elements, _PATIENT])
    return frame


def pair_headers(cells: pd.Series, headers: pd.DataFrame, element: str) -> tuple[np.ndarray, np.ndarray]:
    """Places of rows and of images that belong together, both int `[pairs]`: a row once per image of it."""
    of_value = headers.groupby(element, sort=False).indices
    none = np.array([], dtype=np.int64)
    matches = [of_value.get(cell, none) if isinstance(cell, str) else none for cell in cells]
    rows = np.repeat(np.arange(len(matches)), [len(places) for places in matches])
    return rows, np.concatenate([none, *matches]).astype(np.int64)


def find_other_patients(
    cells: pd.Series, headers: pd.DataFrame, rows: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows with an image that has another PatientID in its header than the cell: truly another one, and one that
    differs only in its leading zeros; both bool `[cells]`.

    `rows` and `places` are those of `pair_headers`. No row is, if most cells are not PatientIDs of
    headers: then the table has other names for patients. What is empty in the table or in a header is not compared.
    """
    other, zeros = np.zeros((2, len(cells)), dtype=bool)
    if _PATIENT not in headers or not len(rows):
        return other, zeros
    named = cells.to_numpy(dtype=object)[rows]
    in_header = headers[_PATIENT].to_numpy(dtype=object)[places]
    both = pd.notna(named) & pd.notna(in_header)
    if both.any() and pd.Series(named[both]).isin(set(headers[_PATIENT].dropna())).mean() >= _MOSTLY:
        differs = both & (named != in_header)
        other[rows[differs]] = True
        bare = [pd.Series(names[differs]).str.lstrip("0").to_numpy() for names in (named, in_header)]
        zeros[rows[differs]] = True
        zeros[rows[differs][bare[0] != bare[1]]] = False
    return other & ~zeros, zeros


def join_headers(file: TableRows, folders: Folders) -> tuple[pd.DataFrame, PlacedImages]:
    """A row per image, with the elements as columns, and where the images are.

    A row without an image, a value that images of several patients have, and a row that says another patient than the
    header of its image, is a problem.
    """
    images, column = file.table.images, file.table.columns.image
    assert images.header is not None
    assert column is not None
    headers = headers_below(file.source, images, folders)
    cells = file.frame[column]
    rows, places = pair_headers(cells, headers, images.header)
    number = np.bincount(rows, minlength=len(cells))
    empty = cells.isna().to_numpy(dtype=bool)
    file.report_blank(empty, "no image name")
    stripped = cells.str.lstrip("0").isin(headers[images.header].dropna().str.lstrip("0")).to_numpy(dtype=bool)
    zeros = int((stripped & (number == 0)).sum())
    hint = f"; without leading zeros {zeros:,} rows would match: a program removed the zeros" if zeros else ""
    if len(cells) and not len(rows):
        text = f"no '{column}' is the {images.header} of an image below {', '.join(images.roots)}{hint}"
        advice = "cells are compared as text: 7 is not 007; export it as text, or name another column or element"
        file.source.problem("nothing left", file.name, text, advice=advice)
    elif images.unmatched == "report":
        text = f"no image has this row's '{column}' as {images.header}{hint}"
        advice = "add the images or remove the row, or set images.unmatched to drop in the site's YAML"
        file.report("unmatched row", (number == 0) & ~empty, text, advice)
    else:
        file.source.left_out["unmatched"] += int(((number == 0) & ~empty).sum())
    _refuse_mixtures(file, headers, rows, places, number)
    frame = file.frame.iloc[rows].reset_index(drop=True)
    for element in images.elements:
        frame[element] = headers[element].to_numpy(dtype=object)[places]
    paths = headers["image"].to_numpy(dtype=object)[places].tolist()
    prefixes = sorted(map(normalize_root, images.roots), key=len, reverse=True)
    below = [path.removeprefix(next(prefix for prefix in prefixes if path.startswith(prefix))) for path in paths]
    return frame, PlacedImages.find(paths, below, folders)


def add_elements(rows: TableRows, frame: pd.DataFrame, placed: PlacedImages, folders: Folders) -> pd.DataFrame:
    """The frame with the elements of the headers of its images as columns; missing without a DICOM file."""
    images, elements = placed.images, rows.table.images.elements
    names = list_dicoms(images, folders)
    headers, _ = read_elements(rows.source, names, elements)
    places = pd.Index(headers["image"]).get_indexer(pd.Index(images))
    blank = np.array([None], dtype=object)
    cells = {name: np.append(headers[name].to_numpy(dtype=object), blank)[places] for name in elements}
    return frame.assign(**cells)


def list_dicoms(images: pd.Series, folders: Folders) -> list[str]:
    """The existing files among images, each once, that are not PNG or JPEG by their names."""
    names = sorted({name for name in images if isinstance(name, str)})
    pictures = (".png", ".jpg", ".jpeg")
    return [name for name in names if not name.lower().endswith(pictures) and folders.holds(name)]


def _refuse_mixtures(
    file: TableRows, headers: pd.DataFrame, rows: np.ndarray, places: np.ndarray, number: np.ndarray
) -> None:
    """Refuse what would give an image the labels of another patient: ambiguous keys, mixed-up rows."""
    element = file.table.images.header
    patients = pd.Series(headers[_PATIENT].to_numpy(dtype=object)[places]).groupby(rows).nunique(dropna=False)
    mixed = np.isin(np.arange(len(number)), patients.index[patients > 1])
    advice = (
        "name the images by another element, such as SOPInstanceUID; an empty PatientID counts as a different patient"
    )
    file.report("ambiguous image", mixed, f"images of several patients have this row's {element}", advice)
    if element == "SOPInstanceUID":
        text = "several files have this row's SOPInstanceUID"
        file.report("ambiguous image", (number > 1) & ~mixed, text, "remove the copies")
    patient = file.table.columns.patient
    if patient is not None and patient in file.frame:
        other, zeros = find_other_patients(file.cells(patient), headers, rows, places)
        text = f"'{patient}' is not the {_PATIENT} in the header of this row's image"
        headers_too = f"{_PATIENT} in images.elements and columns.patient"
        advice = (
            "cells may have moved to other rows: fix the table. If it numbers its patients differently, "
            f"take the patient from the headers ({headers_too})"
        )
        file.report("another patient", other & ~mixed, text, advice)
        text = f"'{patient}' is the {_PATIENT} in the header of this row's image without its leading zeros"
        advice = f"export the column as text, or take the patient from the headers ({headers_too})"
        file.report("another patient", zeros & ~mixed, text, advice)
