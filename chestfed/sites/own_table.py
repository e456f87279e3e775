"""A hospital's own table: any spreadsheet that the `table` block of its YAML describes, or its DICOM headers.

Nothing of a cell is shown in a message, for a cell may hold a name: only row, column, and words of the YAML.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

import numpy as np
import pandas as pd

from chestfed.sites.cells import read_cells
from chestfed.sites.dicom_headers import FILES, read_headers
from chestfed.sites.findings import INVALID, POSITIVE, SEXES, ages, from_words, strongest, translate
from chestfed.sites.image_paths import Folders, image_names, in_roots, template_columns
from chestfed.sites.rows import join_rows, raw_rows
from chestfed.sites.source import Source
from chestfed.sites.table_config import TableFormat
from chestfed.sites.terms import Grammar, Said, listed, normal, terms_of, together
from chestfed.sites.vocabulary import SPLITS, VIEWS
from chestfed.sites.votes import RULES, agreed

_SPLITS: Final = {
    **{name: name for name in SPLITS},
    "training": "train",
    "validation": "valid",
    "validate": "valid",
    "val": "valid",
    "dev": "valid",
    "testing": "test",
}
_UNKNOWN_SEX: Final = "unknown"
_SEXES: Final = {**SEXES, "u": _UNKNOWN_SEX, "unknown": _UNKNOWN_SEX, "o": _UNKNOWN_SEX, "other": _UNKNOWN_SEX}
_LONGEST_TERM: Final = 60  # a longer one is a sentence, and not near to any term
_SEVERAL_ROWS: Final = ("long", "readers")


@dataclass(frozen=True)
class _File:
    """One table that is being read: its rows as text, where they stand, and how to note what is wrong with them."""

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
        """The cells of one of the columns that tell of image and patient; missing where as good as empty."""
        cells = self.frame[column]
        as_empty = {word.strip().lower() for word in self.table.missing}
        return cells.where(~cells.str.lower().isin(as_empty), None) if as_empty else cells


def read(source: Source) -> pd.DataFrame:
    """Raw rows of the site's tables: one for all splits, or one for each."""
    table = source.config.table
    assert table is not None
    if table.layout == "dicom":
        return _read_images(source, table)
    folders = Folders(source.root) if source.has_images else None
    parts = [_read_table(source, table, path, split, folders) for split, path in _files(source)]
    return join_rows([part for part in parts if part is not None], source)


def _files(source: Source) -> list[tuple[str | None, Path]]:
    """The split that a file stands for, if its role is one, and the file."""
    roles = list(source.config.label_files)
    if source.labels_file is not None:
        name = source.labels_file.name
        like = [role for role in roles if role != "table" and _is_called(name, source.config.label_files[role])]
        return [(None if roles == ["table"] else like[0] if like else "train", source.labels_file)]
    found = [(None if role == "table" else role, source.find(role)) for role in roles]
    return [(split, path) for split, path in found if path is not None]


def _is_called(name: str, patterns: Collection[str]) -> bool:
    return any(PurePath(name.removesuffix(".gz")).match(PurePath(p.removesuffix(".gz")).name) for p in patterns)


def _read_table(
    source: Source, table: TableFormat, path: Path, split: str | None, folders: Folders | None
) -> pd.DataFrame | None:
    columns = table.columns
    roles = {"image": columns.image, "patient": columns.patient, "study": columns.study}
    wanted = [name for name in columns.model_dump().values() if name is not None]
    if not source.config.splits.official and columns.split is not None:
        wanted.remove(columns.split)
    wanted += template_columns(table.images, roles)
    wanted += _label_columns(source) if table.layout in ("onehot", "readers") else []
    frame = read_cells(source, path, table, wanted)
    if frame is None:
        return None
    images, strays = in_roots(image_names(frame, table.images, roles), table.images, folders)
    file = _File(source, source.name(path), table, frame)
    text, advice = "the image's path goes through a link out of the site's root", "put the images below the root"
    file.bad("path outside the root", strays, text, advice)
    raw = _described(file, images, split)
    if table.layout not in _SEVERAL_ROWS:
        findings = _onehot(file) if table.layout == "onehot" else _terms(file)
        return raw_rows(raw, findings, len(frame))
    return _joined(file, pd.DataFrame(raw))


def _read_images(source: Source, table: TableFormat) -> pd.DataFrame:
    """Rows from the headers of images."""
    if not source.has_images:
        advice = "leave out --labels: the labels of this site are in its images"
        source.problem("missing file", "labels", "layout 'dicom' has no label file", advice=advice)
        return join_rows([], source)
    frame = read_headers(source, list(table.columns.model_dump(exclude_none=True).values()))
    if frame is None:
        return join_rows([], source)
    file = _File(source, FILES, table, frame)
    folders = Folders(source.root)
    strays = np.array([folders.strays(image) for image in frame["image"]], dtype=bool)
    text, advice = "the file is behind a link out of the site's root", "put the images below the root"
    file.bad("path outside the root", strays, text, advice)
    return raw_rows(_described(file, frame["image"], None), _terms(file), len(frame))


