"""Labels in columns of their own: a column per finding, and perhaps a row per annotator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import BLANK, INVALID, NEGATIVE, RULES, UNLABELLED, agreed, from_words, strongest
from chestfed.sites.spreadsheet.rows import TableRows


def label_columns(source: Source) -> list[str]:
    return list(dict.fromkeys(name for names in source.config.labels.values() for name in names))


def onehot(file: TableRows) -> dict[str, np.ndarray]:
    """Findings int8 `[n]` per disease of the columns in the label map."""
    return _counted(file, _by_row(file), True)


def _by_row(file: TableRows) -> dict[str, np.ndarray]:
    by_name = {name: _values(file, name) for name in label_columns(file.source)}
    found = {}
    for disease in file.source.config.diseases:
        codes = [by_name[name] for name in file.source.config.labels[disease]]
        found[disease] = strongest(codes, len(file.frame))
        half = (found[disease] == NEGATIVE) & (np.stack(codes) == BLANK).any(axis=0)
        if half.any() and file.source.config.blank[disease] != "negative":
            text = f"{disease} is absent in {plural(int(half.sum()), 'row')} in which only some of its columns say so"
            file.source.remarks.append(f"{file.name}: {text}, and others are empty")
    return found


def _counted(file: TableRows, findings: dict[str, np.ndarray], said: np.ndarray | bool) -> dict[str, np.ndarray]:
    """The findings of images; how many of those that somebody `said` something of are missing is noted."""
    for disease, codes in findings.items():
        file.source.unread("values that mean missing", disease, int(((codes == UNLABELLED) & said).sum()))
    return findings


def _values(file: TableRows, column: str) -> np.ndarray:
    table, words = file.table, file.table.label_words()
    found = from_words(file.frame[column], words)
    known = "known values: " + ", ".join(f"'{word}'" for word in words if word)
    place = "table.values"
    if table.terms is not None:
        known, place = "known values are those of the mapping table", f"{Path(str(table.terms)).name}, kind value"
    advice = f"{known}, or empty; fix the cell or add the value to {place}"
    file.bad("bad label value", found == INVALID, f"'{column}' has an unknown value", advice)
    return found


def annotators(file: TableRows) -> tuple[pd.Series, np.ndarray]:
    """The annotator of each row, and which rows count by `table.raters`, bool `[n]`."""
    rule, column = file.table.raters, file.table.columns.reader
    readers = file.frame[column]
    advice = "fill the cell or remove the row"
    file.bad("blank name", readers.isna().to_numpy(dtype=bool), f"'{column}' is empty", advice)
    kept = np.ones(len(readers), dtype=bool)
    if rule not in RULES:
        kept = (readers == rule).to_numpy(dtype=bool)
        if not kept.any():
            text = f"'{column}' never names '{rule}' among {readers.nunique()} annotators"
            advice = "set 'table.raters' in the site's YAML to any, majority, all, or to one of the annotators"
            file.source.problem("unknown rater", file.name, text, advice=advice)
    return readers, kept


def votes(file: TableRows, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """One finding int8 per image and disease, by `table.raters`."""
    readers, kept = annotators(file)
    twice = pd.DataFrame({"image": of_image, "reader": readers}).duplicated().to_numpy(dtype=bool)
    file.bad(
        "duplicate image",
        twice & readers.notna().to_numpy(dtype=bool),
        "an earlier row has the same image and annotator",
        "keep one row per image and annotator",
    )
    rule, of_image = file.table.raters, of_image[kept]
    findings = {name: agreed(cast[kept], of_image, images, rule) for name, cast in _by_row(file).items()}
    return _counted(file, findings, np.bincount(of_image, minlength=images) > 0)
