"""A hospital's own table: any that the `table` block of its YAML describes, or the headers or paths of its images.

Nothing of a cell is shown in a message, for a cell may hold a name: only row, column, and words of the YAML; of unknown
values those that several patients have.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Final

import numpy as np
import pandas as pd

from chestfed.core.console import plural
from chestfed.core.plugins import Options
from chestfed.data.dicom.file_kinds import image_ending
from chestfed.data.sites.folders import Folders
from chestfed.data.sites.label_files.source import Source
from chestfed.data.sites.label_files.text import ROW
from chestfed.data.sites.lexicon import name_unit
from chestfed.data.sites.reader import OLDEST, SiteReader, ages, join_rows, raw_rows
from chestfed.data.sites.tables.codebook import AGE, KEEP, MISSING, normalize_value
from chestfed.data.sites.tables.dicom_headers import FILES, read_headers
from chestfed.data.sites.tables.findings import combine
from chestfed.data.sites.tables.image_headers import add_elements, join_headers
from chestfed.data.sites.tables.image_paths import (
    PlacedImages,
    image_names,
    in_roots,
    place_in_folders,
    report_archives,
    template_columns,
)
from chestfed.data.sites.tables.melt import melt
from chestfed.data.sites.tables.rows import TableRows, describe_unjoined, read_rows
from chestfed.data.sites.tables.schema import TableFormat
from chestfed.data.sites.tables.values import Values, find_opposites, load_values

#: A date whose second number can only be a day.
_MONTH_FIRST: Final = r"\s*(?:0?[1-9]|1[0-2])[-./](?:1[3-9]|2\d|3[01])[-./]\d"
#: Dates, with which patients are not named: a column of them is not one of patients.
_DATE: Final = (
    r"(?:19|20)\d\d([-./]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?:[ T].*)?"
    r"|(?:0?[1-9]|[12]\d|3[01])([-./])(?:0?[1-9]|[12]\d|3[01])\2(?:19|20)?\d\d(?:[ T].*)?"
)


def read(source: Source, _: Options) -> pd.DataFrame:
    """Raw rows of the site's tables: one for all splits, or one for each."""
    table = source.config.table
    assert table is not None
    values = load_values(source, table)
    source.remarks += find_opposites(source.config)
    if "images" in source.config.label_files:
        parts = [_read_images(source, table, values)]
    else:
        folders = Folders(source.root) if source.has_images else None
        parts = [_read_table(source, table, values, path, split, folders) for split, path in find_files(source)]
    source.remarks += describe_unjoined(source)
    return join_rows([part for part in parts if part is not None], source)


def find_files(source: Source) -> list[tuple[str | None, Path]]:
    """Each file of the table, with its split if its role names one; one that is missing is a problem."""
    table = source.config.table
    joined = {join.file for join in table.join} if table is not None else set()
    roles = [role for role in source.config.label_files if role not in joined]
    if source.labels_file is not None:
        name = source.labels_file.name
        like = [role for role in roles if role != "table" and _match_name(name, source.config.label_files[role])]
        return [(None if roles == ["table"] else like[0] if like else "train", source.labels_file)]
    files = [(None if role == "table" else role, source.find(role, folder=True)) for role in roles]
    return [(split, path) for split, path in files if path is not None]


def _match_name(name: str, patterns: Collection[str]) -> bool:
    return any(PurePath(name.removesuffix(".gz")).match(PurePath(p.removesuffix(".gz")).name) for p in patterns)


def _read_table(
    source: Source, table: TableFormat, values: Values, path: Path, split: str | None, folders: Folders | None
) -> pd.DataFrame | None:
    columns = table.columns
    roles = {"image": columns.image, "patient": columns.patient, "study": columns.study}
    needed = [*table.used_columns(), *template_columns(table.images, roles)]
    if not source.config.splits.official and columns.split is not None:
        needed.remove(columns.split)
    needed += [name for names in source.config.labels.values() for name in names]
    rows = read_rows(source, path, table, [name for name in needed if name not in table.images.elements])
    if rows is None:
        return None
    rows = _filter(rows, values, elements=False)
    if table.images.folder and folders is not None:
        frame, placed = place_in_folders(rows, roles, folders)
    elif table.images.header is None and not table.images.folder:
        frame, placed = rows.frame, in_roots(image_names(rows.frame, table.images, roles), table.images, folders)
    elif folders is None:
        key = "header" if table.images.header else "folder"
        advice = "omit --labels: the images are needed, because their headers say which rows they belong to"
        source.problem("missing file", "labels", f"images.{key} needs the images", advice=advice)
        return None
    else:
        frame, placed = join_headers(rows, folders)
    if folders is not None:
        report_archives(rows, placed, folders)
        if table.images.header is None and table.images.elements:
            frame = add_elements(rows, frame, placed, folders)
    elif table.images.elements:
        advice = "omit --labels: the headers of the images hold some of the columns"
        source.problem("missing file", "labels", "images.elements needs the images", advice=advice)
        return None
    return _assemble(replace(rows, frame=frame), values, placed, split)


