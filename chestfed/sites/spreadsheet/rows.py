"""The rows of one table that is being read, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from chestfed.sites.label_files.source import Source
from chestfed.sites.spreadsheet.config import TableFormat


@dataclass(frozen=True)
class TableRows:
    """One table that is being read: its rows as text, their numbers, and how to report problems with them."""

    source: Source
    name: str
    table: TableFormat
    frame: pd.DataFrame

    @property
    def rows(self) -> np.ndarray:
        """Row numbers int64 `[n]`."""
        return self.frame["row"].to_numpy()

    def bad(self, kind: str, bad: np.ndarray, text: str, advice: str) -> None:
        """One problem per row where `bad`, bool `[n]`."""
        for row in self.rows[bad].tolist():
            self.source.problem(kind, self.name, text, row, advice)

    def cells(self, column: str) -> pd.Series:
        """The cells of a column about the image or patient; missing where they count as empty."""
        cells = self.frame[column]
        as_empty = {word.strip().lower() for word in self.table.missing}
        return cells.where(~cells.str.lower().isin(as_empty), None) if as_empty else cells
