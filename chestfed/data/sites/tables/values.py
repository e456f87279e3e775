"""Meanings of the values of a hospital's table: its confirmed codes, else a few words that are unambiguous."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.core.errors import Problem
from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.lexicon import denies, is_opposite
from chestfed.data.sites.reader import SEXES, SPLITS, VIEWS
from chestfed.data.sites.tables.codebook import LABEL, MISSING, Code, normalize_value, parse_code, read_book
from chestfed.data.sites.tables.rows import TableRows
from chestfed.data.sites.tables.schema import ROLES, TableFormat

#: Kind -> word -> meaning, without any code. 0 and 1 are labels if no other number is one.
WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    LABEL: {
        **dict.fromkeys(("yes", "true", "present", "positive"), "positive"),
        **dict.fromkeys(("no", "false", "absent", "negative"), "negative"),
        "uncertain": "uncertain",
        "nan": MISSING,  # beside empty cells, else it is one
    },
    "view": {view: view for view in VIEWS},
    "split": {
        **{split: split for split in SPLITS},
        "training": "train",
        "testing": "test",
        **dict.fromkeys(("validation", "validate", "val", "dev"), "valid"),
    },
    "sex": {**SEXES, **dict.fromkeys(("u", "unknown", "o", "other"), "unknown")},
}
_PLAIN: Final = {"0": "negative", "1": "positive"}
_NUMBER: Final = re.compile(r"[+-]?\d+(?:[.,]\d+)?")
#: A value is shown if as many patients have it: of fewer, it may be a name.
SHOWN_FROM: Final = 3
_LONGEST_SHOWN: Final = 60
_MOST_SHOWN: Final = 20


@dataclass
class Values:
    """Meanings of the values of one site, and the values without any, which are problems."""

    codes: Sequence[Code]
    place: str  #: where a code belongs, in messages
    numbers_are_codes: bool = False  #: whether label columns have other numbers than 0 and 1
    unknown: dict[tuple[str, str], dict[str, set[int]]] = field(default_factory=lambda: defaultdict(dict))
    _table: dict[tuple[str, str, str], Code] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._table = {(code.column, code.kind, code.value): code for code in self.codes}

    def code(self, column: str, kind: str, value: str) -> Code | None:
        """The code of a value, confirmed or not; one of the column goes before one of all columns."""
        return self._table.get((column, kind, value)) or self._table.get(("", kind, value))

    def meaning(self, column: str, kind: str, value: str) -> str | None:
        """Meaning of a value in the form of `normalize_value`; None if it is unknown."""
        code = self.code(column, kind, value)
        if code is not None:
            return code.meaning if code.is_known else None
        if kind == LABEL and _NUMBER.fullmatch(value):
            return None if self.numbers_are_codes else _PLAIN.get(value)
        return WORDS.get(kind, {}).get(value)

    def look_at_numbers(self, values: Collection[str]) -> None:
        """Take 0 and 1 for codes if any of these values of label columns is another number."""
        self.numbers_are_codes |= any(_NUMBER.fullmatch(value) and value not in _PLAIN for value in values)

    def translate(self, rows: TableRows, column: str, kind: str) -> pd.Series:
        """Meanings of the cells of a column; missing where they are empty, mean `missing`, or are unknown."""
        cells = rows.cells(column)
        codes, different = pd.factorize(cells)
        values = [normalize_value(kind, str(cell)) for cell in different]
        meanings = [self.meaning(column, kind, value) for value in values]
        self.note(rows, column, kind, codes, [v if m is None else None for v, m in zip(values, meanings, strict=True)])
        meanings.append(self.meaning(column, kind, ""))  # of the empty cell
        table = np.array([None if meaning == MISSING else meaning for meaning in meanings], dtype=object)
        return pd.Series(table[codes], index=cells.index, dtype=object)

    def note(self, rows: TableRows, column: str, kind: str, codes: np.ndarray, unknown: Sequence[str | None]) -> None:
        """Collect the rows of unknown values; `codes` are places of each row's value in `unknown`, int `[n]`."""
        for place, value in enumerate(unknown):
            if value is not None:
                places = np.flatnonzero(codes == place).tolist()
                self.unknown[column, kind].setdefault(value, set()).update(places)

    def report(self, rows: TableRows) -> None:
        """One problem per column that has unknown values; columns of nothing but 0 and 1 share one."""
        labels = [(column, values) for (column, kind), values in self.unknown.items() if kind == LABEL]
        plain = [column for column, values in labels if not values.keys() - _PLAIN]
        if plain:
            names = ", ".join(f"'{column}'" for column in plain)
            text = f"0 and 1 of {names} need a code too, because a label column has another number"
            advice = f"say what they mean in {self.place} (kind label)"
            rows.source.problem("unknown label", rows.name, text, advice=advice)
        for (column, kind), values in self.unknown.items():
            if kind != LABEL or column not in plain:
                number, shown, row = plural(len(values), "value"), *_describe(rows, values)
                text = f"'{column}' has {number} of unknown meaning: {shown}{self._suggest(kind, values)}"
                what = "numbers other than 0 and 1 need a code each, and so do 0 and 1 then; " if kind == LABEL else ""
                advice = f"{what}enter the meaning (kind {kind}) in {self.place}, or fix the cells"
                first = sorted(rows.rows[sorted(set().union(*values.values()))].tolist())[:_MOST_SHOWN]
                rows.source.problems.append(Problem(f"unknown {kind}", rows.name, text, row, advice, tuple(first)))
        self.unknown.clear()

    def _suggest(self, kind: str, values: Collection[str]) -> str:
        """The closest values of the YAML; those of a code book are cells, which messages do not show."""
        known = [code.value for code in self.codes if code.kind == kind] if self.place == "table.codes" else []
        short = [value for value in values if len(value) <= _LONGEST_SHOWN]
        close = [difflib.get_close_matches(value, known, n=1, cutoff=0.6) for value in short]
        words = dict.fromkeys(f"'{match[0]}'" for match in close if match)
        return f"; closest: {', '.join([*words][:_MOST_SHOWN])}" if words else ""


