"""Labels as terms: what the findings cells of a table, or of DICOM headers, say of the diseases."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from chestfed.sites.label_files.source import Source
from chestfed.sites.reader import NEGATIVE, UNLABELLED, agreed, canonical
from chestfed.sites.spreadsheet.config import TableFormat, Values, Words
from chestfed.sites.spreadsheet.labels import annotators
from chestfed.sites.spreadsheet.rows import TableRows
from chestfed.sites.spreadsheet.term_table import AGE, MISSING_WORD, TERM, VALUE, WORD_MEANINGS, TermRow, read_terms
from chestfed.sites.terms import IGNORED, MISSING, Meaning, Said, listed, normal, parse_meaning, together

_LONGEST_SHOWN: Final = 60  # a longer term is a sentence, not close to any other
#: What `other_terms` gives a term that has no meaning of its own, under a name that no cell can hold.
_OTHER: Final = "\0"
_OTHERS: Final = {"ignore": IGNORED, "missing": MISSING, "report": MISSING}


@dataclass(frozen=True)
class _Vocabulary:
    """The meaning of each term; `named` are the diseases that some term reports, `open` the terms not confirmed yet."""

    meanings: Mapping[str, Meaning]
    open: frozenset[str]
    #: Where the meaning of a term belongs: the file, or the key of the YAML.
    place: str

    @property
    def named(self) -> frozenset[str]:
        """The diseases that some term can report as present, or in doubt."""
        found = (item for meaning in self.meanings.values() for item in meaning.findings.items())
        return frozenset(disease for disease, code in found if code != NEGATIVE)


def _vocabulary(source: Source, table: TableFormat) -> _Vocabulary:
    other = {_OTHER: _OTHERS[table.other_terms]}
    if isinstance(table.terms, dict):
        meanings = {normal(term): parse_meaning(meaning) for term, meaning in table.terms.items()}
        return _Vocabulary({**meanings, **other}, frozenset(), "table.terms")
    path, rows = Path(table.terms or ""), _rows(source, table)
    meant = {row.term: row.meant for row in rows if row.kind == TERM}
    waiting = frozenset(term for term, meaning in meant.items() if meaning is None)
    return _Vocabulary({**{term: said or MISSING for term, said in meant.items()}, **other}, waiting, path.name)


def _rows(source: Source, table: TableFormat) -> list[TermRow]:
    """The rows of the mapping table."""
    separator = table.separator if table.layout in ("delimited", "dicom") else None
    rows, problems = read_terms(Path(str(table.terms)), source.config.diseases, separator)
    source.problems += [problem for problem in problems if problem not in source.problems]
    return rows


def with_words(source: Source, table: TableFormat) -> TableFormat:
    """The layout with the words and label values of its mapping table; those that are not confirmed are unknown."""
    if not isinstance(table.terms, str):
        return table
    said: dict[str, dict[str, str]] = {kind: {} for kind in WORD_MEANINGS}
    rows = [row for row in _rows(source, table) if row.kind != TERM]
    for row in rows:
        said[row.kind] |= {row.term: row.meaning} if row.known else {}
    words: dict[str, Any] = {kind: {**getattr(table.words, kind), **said[kind]} for kind in Words.model_fields}
    words[AGE] = {word: told if told == MISSING_WORD else float(told) for word, told in words[AGE].items()}
    update: dict[str, object] = {"words": Words.model_validate(words)}
    if any(row.kind == VALUE for row in rows):
        values = {name: [word for word, code in said[VALUE].items() if code == name] for name in Values.model_fields}
        update["values"] = Values.model_validate(values)
    return table.model_copy(update=update)


def cut(
    cells: pd.Series, layout: str, separator: str, values: pd.Series | None = None
) -> tuple[np.ndarray, list[list[str] | None]]:
    """For each row a place int `[n]` in the list of the different cells' terms, in `normal` form; None: not a list.

    `values` are the cells that say whether a finding is present (long): a term is then `finding = value`.
    """
    if values is not None:
        told = values.fillna("").map(lambda value: canonical(str(value))).astype(object)  # the others may all be empty
        cells = cells.where(cells.isna(), cells.astype(object) + " = " + told)
    codes, different = pd.factorize(cells)
    terms: list[list[str] | None] = []
    for cell in map(str, different):
        parts = _parts(cell, layout, separator)
        terms.append(None if parts is None else [term for term in map(normal, parts) if term])
    return np.where(codes < 0, len(terms), codes), [*terms, []]


def _parts(cell: str, layout: str, separator: str) -> list[str] | None:
    if layout == "list":
        return listed(cell)
    if layout == "long":
        return [cell]
    return (cell.replace("\\", separator) if layout == "dicom" else cell).split(separator)


def terms(file: TableRows) -> dict[str, np.ndarray]:
    """Findings int8 `[n]` per disease of a column that holds all terms of an image."""
    codes, cells = cut(file.frame[file.table.columns.findings or ""], file.table.layout, file.table.separator)
    vocabulary = _vocabulary(file.source, file.table)
    known = _known(file, codes, cells, vocabulary)
    diseases = file.source.config.diseases
    sayings = [together([vocabulary.meanings[term] for term in cell], diseases, vocabulary.named) for cell in known]
    advice = f"fix the cell, or the meaning of its terms in {vocabulary.place}"
    text = "the row calls a disease both present and absent"
    file.bad("contradictory labels", np.array([said.contradictory for said in sayings])[codes], text, advice)
    _remark(file, [(sayings[code], known[code]) for code in codes.tolist()], vocabulary)
    return _by_disease(sayings, codes, diseases)


def long(file: TableRows, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """Findings int8 per image and disease of rows with one term each, by `table.raters` if they have an annotator."""
    columns, vocabulary = file.table.columns, _vocabulary(file.source, file.table)
    values = None if columns.value is None else file.frame[columns.value]
    codes, cells = cut(file.frame[columns.finding or ""], "long", "", values)
    known = _known(file, codes, cells, vocabulary)
    readers, kept = annotators(file) if columns.reader is not None else (None, np.ones(len(codes), dtype=bool))
    of_reader = np.zeros(len(codes), dtype=np.int64) if readers is None else pd.factorize(readers)[0]
    of_reading, readings = pd.factorize(pd.MultiIndex.from_arrays([of_image, of_reader]))
    rows: list[set[str]] = [set() for _ in readings]
    for reading, code in zip(of_reading.tolist(), codes.tolist(), strict=True):
        rows[reading].update(known[code])
    different: dict[frozenset[str], int] = {}
    places = np.array([different.setdefault(frozenset(terms), len(different)) for terms in rows], dtype=np.int64)
    diseases = file.source.config.diseases
    sayings = [together([vocabulary.meanings[t] for t in terms], diseases, vocabulary.named) for terms in different]
    _, first = np.unique(of_reading, return_index=True)
    bad = np.zeros(len(codes), dtype=bool)
    bad[first] = np.array([s.contradictory for s in sayings], dtype=bool)[places]
    advice = f"fix the rows, or the meaning of their terms in {vocabulary.place}"
    text = f"the rows of this image{'' if readers is None else ' and annotator'} call a disease present and absent"
    file.contradicts("contradictory labels", bad, of_image, text, advice)
    said = [(sayings[place], sorted(terms)) for place, terms in zip(places.tolist(), rows, strict=True)]
    _remark(file, said, vocabulary, "images" if readers is None else "readings of images")
    found, rule = _by_disease(sayings, places, diseases), file.table.raters
    image, counts = of_image[first], kept[first]
    return {name: agreed(cast[counts], image[counts], images, rule, silent=True) for name, cast in found.items()}


def _known(
    file: TableRows, codes: np.ndarray, cells: Sequence[Sequence[str] | None], vocabulary: _Vocabulary
) -> list[list[str]]:
    """The terms of each cell, those without a meaning as the other term; that is a problem if they are to be reported.

    A cell without terms is the empty term, if that has a meaning.
    """
    column = file.table.columns.findings or file.table.columns.finding
    bad = np.array([cell is None for cell in cells])[codes]
    advice = "a cell is a Python or JSON list such as ['edema', 'mass']; fix it"
    file.bad("bad label value", bad, f"'{column}' does not hold a list of terms", advice)
    known, texts = [], {}
    for code, cell in enumerate(cells):
        terms = list(cell or ([""] if cell is not None and "" in vocabulary.meanings else []))
        strange = [number for number, term in enumerate(terms) if term not in vocabulary.meanings]
        if strange and file.table.other_terms == "report":
            texts[code] = _unknown_text(column or "", terms, strange, vocabulary)
        known.append([term if term in vocabulary.meanings else _OTHER for term in terms])
    advice = f"fix the term, or add it to {vocabulary.place}"
    if vocabulary.place != "table.terms":
        advice += "; `chestfed site new ... --force` adds new terms and keeps the confirmed ones"
    for row, code in zip(file.rows.tolist(), codes.tolist(), strict=True):
        if code in texts:
            file.source.problem("unknown finding", file.name, texts[code], row, advice)
    return known


def _unknown_text(column: str, terms: Sequence[str], strange: Sequence[int], vocabulary: _Vocabulary) -> str:
    """Which terms of a cell are unknown, by number, for they may be names; the closest of a YAML's terms are shown."""
    numbers = ", ".join(str(number + 1) for number in strange)
    text = f"'{column}': term {numbers} of {len(terms)} is not in {vocabulary.place}"
    if vocabulary.place != "table.terms":
        return text
    known = sorted({*vocabulary.meanings} - {"", _OTHER})
    short = [terms[number] for number in strange if len(terms[number]) <= _LONGEST_SHOWN]
    close = [difflib.get_close_matches(term, known, n=1, cutoff=0.6) for term in short]
    nearest = ", ".join(f"'{word}'" for word in dict.fromkeys(match[0] for match in close if match))
    return text + (f"; closest: {nearest}" if nearest else "")


