"""The rows of one table that is being read, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from chestfed.sites.label_files.source import ROW, Source
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
        return self.frame[ROW].to_numpy()

    def bad(self, kind: str, bad: np.ndarray, text: str, advice: str) -> None:
        """One problem per row where `bad`, bool `[n]`."""
        for row in self.rows[bad].tolist():
            self.source.problem(kind, self.name, text, row, advice)

    def contradicts(self, kind: str, bad: np.ndarray, of_image: np.ndarray, text: str, advice: str) -> None:
        """One problem per row where `bad`, bool `[n]`; `of_image` is the image of each row, int `[n]`.

        Where the site leaves such images out, they are told by the number of their first row, which they go by.
        """
        if self.source.config.rows.contradictory == "drop":
            bad = np.isin(of_image, of_image[bad]) & ~pd.Series(of_image).duplicated().to_numpy()
        self.bad(kind, bad, text, advice)

    def cells(self, column: str) -> pd.Series:
        """The cells of a column about the image or patient; missing where they count as empty."""
        cells = self.frame[column]
        as_empty = {word.strip().lower() for word in self.table.missing}
        return cells.where(~cells.str.lower().isin(as_empty), None) if as_empty else cells