def _read_images(source: Source, table: TableFormat, values: Values) -> pd.DataFrame | None:
    """Rows from the headers or paths of images."""
    if not source.has_images:
        advice = "omit --labels: the labels of this site are in its images"
        source.problem("missing file", "labels", "label_files has images and no table", advice=advice)
        return None
    elements = table.used_columns()
    frame = read_headers(source, elements) if elements else _list_images(source)
    if frame is None:
        return None
    rows = _filter(TableRows(source, FILES if elements else "images", table, frame), values, elements=False)
    frame, folders = rows.frame, Folders(source.root)
    images = frame["image"].tolist()
    return _assemble(rows, values, PlacedImages.find(images, images, folders), None)


def _list_images(source: Source) -> pd.DataFrame | None:
    """One row per image of `label_files.images`, in the order of their paths; None, with a problem, without any."""
    paths = [path.relative_to(source.root).as_posix() for path in source.find_all("images")]
    images = sorted(path for path in paths if image_ending(path))
    if paths and not images:
        source.problem("missing file", "images", "no PNG, JPEG or DICOM file", advice="fix label_files.images")
    return pd.DataFrame({"image": images, ROW: np.arange(1, len(images) + 1)}) if images else None


def _filter(rows: TableRows, values: Values, *, elements: bool) -> TableRows:
    """The rows that the filter columns, or `elements` of headers, keep, an empty cell too; the others are counted."""
    for column in rows.table.keep:
        if (column in rows.table.images.elements) == elements:
            dropped = (values.translate(rows, column, KEEP) == "drop").to_numpy(dtype=bool)
            values.report(rows)
            if dropped.any():
                text = f"{int(dropped.sum()):,} of {len(dropped):,} rows are left out by '{column}' (table.keep)"
                rows.source.remarks.append(f"{rows.name}: {text}")
                rows.source.left_out["not_kept"] += int(dropped.sum())
            rows = rows.select(~dropped)
    return rows


def _assemble(rows: TableRows, values: Values, placed: PlacedImages, split: str | None) -> pd.DataFrame:
    """The raw rows of a table whose images are placed: one per row, or per image where it has several rows."""
    text, advice = "the image's path goes through a link out of the site's root", "put the images below the root"
    rows.report("path outside the root", placed.strays, text, advice)
    text = "several files below the roots have the name of this row's image"
    advice = "put more of the path into the table, list fewer folders in table.images.roots, or remove the copies"
    rows.report("ambiguous image", placed.ambiguous, text, advice)
    frame = rows.frame.assign(**{_IMAGE: placed.images.to_numpy(dtype=object)})
    rows = _filter(_take_from_path(replace(rows, frame=frame), placed.below), values, elements=True)
    raw = pd.DataFrame(_describe(rows, values, rows.frame[_IMAGE], split))
    several = rows.table.columns.finding is not None or rows.table.columns.reader is not None
    if not several:
        of_image, images = np.arange(len(raw)), len(raw)
        findings = combine(rows, melt(rows, values), of_image, images)
        values.report(rows)
        return raw_rows(dict(raw), findings, images)
    return _join_rows_of_images(rows, values, raw)


#: The image of each row, beside the columns of the table.
_IMAGE: Final = "\0image"