def _remark(
    file: TableRows, images: Sequence[tuple[Said, Sequence[str]]], vocabulary: _Vocabulary, noun: str = "images"
) -> None:
    """What the labels do not show by themselves: terms that wait for a meaning, and where negatives come from."""
    waiting = [vocabulary.open.intersection(terms) for _, terms in images]
    number = sum(map(bool, waiting))
    if number:
        different = len(frozenset().union(*waiting))
        file.source.remarks.append(
            f"{file.name}: {different:,} terms of {vocabulary.place} are not confirmed; in {number:,} of "
            f"{len(images):,} {noun} a disease that is not mentioned beside them is missing"
        )
    vague = frozenset(term for term, meaning in vocabulary.meanings.items() if not meaning.understood)
    for reason, group in (("not confirmed", vocabulary.open), ("of unknown meaning", vague - vocabulary.open)):
        of_group = [said for said, terms in images if not group.isdisjoint(terms)]
        for disease in file.source.config.diseases:
            number = sum(bool(said.findings[disease] == UNLABELLED) for said in of_group)
            file.source.unread(f"terms {reason}", disease, number)
    policy = file.source.config.blank
    if images and "missing" in policy.values() and not any(said.denies for said, _ in images):
        healthy = sum(said.healthy for said, _ in images)
        file.source.remarks.append(
            f"{file.name}: negatives: {healthy:,} of {len(images):,} {noun}, all from terms that mean normal; no "
            f"term denies a single disease. If the cells name every disease that is present, set blank: negative"
        )


def _by_disease(sayings: Sequence[Said], codes: np.ndarray, diseases: Iterable[str]) -> dict[str, np.ndarray]:
    return {name: np.array([said.findings[name] for said in sayings], dtype=np.int8)[codes] for name in diseases}
