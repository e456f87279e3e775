"""A hospital's own table: any spreadsheet that the `table` block of its YAML describes, or its DICOM headers.

Nothing of a cell is shown in a message, for a cell may hold a name: only row, column, and words of the YAML.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.plugins import Options
from chestfed.sites.folders import Folders
from chestfed.sites.label_files.source import Source
from chestfed.sites.left_out import TOTAL_ROW
from chestfed.sites.reader import SEXES, SPLITS, VIEWS, SiteReader, ages, join_rows, raw_rows, translate
from chestfed.sites.spreadsheet.config import TableFormat
from chestfed.sites.spreadsheet.dicom_headers import FILES, read_headers
from chestfed.sites.spreadsheet.image_headers import join_headers
from chestfed.sites.spreadsheet.image_paths import image_names, in_folders, in_roots, template_columns
from chestfed.sites.spreadsheet.join import read_joined, told_by_path
from chestfed.sites.spreadsheet.labels import label_columns, onehot, votes
from chestfed.sites.spreadsheet.rows import TableRows
from chestfed.sites.spreadsheet.term_labels import long, terms, with_words
from chestfed.sites.spreadsheet.term_table import MISSING_WORD

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
#: A cell that names a sum of the rows above it.
SUM: Final = (  # SUM001 is the name of a patient
    "(?:(?:(?:grand |sub)?totale?s?|total general|sum|summe|gesamt(?:summe|zahl)?|somme|suma|soma|razem|celkem|итого)"
    r"(?!\d)|合計|合计|總計|总计|합계)\s*[:=]?\s*[\d.,]*"
)
_SEVERAL_ROWS: Final = ("long", "readers")


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of the site's tables: one for all splits, or one for each."""
    assert source.config.table is not None
    table = with_words(source, source.config.table)
    if table.layout == "dicom":
        return _read_images(source, table)
    folders = Folders(source.root) if source.has_images else None
    parts = [_read_table(source, table, path, split, folders) for split, path in _files(source)]
    return join_rows([part for part in parts if part is not None], source)


def _files(source: Source) -> list[tuple[str | None, Path]]:
    """Each file, with its split if its role names one."""
    table = source.config.table
    joined = {join.file for join in table.join} if table is not None else set()
    roles = [role for role in source.config.label_files if role not in joined]
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
    wanted: list[str] = [name for name in columns.model_dump().values() if name is not None]
    if not source.config.splits.official and columns.split is not None:
        wanted.remove(columns.split)
    wanted += template_columns(table.images, roles)
    wanted += label_columns(source) if table.layout in ("onehot", "readers") else []
    frame = read_joined(source, path, table, [name for name in wanted if name not in table.images.elements])
    if frame is None:
        return None
    frame = _without_totals(TableRows(source, source.name(path), table, frame))
    if table.images.folder and folders is not None:
        frame, placed = in_folders(TableRows(source, source.name(path), table, frame), roles, folders)
    elif table.images.header is None and not table.images.folder:
        placed = in_roots(image_names(frame, table.images, roles), table.images, folders)
    elif folders is None:
        key = "header" if table.images.header else "folder"
        advice = "omit --labels: the images are needed, because their headers say which rows they belong to"
        source.problem("missing file", "labels", f"images.{key} needs the images", advice=advice)
        return None
    else:
        frame, placed = join_headers(TableRows(source, source.name(path), table, frame), folders)
    file = told_by_path(TableRows(source, source.name(path), table, frame), placed.below)
    text, advice = "the image's path goes through a link out of the site's root", "put the images below the root"
    file.bad("path outside the root", placed.strays, text, advice)
    text = "several files below the roots have the name of this row's image"
    advice = "put more of the path into the table, list fewer folders in table.images.roots, or remove the copies"
    file.bad("ambiguous image", placed.ambiguous, text, advice)
    raw = _described(file, placed.images, split)
    if table.layout not in _SEVERAL_ROWS:
        findings = onehot(file) if table.layout == "onehot" else terms(file)
        return raw_rows(raw, findings, len(frame))
    return _joined(file, pd.DataFrame(raw))


def _without_totals(file: TableRows) -> pd.DataFrame:
    """The rows without sums, such as an export ends with; each is a problem."""
    names = [name for name in (file.table.columns.image, file.table.columns.patient) if name in file.frame]
    sums = np.zeros(len(file.frame), dtype=bool)
    for name in names:
        sums |= file.frame[name].str.fullmatch(SUM, flags=re.IGNORECASE).fillna(False).to_numpy(dtype=bool)
    advice = "remove the row from the table, or set rows.total: drop in the site's YAML"
    file.bad(TOTAL_ROW, sums, "this row is a total", advice)
    return file.frame[~sums].reset_index(drop=True) if sums.any() else file.frame


def _read_images(source: Source, table: TableFormat) -> pd.DataFrame:
    """Rows from the headers of images."""
    if not source.has_images:
        advice = "omit --labels: the labels of this site are in its images"
        source.problem("missing file", "labels", "layout 'dicom' has no label file", advice=advice)
        return join_rows([], source)
    frame = read_headers(source, list(table.columns.model_dump(exclude_none=True).values()))
    if frame is None:
        return join_rows([], source)
    file = told_by_path(TableRows(source, FILES, table, frame), frame["image"])
    folders = Folders(source.root)
    strays = np.array([folders.strays(image) for image in frame["image"]], dtype=bool)
    text, advice = "the file's path leads through a link out of the site's root", "put the images below the root"
    file.bad("path outside the root", strays, text, advice)
    return raw_rows(_described(file, frame["image"], None), terms(file), len(frame))