def _described(file: _File, images: pd.Series, split: str | None) -> dict[str, object]:
    """The raw columns besides the findings."""
    columns, words = file.table.columns, file.table.words
    patients = file.cells(columns.patient)
    studies = patients if columns.study is None else file.cells(columns.study).fillna(patients)
    views = _worded(file, columns.view, "view", {**{view: view for view in VIEWS}, **words.view})
    sexes = _worded(file, columns.sex, "sex", {**_SEXES, **words.sex})
    return {
        "image": images,
        "patient": patients,
        "study": studies,
        "view": views.fillna(file.table.default_view),
        "split": split if split is not None and file.source.config.splits.official else _splits(file),
        "sex": sexes.where(sexes != _UNKNOWN_SEX, None),
        "age": _ages(file),
        "row": file.rows,
        "file": file.name,
    }


def _worded(file: _File, column: str | None, what: str, words: Mapping[str, str]) -> pd.Series:
    """The cells' translations; missing where empty; a word that is not known is a problem."""
    if column is None:
        return pd.Series(None, index=file.frame.index, dtype=object)
    cells = file.cells(column)
    found = translate(cells, {word.strip().lower(): meaning for word, meaning in words.items()}, lower=True)
    advice = f"known: {', '.join(sorted(words))}; add the word to table.words.{what}, or to table.missing"
    bad = (found.isna() & cells.notna()).to_numpy(dtype=bool)
    file.bad(f"unknown {what}", bad, f"'{column}' is no known {what}", advice)
    return found


def _splits(file: _File) -> pd.Series | str:
    column = file.table.columns.split
    if column is None or not file.source.config.splits.official:
        return "train"
    found = _worded(file, column, "split", {**_SPLITS, **file.table.words.split})
    empty = file.cells(column).isna().to_numpy(dtype=bool)
    advice = "fill the cell, or set splits.official: false to have every image in train"
    file.bad("image without a split", empty, f"'{column}' is empty", advice)
    return found


def _ages(file: _File) -> np.ndarray:
    column = file.table.columns.age
    if column is None:
        return np.full(len(file.frame), np.nan, dtype=np.float32)
    cells = file.cells(column)
    years = ages(cells.str.upper())
    advice = "an age is years from 0 to 120, or as 063Y, 011M; mend the cell, or add its word to table.missing"
    bad = np.isnan(years) & cells.notna().to_numpy(dtype=bool)
    file.bad("bad age", bad, f"'{column}' is no age from 0 to 120 years", advice)
    return years


def _label_columns(source: Source) -> list[str]:
    return list(dict.fromkeys(name for names in source.config.labels.values() for name in names))


def _onehot(file: _File) -> dict[str, np.ndarray]:
    """Findings int8 `[n]` per disease of the columns in the label map."""
    by_name = {name: _values(file, name) for name in _label_columns(file.source)}
    labels = file.source.config.labels
    return {
        disease: strongest([by_name[name] for name in labels[disease]], len(file.frame))
        for disease in file.source.config.diseases
    }


def _values(file: _File, column: str) -> np.ndarray:
    words = file.table.label_words()
    found = from_words(file.frame[column], words)
    known = ", ".join(f"'{word}'" for word in words if word)
    advice = f"known values: {known}, or empty; mend the cell or add the value to table.values"
    file.bad("bad label value", found == INVALID, f"'{column}' has a value that is not known", advice)
    return found


def _grammar(source: Source, table: TableFormat) -> Grammar:
    def normals(words: Collection[str], *, longest: bool = False) -> tuple[str, ...]:
        return tuple(sorted(map(normal, words), key=len, reverse=True) if longest else map(normal, words))

    others = [] if table.others == "any" else table.others
    return Grammar(
        labels={name: frozenset(normals(source.config.labels[name])) for name in source.config.diseases},
        no_finding=frozenset(normals(table.no_finding)),
        silent=frozenset(normals([*others, *source.config.no_label])),
        lenient=table.others == "any",
        negations=normals(table.negations, longest=True),
        prefixes=normals(table.uncertain_prefixes, longest=True),
        suffixes=normals(table.uncertain_suffixes, longest=True),
    )


def _terms(file: _File) -> dict[str, np.ndarray]:
    """Findings int8 `[n]` per disease of one column that holds all terms of an image."""
    grammar, column = _grammar(file.source, file.table), file.table.columns.findings
    codes, pairs = _pairs(file, column or "", grammar)
    sayings = [together(cell, grammar) for cell in pairs]
    _refuse_contrary(file, np.array([saying.contrary for saying in sayings])[codes])
    return _by_disease(sayings, codes)


