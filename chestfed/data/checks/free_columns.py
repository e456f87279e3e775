"""Columns of a hospital's own table that nothing reads, as far as they group its images: what may stand beside a label.

They are read again for a check only, and stay in it: cells are counted, never shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.diseases import format_title
from chestfed.core.errors import Problem
from chestfed.data.checks.problems import NORMAL_AND_FINDING, Inspection
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.groups import read_again
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.lexicon import MAYBE_VALUES, NO_FINDING, VALUES, plain
from chestfed.data.sites.reader import POSITIVE

#: Values of a column that groups images.
MOST_VALUES: Final = 50
#: Above this many rows free columns are not read again, to keep a check's memory.
_MOST_ROWS: Final = 200_000
_MEANINGS: Final = {**MAYBE_VALUES, **VALUES, "1.0": "positive"}
_ADVICE: Final = (
    "decide which it is and fix the table, or name this kind under 'allow' in the site's YAML: the disease counts"
)


def read_free_columns(
    config: SiteConfig, data_root: Path, labels_file: Path | None, site: Inspection
) -> dict[str, np.ndarray]:
    """Column -> its cells (object, None is empty) in the order of the table's rows, of columns with 2 to 50 values.

    Empty without a table of the hospital's own, for one of more than 200,000 rows, and where an image has several rows.
    """
    table, frame = config.table, site.survey.table.frame
    if table is None or "images" in config.label_files or not 0 < len(frame) <= _MOST_ROWS:
        return {}
    labels = {name for names in config.labels.values() for name in names}
    used = {*table.used_columns(), *labels, *(name for name in config.groups.values() if isinstance(name, str))}

    def choose(headers: Sequence[str]) -> list[str]:
        return [name for name in headers if name and list(headers).count(name) == 1 and name not in used]

    source = Source(config, config.folder(data_root), labels_file)
    cells = read_again(source, site.survey.files, frame["row"].to_numpy(), choose)
    if cells is None:
        return {}
    columns = {str(name): cells[name].to_numpy(dtype=object) for name in cells}
    return {
        name: column for name, column in columns.items() if 2 <= pd.Series(column).nunique(dropna=False) <= MOST_VALUES
    }


def find_normal_with_finding(site: Inspection, columns: Mapping[str, np.ndarray]) -> list[Sequence[Problem]]:
    """One problem per row that a column such as `No Finding` calls normal, and that has a disease."""
    table, raw = site.survey.table, site.survey.raw
    diseases = [disease for disease in table.diseases if plain(disease) not in NO_FINDING]
    normal = {disease: table.frame[disease].to_numpy() == 1 for disease in table.diseases if disease not in diseases}
    for name, cells in columns.items():
        if plain(name) in NO_FINDING:
            words = pd.Series(cells, dtype=object).str.strip().str.lower()
            normal[name] = words.map(_MEANINGS).eq("positive").to_numpy(dtype=bool)
    if not normal or table.frame.empty:
        return []
    places = pd.Index(raw["image"]).get_indexer(pd.Index(table.frame["image"]))
    present = (raw[diseases].to_numpy()[places] == int(POSITIVE)) & (places >= 0)[:, None]
    problems: list[Sequence[Problem]] = []
    for name, rows in normal.items():
        both = np.flatnonzero(rows & present.any(axis=1))
        shown = format_title(name) if name in table.diseases else f"'{name}'"

        def describe(row: int, image: str, shown: str = shown) -> str:
            found = ", ".join(format_title(diseases[place]) for place in np.flatnonzero(present[row]).tolist())
            return f"{image}: {shown} is positive beside {found}"

        problems.append(site.report_rows(NORMAL_AND_FINDING, both, describe, _ADVICE))
    return problems