def _described(file: TableRows, images: pd.Series, split: str | None) -> dict[str, object]:
    """The raw columns other than the findings."""
    columns, words = file.table.columns, file.table.words
    assert columns.patient is not None  # from the configuration, or from the path
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


def _given(file: TableRows, column: str, words: Mapping[str, object]) -> pd.Series:
    """The cells of a column; missing where they are empty, or a word that counts as empty."""
    cells = file.cells(column)
    gone = [word.strip().lower() for word, meaning in words.items() if meaning == MISSING_WORD]
    return cells.where(~cells.str.lower().isin(gone), None) if gone else cells


def _worded(file: TableRows, column: str | None, what: str, words: Mapping[str, str]) -> pd.Series:
    """The cells' translations; missing where empty; a word that is not known is a problem."""
    if column is None:
        return pd.Series(None, index=file.frame.index, dtype=object)
    cells = _given(file, column, words)
    found = translate(cells, {word.strip().lower(): meaning for word, meaning in words.items()}, lower=True)
    bad = (found.isna() & cells.notna()).to_numpy(dtype=bool)
    file.bad(f"unknown {what}", bad, f"'{column}' is not a known {what}", _where_words_go(file, what, words))
    return found


def _where_words_go(file: TableRows, what: str, known: Collection[str] = ()) -> str:
    """What to do about an unknown word; known ones of the mapping table are not listed, for they quote cells."""
    if isinstance(file.table.terms, str):
        name = Path(file.table.terms).name
        return f"enter what it means in {name}, kind {what}; `chestfed site new ... --force` adds it there"
    listed = f"known: {', '.join(sorted(known))}; " if known else ""
    return f"{listed}add the word to table.words.{what}, or to table.missing"


def _splits(file: TableRows) -> pd.Series | str:
    column = file.table.columns.split
    if not file.source.config.splits.official:
        return "train"
    if column is None:
        return file.table.default_split
    words = {**_SPLITS, **file.table.words.split}
    found, empty = _worded(file, column, "split", words), _given(file, column, words).isna().to_numpy(dtype=bool)
    advice = "fill the cell, or set splits.official: false to have every image in train"
    file.bad("image without a split", empty, f"'{column}' is empty", advice)
    return found


def _ages(file: TableRows) -> np.ndarray:
    column = file.table.columns.age
    if column is None:
        return np.full(len(file.frame), np.nan, dtype=np.float32)
    cells = _given(file, column, file.table.words.age)
    words = {word.strip().lower(): str(told) for word, told in file.table.words.age.items()}
    said = ages(translate(cells, words, lower=True))  # first: a 3 may be a group of ages
    years = np.where(np.isnan(said), ages(cells), said).astype(np.float32)
    advice = "ages are years from 0 to 120, or written as 063Y, 011M, 63 Jahre; fix the cell, or "
    bad = np.isnan(years) & cells.notna().to_numpy(dtype=bool)
    file.bad("bad age", bad, f"'{column}' is not an age from 0 to 120 years", advice + _where_words_go(file, "age"))
    return years


def _joined(file: TableRows, raw: pd.DataFrame) -> pd.DataFrame:
    """One row per image from several, whose metadata must agree."""
    no_image, no_patient = (raw[name].isna().to_numpy(dtype=bool) for name in ("image", "patient"))
    file.bad("blank name", no_image, "no image name", "fill the cell or remove the row")
    file.bad("blank name", no_patient & ~no_image, "no patient", "fill the cell or remove the row")
    blank = no_image | no_patient
    file = TableRows(file.source, file.name, file.table, file.frame[~blank].reset_index(drop=True))
    raw = raw[~blank].reset_index(drop=True)
    of_image, names = pd.factorize(raw["image"])
    _, first = np.unique(of_image, return_index=True)
    _refuse_contradictions(file, raw, of_image)
    findings = (votes if file.table.layout == "readers" else long)(file, of_image, len(names))
    filled = raw.groupby(of_image, sort=True).first().reset_index(drop=True)
    filled["patient"], filled["row"] = raw["patient"].to_numpy()[first], raw["row"].to_numpy()[first]
    return raw_rows({name: filled[name] for name in raw.columns}, findings, len(names))


def _refuse_contradictions(file: TableRows, raw: pd.DataFrame, of_image: np.ndarray) -> None:
    columns = {"patient": file.table.columns.patient, **file.table.columns.model_dump(exclude={"image", "patient"})}
    for name in ("patient", "study", "view", "split", "sex", "age"):
        column = columns[name]
        if column is None:
            continue
        cells = raw[name].astype(object)
        bad = (cells.notna() & (cells != cells.groupby(of_image).transform("first"))).to_numpy(dtype=bool)
        text = f"'{column}' differs from an earlier row of this image"
        file.contradicts("contradictory rows", bad, of_image, text, "all rows of an image must agree; fix the row")


#: Its options are the section `table` of the site's YAML.
READER: Final = SiteReader("table", read)