def _describe(rows: TableRows, values: Mapping[str, set[int]]) -> tuple[str, int | None]:
    """Values with their counts, those of few patients by their rows alone; and the row, of a single one."""
    patient = rows.table.columns.patient
    patients = rows.frame[patient] if patient in rows.frame else pd.Series(rows.rows)
    shown: list[str] = []
    first: list[int] = []
    for value, places in sorted(values.items(), key=lambda item: -len(item[1])):
        many = patients.iloc[list(places)].nunique() >= SHOWN_FROM and len(value) <= _LONGEST_SHOWN
        if many and len(shown) < _MOST_SHOWN:
            shown.append(f"'{value}' ({plural(len(places), 'row')})")
        else:
            first.append(min(rows.rows[list(places)].tolist()))
    if first:
        numbers = ", ".join(map(str, sorted(first)[:_MOST_SHOWN])) + (", ..." if len(first) > _MOST_SHOWN else "")
        shown.append((f"{plural(len(first), 'other value')}, " if shown else "") + f"first in row {numbers}")
    return "; ".join(shown), first[0] if first and len(values) == 1 else None


def load_values(source: Source, table: TableFormat) -> Values:
    """The meanings of a site's code book, whose problems are the source's, or of its YAML."""
    if isinstance(table.codes, str):
        path = Path(table.codes)
        separator = table.separator if table.columns.findings else None
        codes, problems = read_book(path, source.config.diseases, separator)
        source.problems += [problem for problem in problems if problem not in source.problems]
        return Values(codes, path.name)
    codes = []
    for column, meanings in table.codes.items():
        kind, header = (ROLES[column], "") if column in ROLES else (table.column_kind(column), column)
        for value, meaning in meanings.items():
            codes.append(Code(header, kind, normalize_value(kind, value), 0, "", "", parse_code(kind, meaning), "yes"))
    return Values(codes, "table.codes")


def find_opposites(config: SiteConfig) -> list[str]:
    """Sentences about words of a table that are read as their opposite: `no` as positive, a column `No Edema` as edema.

    Only words of chestfed's own lexicon are quoted.
    """
    if config.table is None:
        return []
    values = load_values(Source(config, Path()), config.table)
    columns = [(name, disease) for disease, names in config.labels.items() for name in names]
    denying = {name: disease for name, disease in columns if denies(name, disease)}
    sentences = [
        f"column '{name}' denies {disease} by its name, and its {' and '.join(words)} counts as present"
        for name, disease in denying.items()
        if (words := [f"'{word}'" for word in ("1", "yes") if values.meaning(name, LABEL, word) == "positive"])
    ]
    for code in values.codes:
        affected = [name for name, _ in columns if code.column in ("", name)] if code.kind == LABEL else []
        if affected and denying.keys() >= {*affected}:
            continue
        if code.is_known and is_opposite(code.kind, code.value, code.meaning):
            where = f"'{code.value}' of '{code.column}'" if code.column else f"'{code.value}' ({code.kind})"
            sentences.append(f"{where} is read as {code.meaning}, the opposite of what the word says")
    return sentences
