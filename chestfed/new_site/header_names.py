"""A table whose cells are no file names: whether they are what the DICOM headers of the images say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from chestfed.dicom_tags import IMAGE_KEYS
from chestfed.errors import SiteError
from chestfed.new_site.choosing import Choices, Chooser, named_column
from chestfed.new_site.columns import Found, called, count
from chestfed.new_site.image_hints import NoImageNamedError
from chestfed.new_site.pictures import ImageMatch, Pictures
from chestfed.sites.image_headers import pairs_of
from chestfed.sites.table_config import Images

#: Share of the cells that must be found in a header.
_ENOUGH: Final = 0.9


@dataclass(frozen=True)
class HeaderMatch:
    """The table with a row per image, which elements of the headers it was given as columns, and how they match."""

    frame: pd.DataFrame
    elements: tuple[str, ...]
    match: ImageMatch
    notes: tuple[str, ...]


def match_headers(
    frame: pd.DataFrame,
    pictures: Pictures,
    headers: Callable[[], pd.DataFrame],
    roles: Mapping[str, str],
    choices: Choices,
    chooser: Chooser,
    found: Found,
    refused: NoImageNamedError,
) -> HeaderMatch:
    """How a column's cells are found in the headers of the images.

    `headers` reads them: `image`, and the elements that may be read. What no column of the table is called like is
    taken from the headers, where `roles` maps it to an element.

    Raises
    ------
    ConfigError
        `refused`, if there are no DICOM files or nothing matches; or if the element or the column is not certain.
    """
    if not pictures.dicoms:
        raise refused
    names = list(map(str, frame))
    said = choices.columns.get("image")
    columns = names if said is None else [named_column(said, names, "--image-column")]
    try:
        told = headers()
    except SiteError:  # none can be read
        raise refused from None
    shares = {
        (name, element): float(frame[name].dropna().isin(set(told[element].dropna())).mean())
        for element in IMAGE_KEYS
        if element in told
        for name in columns
        if frame[name].notna().any()
    }
    if not any(shares.values()):
        raise type(refused)(f"{refused}. Nor are its cells the {', '.join(IMAGE_KEYS)} of a header")
    best = {name: max(share for (other, _), share in shares.items() if other == name) for name, _ in shares}
    column = next((name for (name, _), share in shares.items() if share >= _ENOUGH), None)
    why = ", ".join(f"{name} ({share:.0%})" for name, share in best.items() if share)
    why = f"{'' if column else 'too few '}cells are found in the headers of the images: {why}"
    listed = [name for name, share in best.items() if share]
    column = columns[0] if said else chooser.choose("image column", "--image-column", column, listed, why)
    element = max(IMAGE_KEYS, key=lambda key: shares.get((column, key), 0.0))
    rows, places = pairs_of(frame[column], told, element)
    wanted = {what: tag for what, tag in roles.items() if what not in choices.columns and tag not in names}
    elements = [tag for what, tag in wanted.items() if tag in told and not called(what, names)]
    wide = frame.iloc[rows].reset_index(drop=True)
    for tag in elements:
        wide[tag] = told[tag].to_numpy(dtype=object)[places]
    paths = pd.Series(told["image"].to_numpy(dtype=object)[places], dtype=object)
    cells, named = int(frame[column].notna().sum()), len(np.unique(rows))
    images = Images.model_validate({"header": element, "roots": [pictures.folder or "."]})
    how = f"the {element} in the headers of {paths.nunique():,} images"
    found.take("image", column, f"{count(named, cells)} are {how}")
    if element != "SOPInstanceUID" and "study" not in choices.columns:
        found.take("study", column, f"the {element} is that of a study")
    notes = []
    if named < cells:
        notes.append(
            f"{cells - named:,} rows are found in no header: the site does not open before they are removed, or left "
            "out with `unmatched: drop` beside `header` in the YAML"
        )
    most = int(np.bincount(rows).max())
    if most > 1:
        notes.append(f"up to {most:,} images have one '{column}': they share what its row says")
    match = ImageMatch(column, images, how, cells, cells, int(paths.nunique()), 0, paths)
    return HeaderMatch(wide, tuple(elements), match, tuple(notes))