def _take_from_path(rows: TableRows, paths: pd.Series) -> TableRows:
    """The rows with the groups of `table.from_path` as columns; a path that it does not fit is a problem."""
    table = rows.table
    if table.from_path is None:
        return rows
    groups = paths.astype("str").where(paths.notna(), None).str.extract(table.from_path)
    frame, names = rows.frame.copy(), {}
    for group in table.path_groups():
        names[group] = f"{group} in the path"
        frame[names[group]] = groups[group].astype(object).where(groups[group].notna(), None).to_numpy()
    needed = frame[[names[group] for group in ("patient", "finding") if group in names]].isna()
    lacking = needed.any(axis=1) if "finding" in names else frame[list(names.values())].isna().all(axis=1)
    unfit = (lacking & paths.notna().to_numpy(dtype=bool)).to_numpy(dtype=bool)
    advice = "fix the path, or the pattern in the site's YAML, or keep other images out of label_files.images"
    rows.report("unknown path", unfit, "table.from_path does not fit the path of the image", advice)
    finding = {"findings": names.pop("finding")} if "finding" in names else {}
    prefix = names.pop("site", table.patient_prefix)
    columns = table.columns.model_copy(update={**names, **finding})
    table = table.model_copy(update={"columns": columns, "patient_prefix": prefix})
    return replace(rows, table=table, frame=frame).select(~unfit)


def _describe(rows: TableRows, values: Values, images: pd.Series, split: str | None) -> dict[str, object]:
    """The raw columns other than the findings."""
    columns, table = rows.table.columns, rows.table
    patients = _read_patients(rows)
    studies = patients if columns.study is None else _qualify(rows, rows.cells(columns.study)).fillna(patients)
    none = pd.Series(None, index=rows.frame.index, dtype=object)
    views = none if columns.view is None else values.translate(rows, columns.view, "view")
    sexes = none if columns.sex is None else values.translate(rows, columns.sex, "sex")
    official = rows.source.config.splits.official
    return {
        "image": images,
        "patient": patients,
        "study": studies,
        "view": views.fillna(table.default_view),
        "split": split if split is not None and official else _read_splits(rows, values),
        "sex": sexes.where(sexes != "unknown", None),
        "age": _read_ages(rows, values),
        "row": rows.rows,
        "file": rows.files,
        **({} if columns.date is None else {"date": _read_dates(rows.cells(columns.date))}),
    }


def _read_dates(cells: pd.Series) -> np.ndarray:
    """Years float64 `[n]`, to know how far dates are apart; unreadable is missing."""
    dates = _parse_dates(cells).dt
    return (dates.year + dates.day_of_year / 366).to_numpy(dtype=np.float64)


def _parse_dates(cells: pd.Series) -> pd.Series:
    """Dates datetime64 `[n]`; unreadable is missing.

    Behind a year that is first the month follows (2024-03-31). Otherwise the month is first if a cell of the column has
    no other reading (03/31/2024), else the day.
    """
    codes, different = pd.factorize(cells)
    texts = pd.Series(different, dtype=object).astype(str)
    day_first = ~texts.str.match(r"\s*\d{4}") & (not texts.str.match(_MONTH_FIRST).any())
    read = partial(pd.to_datetime, errors="coerce", format="mixed", utc=True)
    dates = pd.Series(read(texts.where(day_first, None), dayfirst=True)).fillna(read(texts.mask(day_first, None)))
    return dates.reindex(codes)


def _read_patients(rows: TableRows) -> pd.Series:
    """The patients, qualified by their site; a column of dates is refused."""
    column = rows.table.columns.patient
    assert column is not None  # from the configuration, or from the path
    cells = rows.cells(column)
    names = cells.dropna().drop_duplicates().astype("str")
    if len(names) and names.str.fullmatch(_DATE).all():
        advice = "name the column of the patients in columns.patient; of images without one, that of the image"
        rows.source.problem("dates as patients", rows.name, f"'{column}' holds dates, not patients", advice=advice)
    return _qualify(rows, cells)


def _qualify(rows: TableRows, names: pd.Series) -> pd.Series:
    """Names with the site or centre that they belong to in front; missing without it."""
    prefix = rows.table.patient_prefix
    if prefix is None:
        return names
    return rows.frame[prefix].astype(object) + "/" + names.astype(object)


def _read_splits(rows: TableRows, values: Values) -> pd.Series | str:
    column = rows.table.columns.split
    if not rows.source.config.splits.official:
        return "train"
    if column is None:
        return rows.table.default_split
    splits = values.translate(rows, column, "split")
    unknown = {place for places in values.unknown.get((column, "split"), {}).values() for place in places}
    empty = splits.isna().to_numpy(dtype=bool) & ~np.isin(np.arange(len(splits)), list(unknown))
    advice = "fill the cell, or set splits.official: false to have every image in train"
    rows.report("image without a split", empty, f"'{column}' is empty", advice)
    return splits


