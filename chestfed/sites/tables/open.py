"""Opens a hospital's table as one frame of strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chestfed.sites.label_files.source import Source
from chestfed.sites.tables.cells import column_names, read_cells
from chestfed.sites.tables.schema import FileFormat


@dataclass(frozen=True)
class OpenedTable:
    frame: pd.DataFrame
    notes: list[str]


def open_table(source: Source, paths: Sequence[Path], options: FileFormat) -> OpenedTable | None:
    """The frame of the files; None, with problems, if one cannot be used."""
    (path,) = paths
    names = column_names(source, path, options)
    if names is None:
        return None
    names = [name for name in names if name and names.count(name) == 1]
    frame = read_cells(source, path, options, names)
    return None if frame is None else OpenedTable(frame, [])
