"""The rows of one table that is being read, with the columns of joined files, and what is wrong with them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from chestfed.data.sites.label_files.open import open_table
from chestfed.data.sites.label_files.options import FileFormat
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import FILE, ROW, Choose, composed, empty_nan
from chestfed.data.sites.left_out import TOTAL_ROW
from chestfed.data.sites.tables.schema import FIELD, READER, Join, TableFormat

if TYPE_CHECKING:
    from chestfed.data.sites.config import SiteConfig

#: A cell that names a sum of the rows above it.
_SUM: Final = (  # SUM001 is the name of a patient
    "(?:(?:(?:grand |sub)?totale?s?|total general|sum|summe|gesamt(?:summe|zahl)?|somme|suma|soma|razem|celkem|итого)"
    r"(?!\d)|合計|合计|總計|总计|합계)\s*[:=]?\s*[\d.,]*"
)
#: Parts of such cells, to look at few cells of many.
_MAYBE_SUM: Final = "(?i)tot|sum|som|gesamt|razem|celkem|итого|合|總|总|합계"


@dataclass(frozen=True)
class TableRows:
    """Cells of a table in `frame`, and its problems in the source; `name` is its file in messages."""

    source: Source
    name: str
    table: TableFormat
    frame: pd.DataFrame

    @property
    def rows(self) -> np.ndarray:
        """Row numbers int64 `[n]`."""
        return self.frame[ROW].to_numpy()

    @property
    def files(self) -> pd.Series:
        """The file of each row, with its sheet."""
        return self.frame.get(FILE, pd.Series(self.name, index=self.frame.index))

    def report(self, kind: str, bad: np.ndarray, text: str, advice: str) -> None:
        """Note a problem per row where `bad`, bool `[n]`."""
        for file, row in zip(self.files[bad], self.rows[bad].tolist(), strict=True):
            self.source.problem(kind, file, text, row, advice)

    def report_blank(self, bad: np.ndarray, text: str) -> None:
        """Note a problem per row that lacks a name, bool `[n]`."""
        self.report("blank name", bad, text, "fill the cell or remove the row")

    def report_images(self, kind: str, bad: np.ndarray, of_image: np.ndarray, text: str, advice: str) -> None:
        """Note a problem per row where `bad`, bool `[n]`; `of_image` is the image of each row, int `[n]`.

        Where the site leaves such images out, they go by the number of their first row.
        """
        if self.source.config.rows.contradictory == "drop":
            bad = np.isin(of_image, of_image[bad]) & ~pd.Series(of_image).duplicated().to_numpy()
        self.report(kind, bad, text, advice)

    def cells(self, column: str) -> pd.Series:
        """The cells of a column about the image or patient; missing where they count as empty."""
        cells = self.frame[column]
        as_empty = {word.strip().lower() for word in self.table.missing}
        return cells.where(~cells.str.lower().isin(as_empty), None) if as_empty else cells

    def select(self, mask: np.ndarray) -> TableRows:
        """The rows where `mask`, bool `[n]`."""
        return self if mask.all() else replace(self, frame=self.frame[mask].reset_index(drop=True))


def read_rows(source: Source, path: Path, table: TableFormat, columns: Sequence[str] | Choose) -> TableRows | None:
    """The columns of the table, some of them from the files of `table.join`, without totals, which are problems.

    A name with `{reader}` in it stands for all columns that fit; a function chooses among the headers of the table and
    the columns of `table.join`. None, with problems, if a file cannot be used.
    """
    taken: list[str] = []
    keys: list[str] = []
    for join in table.join:  # a key may come from a file that is joined earlier
        keys += [] if join.key[0] in taken else [join.key[0]]
        taken += join.columns

    def choose(headers: Sequence[str]) -> list[str]:
        own = [name for name in headers if name not in taken]
        chosen = columns([*own, *taken]) if callable(columns) else columns
        joined = {name for name in chosen if match_reader(name, taken) and not match_reader(name, headers)}
        return [name for name in [*chosen, *keys] if name not in taken and name not in joined]

    frame = _read_columns(source, path, table, choose)
    for join in table.join:
        other = _read_other(source, join)
        if frame is not None:
            rows = TableRows(source, source.name(path), table, frame)
            frame = None if other is None else _join(rows, join, other)
    return None if frame is None else _drop_totals(TableRows(source, source.name(path), table, frame))


def describe_unjoined(source: Source) -> list[str]:
    """One sentence per joined file with keys that no row of the tables has."""
    return [
        f"joined file '{file}': {len(alone):,} of {number:,} values of '{key}' are in no row of the table: not used"
        for (file, key), (number, alone) in source.joined.items()
        if len(alone)
    ]


def name_columns(config: SiteConfig, table: TableFormat, headers: Collection[str]) -> dict[str, str]:
    """Column -> what it is read as, such as `patient`; empty of a column that nothing reads."""
    roles: dict[str, list[str]] = defaultdict(list)
    for role, name in table.columns.model_dump(exclude_none=True).items():
        roles[name].append(role)
    for disease, names in config.labels.items():
        for header in (header for name in names for header in (match_reader(name, [*headers]) or [name])):
            roles[header].append(disease)
    further = {"filter": table.keep, "ignored": table.ignore, "site": [table.patient_prefix or ""]}
    further["path"] = [match[1] for match in FIELD.finditer(table.images.path or "")]
    further["group"] = [name for name in config.groups.values() if isinstance(name, str)]
    further["key"] = [name for join in table.join for name in join.key]
    for role, names in further.items():
        for name in names:
            roles[name].append(role)
    return {name: ", ".join(dict.fromkeys(roles.get(name, ()))) for name in headers}


def find_sums(cells: pd.Series) -> np.ndarray:
    """Which cells name a sum of the rows above them, bool `[n]`."""
    maybe: Any = pc.match_substring_regex(pa.array(cells, pa.string(), from_pandas=True), _MAYBE_SUM)
    sums: np.ndarray = maybe.fill_null(False).to_numpy(zero_copy_only=False).copy()
    sums[sums] = cells[sums].str.fullmatch(_SUM, flags=re.IGNORECASE).to_numpy(dtype=bool)
    return sums


def match_reader(name: str, headers: Sequence[str]) -> dict[str, str]:
    """Header -> annotator, of the headers that fit a name such as `edema_{reader}`."""
    before, reader, after = name.partition(READER)
    if not reader:
        return {}
    pattern = re.compile(f"{re.escape(before)}(.+){re.escape(after)}")
    return {header: match[1] for header in headers if (match := pattern.fullmatch(header))}


def _read_columns(source: Source, path: Path, options: FileFormat, columns: Choose) -> pd.DataFrame | None:
    def choose(headers: Sequence[str]) -> list[str]:
        names: list[str] = []
        for name in map(composed, dict.fromkeys(columns(headers))):
            names += match_reader(name, headers) or [name]
        return list(dict.fromkeys(names))

    opened = open_table(source, [path], options, choose)
    if opened is None:
        return None
    source.remarks += opened.notes
    source.columns |= dict.fromkeys(filter(None, opened.headers))
    names, empty = choose(opened.headers), "" if source.problems else "export the table again"
    keys = [key for name in names if name not in opened.headers for key in source.config.find_keys(name)]
    where = source.config.file or "the site's YAML"
    advice = f"fix {', '.join(dict.fromkeys(keys)) or 'the names'} in {where}"
    advice += "; the header is the first row, unless table.header_row gives another"
    labels = [name for disease in source.config.labels.values() for name in disease]
    labels += [name for label in labels for name in match_reader(label, opened.headers)]
    value = source.config.table.columns.value if source.config.table is not None else None
    frame = empty_nan(opened.frame, [*labels, *([value] if value else [])])
    return source.select(path, frame, opened.headers, names, row=options.header_row, advice=advice, empty=empty)


def _read_other(source: Source, join: Join) -> pd.DataFrame | None:
    """One row per key of a joined file, with its columns."""
    path = source.find(join.file)
    key = join.key[-1]
    names = list(dict.fromkeys([key, *join.columns]))
    frame = None if path is None else _read_columns(source, path, join, lambda _: names)
    if path is None or frame is None:
        return None
    frame = frame[frame[key].notna().to_numpy()].drop_duplicates(names)
    twice = frame[key].duplicated().to_numpy()
    text = f"an earlier row with the same '{key}' differs in {', '.join(join.columns)}"
    advice = "keep one row per key, or take other columns from this file"
    source.bad_rows(path, "contradictory rows", twice, frame[ROW].to_numpy(), text, advice)
    return frame[~twice]


def _join(rows: TableRows, join: Join, other: pd.DataFrame) -> pd.DataFrame:
    """The frame of the rows with the columns of `other`."""
    keys = rows.frame[join.key[0]]
    places = pd.Index(other[join.key[-1]]).get_indexer(keys)
    empty = keys.isna().to_numpy(dtype=bool)
    places[empty] = -1
    matched = places >= 0
    if len(matched) and not matched.any():
        text = f"no '{join.key[0]}' is in '{join.key[-1]}' of the joined file '{join.file}'"
        advice = "cells are compared as text: 7 is not 007, nor 7.png; name other columns in table.join"
        rows.source.problem("nothing left", rows.name, text, advice=advice)
        matched = np.ones(len(matched), dtype=bool)
    elif join.unmatched == "report":
        text = f"'{join.key[0]}' is not in the joined file '{join.file}'"
        advice = "add the row there, or set 'unmatched' of table.join to blank or drop in the site's YAML"
        rows.report("unmatched row", ~matched & ~empty, text, advice)
        rows.report("unmatched row", empty, f"'{join.key[0]}' is empty, but it is the key of a joined file", advice)
    elif lacking := int((~matched).sum()):
        outcome = "left out" if join.unmatched == "drop" else "blank there"
        rows.source.left_out.update({"unjoined": lacking} if join.unmatched == "drop" else {})
        text = f"{lacking:,} of {len(matched):,} rows are not in the joined file '{join.file}': {outcome}"
        rows.source.remarks.append(f"{rows.name}: {text}")
    alone = pd.Index(np.delete(other[join.key[-1]].to_numpy(dtype=object), places[places >= 0]))
    _, before = rows.source.joined.get((join.file, join.key[-1]), (0, alone))
    rows.source.joined[join.file, join.key[-1]] = len(other), before.intersection(alone)
    frame = rows.frame.copy()
    for name in join.columns:
        cells = np.array([*other[name], None], dtype=object)
        frame[name] = pd.Series(cells[places], index=frame.index, dtype=object)
    return frame[matched].reset_index(drop=True) if join.unmatched == "drop" else frame


def _drop_totals(rows: TableRows) -> TableRows:
    """The rows without sums, such as an export ends with; each is a problem."""
    columns = rows.table.columns
    sums = np.zeros(len(rows.frame), dtype=bool)
    for name in (columns.image, columns.patient):
        if name in rows.frame:
            sums |= find_sums(rows.frame[name])
    advice = "remove the row from the table, or set rows.total: drop in the site's YAML"
    rows.report(TOTAL_ROW, sums, "this row is a total", advice)
    return rows.select(~sums)