def _read_ages(rows: TableRows, values: Values) -> np.ndarray:
    """Years float32 `[n]`: by the code of a cell (a 3 may be a group of ages), else by its number, in the unit of the
    column's name.
    """
    column = rows.table.columns.age
    if rows.table.columns.birth is not None:
        return _compute_ages(rows, rows.table.columns.birth, str(rows.table.columns.date))
    if column is None:
        return np.full(len(rows.frame), np.nan, dtype=np.float32)
    codes, different = pd.factorize(rows.cells(column))
    words = [normalize_value(AGE, str(cell)) for cell in different]
    meanings = [values.meaning(column, AGE, word) for word in words]
    by_number = ages(pd.Series(different, dtype=object), name_unit(column))
    years = [
        number if meaning is None else np.nan if meaning == MISSING else int(float(meaning))
        for number, meaning in zip(by_number, meanings, strict=True)
    ]
    unknown = [
        word if meaning is None and np.isnan(year) else None
        for word, meaning, year in zip(words, meanings, years, strict=True)
    ]
    values.note(rows, column, AGE, codes, unknown)
    return np.array([*years, np.nan], dtype=np.float32)[codes]


def _compute_ages(rows: TableRows, birth: str, date: str) -> np.ndarray:
    """Whole years float32 `[n]` from birth to the date of the image; missing, and counted, where these give no age."""
    cells = rows.cells(birth)
    cells = cells.where(cells.str.contains(r"\d{4}").fillna(False).astype(bool), None)  # '25 may be 1925 or 2025
    born, taken = (_parse_dates(part).reset_index(drop=True).dt for part in (cells, rows.cells(date)))
    before = taken.month * 100 + taken.day < born.month * 100 + born.day  # the birthday of that year
    years = (taken.year - born.year - before).to_numpy(dtype=np.float32)
    years[(years < 0) | (years > OLDEST)] = np.nan
    given = (rows.cells(birth).notna() & rows.cells(date).notna()).to_numpy(dtype=bool)
    if unknown := int((np.isnan(years) & given).sum()):
        text = (
            f"no age for {plural(unknown, 'row')}: '{birth}' or '{date}' is no date with four digits of the year, or "
        )
        rows.source.remarks.append(f"{rows.name}: {text}they are not 0 to {OLDEST} years apart")
    return years


def _join_rows_of_images(rows: TableRows, values: Values, raw: pd.DataFrame) -> pd.DataFrame:
    """One row per image from several, whose metadata must agree."""
    no_image, no_patient = (raw[name].isna().to_numpy(dtype=bool) for name in ("image", "patient"))
    rows.report_blank(no_image, "no image name")
    rows.report_blank(no_patient & ~no_image, "no patient")
    values.report(rows)
    named = ~(no_image | no_patient)
    rows, raw = rows.select(named), raw[named].reset_index(drop=True)
    of_image, names = pd.factorize(raw["image"])
    _, first = np.unique(of_image, return_index=True)
    _refuse_contradictions(rows, raw, of_image)
    findings = combine(rows, melt(rows, values), of_image, len(names))
    values.report(rows)
    filled = raw.groupby(of_image, sort=True).first().reset_index(drop=True)
    filled["patient"], filled["row"] = raw["patient"].to_numpy()[first], raw["row"].to_numpy()[first]
    return raw_rows({name: filled[name] for name in raw.columns}, findings, len(names))


def _refuse_contradictions(rows: TableRows, raw: pd.DataFrame, of_image: np.ndarray) -> None:
    for name in ("patient", "study", "view", "split", "sex", "age"):
        column = getattr(rows.table.columns, name)
        if column is None:
            continue
        cells = raw[name].astype(object)
        bad = (cells.notna() & (cells != cells.groupby(of_image).transform("first"))).to_numpy(dtype=bool)
        text = f"'{column}' differs from an earlier row of this image"
        rows.report_images("contradictory rows", bad, of_image, text, "all rows of an image must agree; fix the row")


#: Its options are the section `table` of the site's YAML.
READER: Final = SiteReader("table", read)
