"""The rows of a hospital's own table, with the columns of joined files and what is found in the image's path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.sites.label_files.source import ROW, Source
from chestfed.sites.spreadsheet.cells import read_cells
from chestfed.sites.spreadsheet.config import TableFormat
from chestfed.sites.spreadsheet.files import Join
from chestfed.sites.spreadsheet.rows import TableRows


def read_joined(source: Source, path: Path, table: TableFormat, wanted: Sequence[str]) -> pd.DataFrame | None:
    """The wanted columns as `cells.read_cells` gives them, some of them from the files of `table.join`.

    None, with problems, if one of the files cannot be used.
    """
    taken: list[str] = []
    own = list(wanted)
    for join in table.join:  # a key may come from a file that is joined earlier
        own += [] if join.key[0] in taken else [join.key[0]]
        taken += join.columns
    frame = read_cells(source, path, table, [name for name in own if name not in taken])
    for join in table.join:
        other = _other(source, join)
        if frame is not None:
            frame = None if other is None else _joined(TableRows(source, source.name(path), table, frame), join, other)
    return frame


def _other(source: Source, join: Join) -> pd.DataFrame | None:
    """One row per key of a joined file, with its columns."""
    path = source.find(join.file)
    key = join.key[-1]
    names = list(dict.fromkeys([key, *join.columns]))
    frame = None if path is None else read_cells(source, path, join, names)
    if path is None or frame is None:
        return None
    frame = frame[frame[key].notna().to_numpy()].drop_duplicates(names)
    twice = frame[key].duplicated().to_numpy()
    text = f"an earlier row with the same '{key}' differs in {', '.join(join.columns)}"
    advice = "keep one row per key, or take other columns from this file"
    source.bad_rows(path, "contradictory rows", twice, frame[ROW].to_numpy(), text, advice)
    return frame[~twice]


def _joined(file: TableRows, join: Join, other: pd.DataFrame) -> pd.DataFrame:
    """The rows of `file` with the columns of `other`."""
    keys = file.frame[join.key[0]]
    places = pd.Index(other[join.key[-1]]).get_indexer(keys)
    places[keys.isna().to_numpy(dtype=bool)] = -1
    found = places >= 0
    if len(found) and not found.any():
        text = f"no '{join.key[0]}' is in '{join.key[-1]}' of the joined file '{join.file}'"
        advice = "cells are compared as text: 7 is not 007, nor 7.png; name other columns in table.join"
        file.source.problem("nothing left", file.name, text, advice=advice)
        found = np.ones(len(found), dtype=bool)
    elif join.unmatched == "report":
        text = f"'{join.key[0]}' is not in the joined file '{join.file}'"
        advice = "add the row there, or set 'unmatched' of table.join to blank or drop in the site's YAML"
        empty = keys.isna().to_numpy(dtype=bool)
        file.bad("unmatched row", ~found & ~empty, text, advice)
        file.bad("unmatched row", empty, f"'{join.key[0]}' is empty, but it is the key of a joined file", advice)
    elif lacking := int((~found).sum()):
        done = "left out" if join.unmatched == "drop" else "blank there"
        text = f"{lacking:,} of {len(found):,} rows are not in the joined file '{join.file}': {done}"
        file.source.remarks.append(f"{file.name}: {text}")
    frame = file.frame.copy()
    for name in join.columns:
        cells = np.array([*other[name], None], dtype=object)
        frame[name] = pd.Series(cells[places], index=frame.index, dtype=object)
    return frame[found].reset_index(drop=True) if join.unmatched == "drop" else frame


def told_by_path(file: TableRows, paths: pd.Series) -> TableRows:
    """The rows with what `table.from_path` finds in the paths of their images, as further columns.

    A path that the pattern does not fit is a problem.
    """
    table = file.table
    if table.from_path is None:
        return file
    told = paths.str.extract(table.from_path)
    frame, names = file.frame.copy(), {}
    for group in table.path_groups():
        names[group] = f"{group} in the path"
        frame[names[group]] = told[group].astype(object).where(told[group].notna(), None)
    strange = told[list(names)].isna().all(axis=1).to_numpy(dtype=bool) & paths.notna().to_numpy(dtype=bool)
    advice = "fix the path, or the pattern in the site's YAML"
    file.bad("unknown path", strange, "table.from_path finds nothing in the path of the image", advice)
    columns = table.columns.model_copy(update=names)
    return TableRows(file.source, file.name, table.model_copy(update={"columns": columns}), frame)
