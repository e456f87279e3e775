"""One long form of every table of labels: a row per image, finding and annotator, whichever columns hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from chestfed.data.sites.label_files.text import composed
from chestfed.data.sites.reader import BLANK, NEGATIVE, POSITIVE, UNCERTAIN, UNLABELLED
from chestfed.data.sites.tables.codebook import FINDING, LABEL, MISSING, normalize_value
from chestfed.data.sites.tables.rows import TableRows, match_reader
from chestfed.data.sites.tables.schema import READER
from chestfed.data.sites.tables.values import Values
from chestfed.data.sites.terms import IGNORED, Meaning, listed, parse_meaning
from chestfed.data.sites.terms import MISSING as UNREAD

_CODES: Final = {
    "positive": POSITIVE,
    "negative": NEGATIVE,
    "uncertain": UNCERTAIN,
    "blank": BLANK,
    MISSING: UNLABELLED,
}
#: A number, perhaps in percent.
PERCENT: Final = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*(%?)")


@dataclass(frozen=True)
class LongFindings:
    """Findings in long form: row `place` says, by annotator `reader`, what `meanings[meaning]` means."""

    place: np.ndarray  #: the row of the table, int64 `[m]`
    meaning: np.ndarray  #: a place in `meanings`, int64 `[m]`
    reader: np.ndarray  #: a place in `readers`, int64 `[m]`
    meanings: Sequence[Meaning | None]  #: None: the row has no finding
    waiting: np.ndarray  #: meanings of findings that are not confirmed, bool
    readers: Sequence[str]
    named: frozenset[str]  #: diseases that can be reported as present

    @property
    def has_readers(self) -> bool:
        """Whether annotators vote."""
        return bool(self.readers)


def melt(rows: TableRows, values: Values) -> LongFindings:
    """The findings of all rows; unknown values are collected in `values`."""
    readers, of_row = _factorize_readers(rows)
    if not rows.table.has_terms():
        return _melt_columns(rows, values, readers, of_row)
    columns = rows.table.columns
    column = columns.findings or columns.finding or FINDING
    codes, cells = _cut(rows, column)
    listing = np.array([cell is None for cell in cells])[codes]
    advice = "a cell in brackets is a Python or JSON list such as ['edema', 'mass']; fix it"
    rows.report("bad label value", listing, f"'{column}' does not hold a list of findings", advice)
    labels, of_label = _read_labels(rows, values, columns.value) if columns.value else (["positive"], 0 * codes)
    table = _Meanings(rows, values, column)
    pairs, of_pair = _unique_pairs(codes, of_label)
    by_pair = [
        np.array([table.add(term, labels[label]) for term in cells[cell] or [""]], np.int64) for cell, label in pairs
    ]
    number = np.array([len(terms) for terms in by_pair], dtype=np.int64)[of_pair]
    place = np.repeat(np.arange(len(codes)), number)
    flat = np.concatenate([by_pair[pair] for pair in of_pair.tolist()] or [codes])
    table.note_unknown(place, flat)
    named = (parse_meaning(code.meaning) for code in values.codes if code.kind == FINDING and code.is_known)
    present = frozenset(name for meaning in named for name, state in meaning.findings.items() if state != NEGATIVE)
    return LongFindings(
        place, flat, of_row[place], table.meanings, np.array(table.waiting, dtype=bool), readers, present
    )


class _Meanings:
    """The different pairs of a finding and its label, in the order of their first row."""

    def __init__(self, rows: TableRows, values: Values, column: str) -> None:
        self._rows, self._values, self._column = rows, values, column
        self._places: dict[tuple[str, str | None], int] = {}
        self.meanings: list[Meaning | None] = []
        self.waiting: list[bool] = []
        self._unknown: list[str | None] = []

    def add(self, term: str, label: str | None) -> int:
        """The place of a pair."""
        if (term, label) not in self._places:
            self._places[term, label] = len(self.meanings)
            code = self._values.code(self._column, FINDING, term)
            other, unknown = self._rows.table.other_terms, None
            if code is not None and code.is_known:
                meaning: Meaning | None = _apply(parse_meaning(code.meaning), label)
            elif not term:
                meaning = None
            else:
                meaning = IGNORED if other == "ignore" and code is None else UNREAD
                unknown = term if other == "report" else None
            self.meanings.append(meaning)
            self.waiting.append(code is not None and not code.is_known)
            self._unknown.append(unknown)
        return self._places[term, label]

    def note_unknown(self, place: np.ndarray, meaning: np.ndarray) -> None:
        """Collect the rows of findings without a meaning."""
        codes = np.full(len(self._rows.frame), -1)
        for number, value in enumerate(self._unknown):
            if value is not None:
                codes[:] = -1
                codes[place[meaning == number]] = 0
                self._values.note(self._rows, self._column, FINDING, codes, [value])


def _apply(meaning: Meaning, label: str | None) -> Meaning:
    """Apply a label to the finding beside it: `edema` and negative is edema absent."""
    if label == "positive":
        return meaning
    if label is None or label == MISSING:
        return UNREAD if not meaning.findings else Meaning(dict.fromkeys(meaning.findings, UNLABELLED))
    if label == "blank" or not meaning.findings:  # not normal: the finding itself is not given
        return IGNORED
    if label == "uncertain":
        return Meaning(dict.fromkeys(meaning.findings, UNCERTAIN))
    opposite = {int(POSITIVE): NEGATIVE, int(NEGATIVE): POSITIVE, int(UNCERTAIN): UNCERTAIN}
    return Meaning({name: opposite[int(code)] for name, code in meaning.findings.items()})


def _melt_columns(rows: TableRows, values: Values, readers: list[str], of_row: np.ndarray) -> LongFindings:
    """A column per finding, and perhaps per annotator: `labels` of the site name them."""
    config, headers = rows.source.config, [str(name) for name in rows.frame.columns]
    sources: dict[str, dict[str, None]] = {}
    voters: dict[str, str] = {}
    for disease, names in config.labels.items():
        for name in map(composed, names):
            matches = match_reader(name, headers) if READER in name else {}
            voters |= matches
            for header in matches or [name]:
                sources.setdefault(header, {})[disease] = None
    if voters:
        readers = list(dict.fromkeys(voters.values()))
    values.look_at_numbers(
        {
            normalize_value(LABEL, str(cell))
            for header, diseases in sources.items()
            if _find_threshold(rows, diseases) is None
            for cell in rows.frame[header].dropna().unique()
        }
    )
    nothing = np.zeros(0, dtype=np.int64)
    places, flat, of_reader, meanings = [nothing], [nothing], [nothing], list[Meaning | None]()
    for header, diseases in sources.items():
        labels, codes = _read_labels(rows, values, header, _find_threshold(rows, diseases))
        # A column without an annotator, beside columns with one, is what all of them say together.
        said_by = [voters[header]] if header in voters else readers if voters else []
        by = [np.full(len(codes), readers.index(name)) for name in said_by] or [of_row]
        of_reader += by
        flat += [codes + len(meanings)] * len(by)
        places += [np.arange(len(codes))] * len(by)
        meanings += [Meaning(dict.fromkeys(diseases, _CODES[label or MISSING])) for label in labels]
    waiting = np.zeros(len(meanings), dtype=bool)
    place, meaning, reader = (np.concatenate(parts) for parts in (places, flat, of_reader))
    return LongFindings(place, meaning, reader, meanings, waiting, readers, frozenset(config.diseases))


def _find_threshold(rows: TableRows, diseases: Mapping[str, None]) -> float | None:
    threshold = rows.table.threshold
    return next((threshold.get(name) for name in diseases), None) if isinstance(threshold, dict) else threshold


def _read_labels(
    rows: TableRows, values: Values, column: str, threshold: float | None = None
) -> tuple[list[str | None], np.ndarray]:
    """The different labels of a column's cells, None where unknown, and the place of each row's, int64 `[n]`."""
    codes, different = pd.factorize(rows.frame[column])
    words = [normalize_value(LABEL, str(cell)) for cell in different]
    if column == rows.table.columns.value:
        threshold = rows.table.threshold if isinstance(rows.table.threshold, float) else None
        values.look_at_numbers(words if threshold is None else ())
    if threshold is not None:
        labels = [compare_to_threshold(word, threshold) or values.meaning(column, LABEL, word) for word in words]
        _check_scale(rows, column, words, threshold)
    else:
        labels = [values.meaning(column, LABEL, word) for word in words]
    unknown = [word if label is None else None for word, label in zip(words, labels, strict=True)]
    values.note(rows, column, LABEL, codes, unknown)
    empty = values.meaning(column, LABEL, "") or "blank"
    return [*labels, empty], np.where(codes < 0, len(labels), codes)


def compare_to_threshold(word: str, threshold: float) -> str | None:
    """The label of a number, such as `0.5`, `0,5` or `50,0 %`; None for any other text."""
    match = PERCENT.fullmatch(word)
    if match is None:
        return None
    number = float(match[1].replace(",", ".")) / (100 if match[2] and threshold <= 1 else 1)
    return "positive" if number >= threshold else "negative"


def _check_scale(rows: TableRows, column: str, words: Sequence[str], threshold: float) -> None:
    """Refuse a share as the threshold of percents, and the other way round."""
    numbers = [float(m[1].replace(",", ".")) for word in words if (m := PERCENT.fullmatch(word)) and not m[2]]
    bad = (threshold <= 1 and max(numbers, default=0) > 1) or (threshold > 1 and 0 < max(numbers, default=0) <= 1)
    if bad or min(numbers, default=0) < 0:
        text = f"the numbers of '{column}' do not fit table.threshold {threshold:g}"
        advice = "write the threshold in the unit of the column: 0.5 of 0 to 1, or 50 of 0 to 100"
        rows.source.problem("unknown label", rows.name, text, advice=advice)


def _cut(rows: TableRows, column: str) -> tuple[np.ndarray, list[list[str] | None]]:
    """For each row a place int64 `[n]` in the list of the different cells' terms; None: a malformed list."""
    codes, different = pd.factorize(rows.frame[column])
    headers = "images" in rows.source.config.label_files
    terms: list[list[str] | None] = []
    for cell in map(str, different):
        if rows.table.columns.findings is None:
            parts: list[str] | None = [cell]
        elif cell.startswith("["):
            parts = listed(cell)
        else:  # values of an element with several are apart by backslashes
            separator = rows.table.separator
            parts = (cell.replace("\\", separator) if headers else cell).split(separator)
        terms.append(None if parts is None else [term for part in parts if (term := normalize_value(FINDING, part))])
    return np.where(codes < 0, len(terms), codes).astype(np.int64), [*terms, []]


def _unique_pairs(first: np.ndarray, second: np.ndarray) -> tuple[list[tuple[int, int]], np.ndarray]:
    """The different pairs, and the place of each row's, int64 `[n]`."""
    different, places = np.unique(np.stack([first, second], axis=1), axis=0, return_inverse=True)
    return [(int(left), int(right)) for left, right in different], places.reshape(-1)


def _factorize_readers(rows: TableRows) -> tuple[list[str], np.ndarray]:
    """The different annotators, and that of each row, int64 `[n]`; no annotators without a column of them."""
    column = rows.table.columns.reader
    if column is None:
        return [], np.zeros(len(rows.frame), dtype=np.int64)
    codes, names = pd.factorize(rows.frame[column])
    rows.report_blank(codes < 0, f"'{column}' is empty")
    return [*map(str, names)], codes.astype(np.int64)
