"""What the rows of a hospital's own table say of the diseases, in each of its layouts."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import pandas as pd

from chestfed.sites.findings import INVALID, POSITIVE, from_words, strongest
from chestfed.sites.label_files.source import Source
from chestfed.sites.raters import RULES, agreed
from chestfed.sites.spreadsheet.config import REST, TableFormat
from chestfed.sites.spreadsheet.rows import TableRows
from chestfed.sites.terms import Grammar, Said, listed, normal, terms_of, together

_LONGEST_TERM: Final = 60  # a longer one is a sentence, and not near to any term


def label_columns(source: Source) -> list[str]:
    return list(dict.fromkeys(name for names in source.config.labels.values() for name in names))


def onehot(file: TableRows) -> dict[str, np.ndarray]:
    """Findings int8 `[n]` per disease of the columns in the label map."""
    by_name = {name: _values(file, name) for name in label_columns(file.source)}
    labels = file.source.config.labels
    return {
        disease: strongest([by_name[name] for name in labels[disease]], len(file.frame))
        for disease in file.source.config.diseases
    }


def _values(file: TableRows, column: str) -> np.ndarray:
    words = file.table.label_words()
    found = from_words(file.frame[column], words)
    known = ", ".join(f"'{word}'" for word in words if word)
    advice = f"known values: {known}, or empty; mend the cell or add the value to table.values"
    file.bad("bad label value", found == INVALID, f"'{column}' has a value that is not known", advice)
    return found


def grammar_of(labels: Mapping[str, Collection[str]], table: TableFormat) -> Grammar:
    """How terms are read: `labels` maps a disease to its terms."""

    def normals(words: Collection[str], *, longest: bool = False) -> tuple[str, ...]:
        return tuple(sorted(map(normal, words), key=len, reverse=True) if longest else map(normal, words))

    others = [] if table.others == "any" else table.others
    return Grammar(
        labels={name: frozenset(normals(names)) for name, names in labels.items()},
        no_finding=frozenset(normals(table.no_finding)),
        silent=frozenset(normals(others)),
        unlabelled=frozenset(normals(table.unlabelled)),
        lenient=table.others == "any",
        wary=REST in table.unlabelled,
        negations=normals(table.negations, longest=True),
        prefixes=normals(table.uncertain_prefixes, longest=True),
        suffixes=normals(table.uncertain_suffixes, longest=True),
    )


def _grammar(source: Source, table: TableFormat) -> Grammar:
    config = source.config
    return grammar_of({name: config.labels[name] for name in config.diseases}, table)


def terms(file: TableRows) -> dict[str, np.ndarray]:
    """Findings int8 `[n]` per disease of one column that holds all terms of an image."""
    grammar, column = _grammar(file.source, file.table), file.table.columns.findings
    codes, pairs = _pairs(file, column or "", grammar)
    sayings = [together(cell, grammar) for cell in pairs]
    _refuse_contrary(file, np.array([saying.contrary for saying in sayings])[codes])
    return _by_disease(sayings, codes)


def _pairs(file: TableRows, column: str, grammar: Grammar) -> tuple[np.ndarray, list[list[tuple[str, np.int8]]]]:
    """For each row a place int `[n]` in the list of what different cells say; a term that is not known is a problem."""
    codes, found = pd.factorize(file.frame[column])
    cells = [_split(str(cell), file.table) for cell in found]
    advice = "a cell is a list such as ['edema', 'mass'], in Python's or JSON's manner; mend it"
    no_list = np.array([*(cell is None for cell in cells), False])[codes]
    file.bad("bad label value", no_list, f"'{column}' holds no list of terms", advice)
    spelled = [terms_of(cell or [], grammar) for cell in [*cells, []]]
    read = [[grammar.read(term) for term in cell] for cell in spelled]
    advice = "mend the term, or add it to labels, table.no_finding, table.others or table.unlabelled in the site's YAML"
    texts = {
        code: _unknown_text(
            column, spelled[code], [number for number, pair in enumerate(cell) if pair is None], grammar
        )
        for code, cell in enumerate(read)
        if None in cell
    }
    for row, code in zip(file.rows.tolist(), (codes % len(read)).tolist(), strict=True):
        if code in texts:
            file.source.problem("unknown finding", file.name, texts[code], row, advice)
    # The missing cell is the last one, which is where its place, -1, points to.
    return codes, [[pair for pair in cell if pair is not None] for cell in read]


def _unknown_text(column: str, spelled: list[str], strange: list[int], grammar: Grammar) -> str:
    """Which terms of a cell are not known, by number; shown are the nearest words of the YAML."""
    known = sorted(grammar.known - {""})
    short = [spelled[number] for number in strange if len(spelled[number]) <= _LONGEST_TERM]
    close = [difflib.get_close_matches(term, known, n=1, cutoff=0.6) for term in short]
    nearest = ", ".join(f"'{word}'" for word in dict.fromkeys(match[0] for match in close if match))
    numbers = ", ".join(str(number + 1) for number in strange)
    return f"'{column}': term {numbers} of {len(spelled)} is not known" + (f"; nearest: {nearest}" if nearest else "")


def _refuse_contrary(file: TableRows, bad: np.ndarray) -> None:
    text = "the row says that a disease is there, and that it is not"
    if file.table.layout == "long":
        text = "the rows of this image say that a disease is there, and that it is not"
    advice = "decide which it is; a term such as 'otherwise normal' belongs into table.others, not into no_finding"
    file.bad("contradictory labels", bad, text, advice)


def _by_disease(sayings: list[Said], codes: np.ndarray) -> dict[str, np.ndarray]:
    diseases = sayings[0].findings if sayings else {}
    return {name: np.array([saying.findings[name] for saying in sayings], dtype=np.int8)[codes] for name in diseases}


def _split(cell: str, table: TableFormat) -> list[str] | None:
    if table.layout == "list":
        return listed(cell)
    if table.layout == "long":
        return [cell]
    cell = cell.replace("\\", table.separator) if table.layout == "dicom" else cell
    return cell.split(table.separator)


def votes(file: TableRows, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """One finding int8 per image and disease, by `table.raters`."""
    rule, column = file.table.raters, file.table.columns.reader
    readers = file.frame[column]
    advice = "fill the cell or remove the row"
    file.bad("blank name", readers.isna().to_numpy(dtype=bool), f"'{column}' is empty", advice)
    twice = pd.DataFrame({"image": of_image, "reader": readers}).duplicated().to_numpy(dtype=bool)
    twice = twice & readers.notna().to_numpy(dtype=bool)
    file.bad(
        "duplicate image", twice, "this reader has an earlier row for the image", "keep one row per image and reader"
    )
    kept = np.ones(len(readers), dtype=bool)
    if rule not in RULES:
        kept = (readers == rule).to_numpy(dtype=bool)
        if not kept.any():
            text = f"'{column}' never names '{rule}' among {readers.nunique()} readers"
            advice = "set 'table.raters' in the site's YAML to any, majority, all, or to one of the readers"
            file.source.problem("unknown rater", file.name, text, advice=advice)
    return {disease: agreed(cast[kept], of_image[kept], images, rule) for disease, cast in onehot(file).items()}


def long(file: TableRows, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """Findings int8 per image and disease of rows with one term each, and perhaps a value."""
    grammar, columns = _grammar(file.source, file.table), file.table.columns
    codes, cells = _pairs(file, columns.finding or "", grammar)
    values = np.full(len(codes), POSITIVE) if columns.value is None else _values(file, columns.value)
    twice = np.array([any(code != POSITIVE for _, code in cell) for cell in cells])[codes] & (values != POSITIVE)
    advice = f"write the plain term beside '{columns.value}'"
    file.bad("contradictory labels", twice, "a negated or uncertain term also has a value", advice)
    rows: list[set[tuple[str, np.int8]]] = [set() for _ in range(images)]
    for image, code, value in zip(of_image.tolist(), codes.tolist(), values, strict=True):
        rows[image].update((word, said if value == POSITIVE else value) for word, said in cells[code])
    different: dict[frozenset[tuple[str, np.int8]], int] = {}
    of_rows = []
    for pairs in rows:
        of_rows.append(different.setdefault(frozenset(pairs), len(different)))
    sayings = [together(pairs, grammar) for pairs in different]
    places = np.array(of_rows, dtype=np.int64)
    contrary = np.zeros(len(codes), dtype=bool)
    contrary[np.unique(of_image, return_index=True)[1]] = np.array([s.contrary for s in sayings], dtype=bool)[places]
    _refuse_contrary(file, contrary)
    return _by_disease(sayings, places)