def _pairs(file: _File, column: str, grammar: Grammar) -> tuple[np.ndarray, list[list[tuple[str, np.int8]]]]:
    """For each row a place int `[n]` in the list of what different cells say; a term that is not known is a problem."""
    codes, found = pd.factorize(file.frame[column])
    cells = [_split(str(cell), file.table) for cell in found]
    advice = "a cell is a list such as ['edema', 'mass'], in Python's or JSON's manner; mend it"
    no_list = np.array([*(cell is None for cell in cells), False])[codes]
    file.bad("bad label value", no_list, f"'{column}' holds no list of terms", advice)
    terms = [terms_of(cell or [], grammar) for cell in [*cells, []]]
    read = [[grammar.read(term) for term in cell] for cell in terms]
    advice = "mend the term, or add it to labels, table.no_finding or table.others in the site's YAML"
    texts = {
        code: _unknown_text(column, terms[code], [number for number, pair in enumerate(cell) if pair is None], grammar)
        for code, cell in enumerate(read)
        if None in cell
    }
    for row, code in zip(file.rows.tolist(), (codes % len(read)).tolist(), strict=True):
        if code in texts:
            file.source.problem("unknown finding", file.name, texts[code], row, advice)
    # The missing cell is the last one, which is where its place, -1, points to.
    return codes, [[pair for pair in cell if pair is not None] for cell in read]


def _unknown_text(column: str, terms: list[str], strange: list[int], grammar: Grammar) -> str:
    """Which terms of a cell are not known, by number; shown are the nearest words of the YAML."""
    known = sorted(grammar.known - {""})
    short = [terms[number] for number in strange if len(terms[number]) <= _LONGEST_TERM]
    close = [difflib.get_close_matches(term, known, n=1, cutoff=0.6) for term in short]
    nearest = ", ".join(f"'{word}'" for word in dict.fromkeys(match[0] for match in close if match))
    numbers = ", ".join(str(number + 1) for number in strange)
    return f"'{column}': term {numbers} of {len(terms)} is not known" + (f"; nearest: {nearest}" if nearest else "")


def _refuse_contrary(file: _File, bad: np.ndarray) -> None:
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


def _joined(file: _File, raw: pd.DataFrame) -> pd.DataFrame:
    """One row per image from several, whose metadata must agree."""
    blank = raw["image"].isna().to_numpy(dtype=bool)
    file.bad("blank name", blank, "no image name", "fill the cell or remove the row")
    file = _File(file.source, file.name, file.table, file.frame[~blank].reset_index(drop=True))
    raw = raw[~blank].reset_index(drop=True)
    of_image, names = pd.factorize(raw["image"])
    _, first = np.unique(of_image, return_index=True)
    _refuse_contradictions(file, raw, of_image, first)
    no_patient = raw["patient"].isna().to_numpy(dtype=bool, copy=True)
    no_patient[first] = False  # those are reported with the other formats'
    file.bad("blank name", no_patient, "no patient", "fill the cell or remove the row")
    findings = (_votes if file.table.layout == "readers" else _long)(file, of_image, len(names))
    filled = raw.groupby(of_image, sort=True).first().reset_index(drop=True)
    filled["patient"], filled["row"] = raw["patient"].to_numpy()[first], raw["row"].to_numpy()[first]
    return raw_rows({name: filled[name] for name in raw.columns}, findings, len(names))


def _refuse_contradictions(file: _File, raw: pd.DataFrame, of_image: np.ndarray, first: np.ndarray) -> None:
    columns = {"patient": file.table.columns.patient, **file.table.columns.model_dump(exclude={"image", "patient"})}
    for name in ("patient", "study", "view", "split", "sex", "age"):
        column = columns[name]
        if column is None:
            continue
        cells = raw[name].astype(object)
        given = cells.notna().to_numpy(dtype=bool)
        known = pd.Series(cells[given].to_numpy(), index=of_image[given])
        known = known[~known.index.duplicated()].reindex(range(len(first)))
        bad = given & (cells.to_numpy() != known.to_numpy()[of_image])
        advice = "all rows of an image tell the same of it; mend the row"
        file.bad("contradictory rows", bad, f"'{column}' is not as in an earlier row of this image", advice)


def _votes(file: _File, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """One finding int8 per image and disease, by the site's `raters`."""
    rule, column = file.source.config.raters, file.table.columns.reader
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
            advice = "set 'raters' in the site's YAML to any, majority, all, or to one of the readers"
            file.source.problem("unknown rater", file.name, text, advice=advice)
    return {disease: agreed(votes[kept], of_image[kept], images, rule) for disease, votes in _onehot(file).items()}


def _long(file: _File, of_image: np.ndarray, images: int) -> dict[str, np.ndarray]:
    """Findings int8 per image and disease of rows with one term each, and perhaps a value."""
    grammar, columns = _grammar(file.source, file.table), file.table.columns
    codes, cells = _pairs(file, columns.finding or "", grammar)
    values = np.full(len(codes), POSITIVE) if columns.value is None else _values(file, columns.value)
    twice = np.array([any(code != POSITIVE for _, code in cell) for cell in cells])[codes] & (values != POSITIVE)
    advice = f"write the plain term beside '{columns.value}'"
    file.bad("contradictory labels", twice, "a negated or uncertain term has a value besides", advice)
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
