"""The words of a site's YAML and code book that its labels come from, as the card shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from chestfed.data.sites.config import SiteConfig
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.reader import NEGATIVE, POSITIVE, UNCERTAIN
from chestfed.data.sites.tables.codebook import FINDING, LABEL, Code
from chestfed.data.sites.tables.rows import match_reader
from chestfed.data.sites.tables.schema import READER, TableFormat
from chestfed.data.sites.tables.values import load_values
from chestfed.data.sites.terms import parse_meaning

#: Words of a state that are listed, and the longest of them: a longer one may be a sentence about a patient.
_SHOWN: Final = 6
_LONGEST: Final = 30
#: A word of the code book is shown if so many rows have it: a rarer one may name a patient.
_ROWS: Final = 10
_STATES: Final = {"positive": POSITIVE, "negative": NEGATIVE, "uncertain": UNCERTAIN}
#: Label -> the cells that mean it in columns without any code.
_PLAIN: Final = {"positive": ("1", "yes"), "negative": ("0", "no")}
_NUMBER: Final = re.compile(r"[+-]?\d+([.,]\d+)?")


def describe_words(config: SiteConfig) -> dict[str, str]:
    """Disease -> the columns, words and numbers that its labels come from.

    Words that are long or rare, or have digits among their letters, are counted and not shown.
    """
    table = config.table
    if table is None:
        return {disease: ", ".join(config.labels.get(disease, ())) or "-" for disease in config.diseases}
    codes = [code for code in load_values(Source(config, Path()), table).codes if code.is_known]
    describe = _describe_terms if table.has_terms() else _describe_columns
    words = {disease: describe(config, table, codes, disease) for disease in config.diseases}
    return words | {disease: f"every image is {label}" for disease, label in config.constant.items()}


def _describe_terms(config: SiteConfig, table: TableFormat, codes: list[Code], disease: str) -> str:
    """Describe findings in words: those that report, deny or doubt the disease."""
    words: dict[str, list[Code]] = {state: [] for state in _STATES}
    for code in codes:
        if code.kind == FINDING:
            meaning = parse_meaning(code.meaning, config.diseases)
            finding = meaning.findings.get(disease, NEGATIVE if meaning.healthy else None)
            for state, value in _STATES.items():
                words[state] += [code] if finding == value else []
    return _join_states(words, in_book=isinstance(table.codes, str))


def _describe_columns(config: SiteConfig, table: TableFormat, codes: list[Code], disease: str) -> str:
    """Describe a column per disease: its name, and the cells that mean each label."""
    names = config.labels.get(disease, [])
    head = f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}"
    threshold = table.threshold.get(disease) if isinstance(table.threshold, dict) else table.threshold
    if threshold is not None:
        return f"{head}: positive from {threshold:g} on"
    fitting = [code for code in codes if code.kind == LABEL and _fits(code.column, names)]
    specific = {(code.column, code.value) for code in fitting if code.column}  # goes before a code of all columns
    fitting = [code for code in fitting if code.column or {(name, code.value) for name in names} - specific]
    words = {state: [code for code in fitting if code.meaning == state] for state in _STATES}
    numbers = any(_NUMBER.fullmatch(code.value) for code in codes if code.kind == LABEL)
    for state, plain in _PLAIN.items():
        defaults = plain[1:] if numbers else plain
        words[state] += [Code("", LABEL, word, _ROWS) for word in defaults if not fitting or not words[state]]
    return f"{head}: {_join_states(words, in_book=isinstance(table.codes, str))}"


def _fits(column: str, names: Iterable[str]) -> bool:
    """Whether a code's column is one of the disease's; an empty one is every column."""
    return not column or any(column == name or (READER in name and match_reader(name, [column])) for name in names)


def _join_states(words: dict[str, list[Code]], *, in_book: bool) -> str:
    return "; ".join(f"{state} from {_join_words(codes, in_book)}" for state, codes in words.items() if codes) or "-"


def _join_words(codes: list[Code], in_book: bool) -> str:
    """The most frequent words that may be shown, and how many there are besides."""
    ordered = sorted({code.value: code for code in codes}.values(), key=lambda code: -code.rows)
    shown = [_quote(code.value) for code in ordered if _may_be_shown(code, in_book)][:_SHOWN]
    rest = len(ordered) - len(shown)
    return ", ".join([*shown, *([f"{rest:,} {'more' if shown else 'words'}"] if rest else [])])


def _may_be_shown(code: Code, in_book: bool) -> bool:
    if in_book and code.rows < _ROWS:
        return False
    return bool(_NUMBER.fullmatch(code.value)) or (len(code.value) <= _LONGEST and not re.search(r"\d", code.value))


def _quote(value: str) -> str:
    return value if _NUMBER.fullmatch(value) else f"'{value}'" if value else "the empty cell"
