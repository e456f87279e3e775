"""Named groups of a site's images, such as how an image was selected: columns of its table, or lists of images.

They stand beside view, sex and age in tables of groups, and leave with predictions. So a value of few patients is
`others`, and a column of many values, which may name a person, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.config import expand_path
from chestfed.core.console import plural
from chestfed.core.errors import Problem
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import FILE, ROW, Choose
from chestfed.data.sites.table import SiteTable
from chestfed.data.sites.tables.image_paths import template_columns
from chestfed.data.sites.tables.reader import find_files
from chestfed.data.sites.tables.rows import read_rows

#: Columns of a site table that hold groups begin so.
PREFIX: Final = "group_"
OTHERS: Final = "others"
#: Values of fewer patients are `OTHERS`; a group has at most so many values.
_FEWEST: Final = 10
_MOST: Final = 20
_KIND: Final = "group without images"


def add_groups(table: SiteTable, source: Source, files: pd.Series) -> tuple[SiteTable, list[Problem]]:
    """The table with a column per group of the configuration, and the problems of these.

    `files` are the label files of the rows.
    """
    before, frame = len(source.problems), table.frame
    for name, given in source.config.groups.items() if len(frame) else ():
        cells = _read_column(source, name, given, files.tolist(), frame) if isinstance(given, str) else None
        cells = _read_lists(source, name, given, frame) if isinstance(given, Mapping) else cells
        if cells is None:
            continue
        text = pd.Series(cells, index=frame.index, dtype=object).str.strip().replace("", None)
        patients = frame["patient"].groupby(text).nunique()
        text = text.where(text.isna() | ~text.isin(patients.index[patients < _FEWEST]), OTHERS)
        if (values := text.nunique()) > _MOST:
            message = f"{name} has {values} values of {_FEWEST} patients and more; at most {_MOST} are groups"
            source.problem("too many groups", "groups", message, advice="name a column with fewer values, or none")
        else:
            frame = frame.assign(**{f"{PREFIX}{name}": pd.Categorical(text)})
    return table.with_frame(frame), source.problems[before:]


def read_again(source: Source, files: Sequence[str], rows: np.ndarray, choose: Choose) -> pd.DataFrame | None:
    """Columns of a hospital's own table, joined ones too, for these rows (file and line), object `[n]` each.

    An empty cell is None. None where rows cannot be matched: an image with several rows, or a table that cannot be
    read.
    """
    table = source.config.table
    assert table is not None
    again = Source(source.config, source.root, source.labels_file, keep_going=source.keep_going)  # problems are known
    roles = {"image": table.columns.image, "patient": table.columns.patient, "study": table.columns.study}
    naming = [*table.used_columns(), *template_columns(table.images, roles)]

    def choose_more(headers: Sequence[str]) -> list[str]:  # a row with no cell in the chosen ones is read too
        return [*choose(headers), *(name for name in naming if name in headers)]

    parts = [part for _, path in find_files(again) if (part := read_rows(again, path, table, choose_more))]
    if not parts:
        return None
    cells = pd.concat([part.frame.assign(**{FILE: part.files}) for part in parts], ignore_index=True)
    cells = cells[[*choose([name for name in map(str, cells) if name not in (FILE, ROW)]), FILE, ROW]]
    keys = pd.MultiIndex.from_frame(cells[[FILE, ROW]])
    wanted = pd.MultiIndex.from_arrays([np.asarray(files, dtype=object), rows])
    places = keys.get_indexer(wanted) if keys.is_unique else np.full(len(wanted), -1)
    if (places < 0).any():
        return None
    return cells.drop(columns=[FILE, ROW]).iloc[places].reset_index(drop=True).astype(object)


def _read_column(
    source: Source, name: str, column: str, files: Sequence[str], frame: pd.DataFrame
) -> np.ndarray | None:
    headers: dict[str, None] = {}

    def choose(names: Sequence[str]) -> list[str]:
        headers.update(dict.fromkeys(names))
        return [header for header in names if header == column]

    cells = read_again(source, files, frame["row"].to_numpy(), choose)
    if column not in headers:
        advice = f"columns: {', '.join(map(str, headers))}"
        source.problem(_KIND, "groups", f"{name}: there is no column '{column}'", advice=advice)
        return None
    if cells is None:
        advice = "give lists instead: groups: {NAME: {VALUE: FILE}}"
        source.problem(_KIND, "groups", f"{name}: several rows of the table are of one image", advice=advice)
        return None
    return cells[column].to_numpy(dtype=object)


def _read_lists(source: Source, name: str, lists: Mapping[str, str], frame: pd.DataFrame) -> np.ndarray | None:
    """Value of each image: lines name an image by path or file name, behind a digest if there is one."""
    values: dict[str, str] = {}
    for value, file in lists.items():
        text = _read_text(source, file)
        if text is None:
            advice = "name a file beside the YAML or in the site's root: one image a line"
            source.problem("missing file", file, f"groups.{name}: there is no such list", advice=advice)
            return None
        for number, line in enumerate(text.splitlines(), start=1):
            image = line.strip().rpartition(" ")[2]
            if values.setdefault(image, value) != value:
                message = f"{image} is in the lists {values[image]} and {value} of groups.{name}"
                source.problem("image in two lists", file, message, number, "keep one of the two lines")
    cells = frame["image"].map(values)
    cells = cells.where(cells.notna(), frame["image"].str.rpartition("/")[2].map(values))
    for value in lists:
        if len(frame) and not (cells == value).any():
            message = f"groups.{name}: the list of {value} names none of {plural(len(frame), 'image')}"
            source.problem(_KIND, lists[value], message, advice="list the images by the names that the label file has")
    return cells.to_numpy(dtype=object)


def _read_text(source: Source, file: str) -> str | None:
    """A list in the site's root (a file beside the YAML has its whole path), or one of the open films."""
    path = expand_path(file, source.root)
    if path.is_file():
        return path.read_text(encoding="utf-8-sig")
    listed = resources.files("chestfed.data.films").joinpath(Path(file).name)
    return listed.read_text(encoding="utf-8") if listed.is_file() and Path(file).name == file else None
